//! AdaSpec's confidence-prior verifier (Alg. 2): drops the draft tokens with the least cumulative confidence (product
//! of the confidences up to the token) before verification.
//!
//! The rule (docs/model.md 12): remove, one at a time, the token with the smallest cumulative confidence in the batch,
//! while the estimated throughput strictly improves. On a tie remove the deeper token, then the token of the larger
//! batch index. Cumulative confidence never rises along a request. So the smallest one belongs to the last token of
//! some request, and a heap of these last tokens finds it. With `context_reads = once` every token costs the same and
//! the rule is exact; with `per-position` it is the paper's heuristic.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The last draft token of one request. The greatest `Tail` by `Ord` is the draft token that AdaSpec's verifier drops
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tail {
    /// Bit pattern of the token's cumulative confidence (product of the request's confidences up to it). The patterns
    /// of numbers ≥ 0, read as integers, have the order of the numbers.
    promise: Reverse<u64>,
    /// The draft token's place among the draft tokens of its request, from 1.
    pub depth: u32,
    /// Batch index of the request to which the draft token belongs.
    pub request: u32,
}

impl Tail {
    /// The draft token at `depth` (from 1) of the request with batch index `request`. `cumulative`, in [0, 1], is the
    /// product of the request's confidences up to this token.
    pub(crate) fn new(cumulative: f64, depth: u32, request: usize) -> Tail {
        Tail { promise: Reverse(cumulative.to_bits()), depth, request: request as u32 }
    }

    /// The draft token's cumulative confidence: the product of the request's confidences up to it.
    pub(crate) fn cumulative(&self) -> f64 {
        f64::from_bits(self.promise.0)
    }
}

/// The last draft token of each request of a batch. Keeps its buffer between steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tails {
    heap: BinaryHeap<Tail>,
}

impl Tails {
    /// Replaces all stored last draft tokens by `tails`, one for each request with draft tokens. Takes time
    /// proportional to their number.
    pub(crate) fn fill(&mut self, tails: impl Iterator<Item = Tail>) {
        let mut buffer = std::mem::take(&mut self.heap).into_vec();
        buffer.clear();
        buffer.extend(tails);
        self.heap = buffer.into();
    }

    /// Returns the draft token to drop next: of all requests' last draft tokens, the one with the least cumulative
    /// confidence (product of confidences up to it). `None` if no token is left.
    pub(crate) fn peek(&self) -> Option<Tail> {
        self.heap.peek().copied()
    }

    /// Removes the draft token that `peek` returns. `next` is the token before it in the same request, if there is one;
    /// it becomes the request's last draft token.
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
