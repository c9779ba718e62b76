//! Which fixed length is the best at each batch size, as vLLM asks it: `num_speculative_tokens_per_batch_size`.
//!
//! vLLM looks its table up by the number of requests *scheduled in a step*, prompts among them. So a row is made of the steps that
//! scheduled exactly that many requests, and its number is their output tokens over their time. Such steps come from closed loops
//! of as many clients, in which every step is one of them as long as everything fits; where memory or the token budget keep some
//! clients waiting, loops of up to four times as many are run. The first requests of a loop and the last ones, while it fills and
//! drains, are left out. Each length runs with the drafter loaded, length 0 too: that is what a server with such a table does.
//!
//! Lengths are compared on the same luck, seed by seed. Of lengths that are not told apart from the best, or that are within
//! 1 % of it, the smallest is taken: it costs the least when the draft is worse than it was taken for. Nothing is assumed of the
//! order of rows: the best length may rise and fall with the batch size.

mod choose;
mod closed;
mod measure;
mod render;

pub use choose::{Best, best};
pub use closed::one_setting;
pub use measure::{Loops, Row};
pub use render::{no_draft, render};

use foretoken_policies::BatchRange;

/// The table: each row that was reached starts a range that ends where the next one starts; equal neighbours are one. The
/// first range starts at 1.
pub fn ranges(best: &[(u32, u32)]) -> Vec<BatchRange> {
    let mut ranges: Vec<BatchRange> = Vec::new();
    for (i, &(size, k)) in best.iter().enumerate() {
        let last = best.get(i + 1).map_or(size, |next| next.0 - 1);
        match ranges.last_mut() {
            Some(range) if range.2 == k => range.1 = last,
            _ => ranges.push((if i == 0 { 1 } else { size }, last, k)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_every_size_from_one() {
        assert_eq!(ranges(&[(4, 5), (8, 5), (16, 2), (32, 0)]), [(1, 15, 5), (16, 31, 2), (32, 32, 0)]);
        assert_eq!(ranges(&[(1, 3)]), [(1, 1, 3)]);
        // Not monotone, and it need not be.
        assert_eq!(ranges(&[(1, 2), (2, 4), (4, 2)]), [(1, 1, 2), (2, 3, 4), (4, 4, 2)]);
    }
}
