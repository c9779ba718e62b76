//! The expected token goodput if the whole batch drafts k tokens, for k = 0, 1, 2, … in this order. `smartspec`,
//! `smartspec-joint`, `smartspec-request` and `smartspec-dsd` use it.
//!
//! These policies differ in the last k that they try (all lengths, or until goodput stops rising) and in what they do
//! at k = 0. All use one estimate (docs/model.md 12): Σ E(a, min(k, limit_i)) tokens, divided by the draft and target
//! time T_d + T_v. The sum is over the requests i, limit_i is the most draft tokens of request i, and a is the
//! acceptance rate.

use crate::shared::estimator::{Depths, Estimate};

/// Iterates over the draft lengths from 0 up, each with its estimated goodput in tokens per second. Ends at `longest`,
/// or at the greatest length that any request may draft.
pub(crate) struct Ladder<'a> {
    depths: &'a Depths,
    estimate: Estimate,
    /// Expected tokens of the whole batch in the step at the current draft length, bonus tokens included.
    tokens: f64,
    /// Probability that a request's draft tokens up to the current draft length are all accepted.
    reached: f64,
    acceptance: f64,
    next: u32,
    longest: u32,
}

impl<'a> Ladder<'a> {
    /// Starts at length k = 0. `undrafted` is the estimate of a step of `requests` decode requests without draft
    /// tokens. `depths` says how many requests may draft to each depth. `acceptance` is the a of E(a, k): the
    /// probability that a draft token is accepted if all before it are.
    pub(crate) fn new(
        undrafted: Estimate,
        requests: usize,
        depths: &'a Depths,
        longest: u32,
        acceptance: f64,
    ) -> Ladder<'a> {
        Ladder { depths, estimate: undrafted, tokens: requests as f64, reached: 1.0, acceptance, next: 0, longest }
    }
}

impl Iterator for Ladder<'_> {
    type Item = (u32, f64);

    #[inline]
    fn next(&mut self) -> Option<(u32, f64)> {
        let k = self.next;
        if k > 0 {
            let at = self.depths.at(k);
            if k > self.longest || at.requests == 0 {
                return None;
            }
            self.estimate.deepen(at);
            self.reached *= self.acceptance;
            self.tokens += at.requests as f64 * self.reached;
        }
        self.next += 1;
        Some((k, self.tokens / self.estimate.step_s()))
    }
}

/// Returns the length with the greatest goodput (expected tokens per second), the shortest on a tie, and that goodput.
/// Calls `look` with every length and its goodput.
pub(crate) fn best_of(ladder: Ladder, mut look: impl FnMut(u32, f64)) -> (u32, f64) {
    let mut best = (0, f64::NEG_INFINITY);
    for (k, goodput) in ladder {
        look(k, goodput);
        if goodput > best.1 {
            best = (k, goodput);
        }
    }
    best
}
