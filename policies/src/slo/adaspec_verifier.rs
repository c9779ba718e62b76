//! AdaSpec's confidence-prior verifier (Alg. 2): drops the least promising draft tokens before verification.
//!
//! The rule (docs/model.md 12): remove, one at a time, the token with the smallest cumulative confidence in the batch,
//! while the estimated throughput strictly improves. On a tie remove the deeper token, then the token of the larger
//! batch index. Cumulative confidence never rises along a request. So the smallest one belongs to the last token of
//! some request, and a heap of these last tokens finds it. With `context_reads = once` every token costs the same and
//! the rule is exact; with `per-position` it is the paper's heuristic.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The last token of a request's draft. In the order of this type, the greatest tail is removed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tail {
    /// Bit pattern of the cumulative confidence. The patterns of numbers ≥ 0, read as integers, have the order of the
    /// numbers.
    promise: Reverse<u64>,
    /// Depth of the token, from 1.
    pub depth: u32,
    /// Batch index of the request.
    pub request: u32,
}

impl Tail {
    /// The `depth`-th token of `request`, with the cumulative confidence `cumulative` in [0, 1].
    pub(crate) fn new(cumulative: f64, depth: u32, request: usize) -> Tail {
        Tail { promise: Reverse(cumulative.to_bits()), depth, request: request as u32 }
    }

    /// The token's cumulative confidence.
    pub(crate) fn cumulative(&self) -> f64 {
        f64::from_bits(self.promise.0)
    }
}

/// The last tokens of all requests of a batch. Keeps its buffer between steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tails {
    heap: BinaryHeap<Tail>,
}

impl Tails {
    /// Replaces all tails by `tails`. Takes time proportional to their number.
    pub(crate) fn fill(&mut self, tails: impl Iterator<Item = Tail>) {
        let mut buffer = std::mem::take(&mut self.heap).into_vec();
        buffer.clear();
        buffer.extend(tails);
        self.heap = buffer.into();
    }

    /// Returns the next token to remove; `None` if no token is left.
    pub(crate) fn peek(&self) -> Option<Tail> {
        self.heap.peek().copied()
    }

    /// Removes the token that `peek` returns. `next` is the token before it in the same request, if there is one; it
    /// becomes the request's last token.
    pub(crate) fn remove(&mut self, next: Option<Tail>) {
        self.heap.pop();
        self.heap.extend(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_promising_goes_first_then_the_deeper_then_the_later() {
        let mut tails = Tails::default();
        tails
            .fill([(0.5, 1, 0), (0.2, 3, 1), (0.2, 4, 0), (0.2, 4, 2)].map(|(c, d, i)| Tail::new(c, d, i)).into_iter());
        let mut order = Vec::new();
        while let Some(t) = tails.peek() {
            order.push((t.request, t.depth, t.cumulative()));
            tails.remove(None);
        }
        assert_eq!(order, [(2, 4, 0.2), (0, 4, 0.2), (1, 3, 0.2), (0, 1, 0.5)]);
    }
}
