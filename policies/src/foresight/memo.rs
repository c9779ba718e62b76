//! Stores, for the draft tokens of the last steps, the estimated probability that each is accepted. The estimate comes
//! from a token's confidence. The policy needs it when it drafts the token, and again when it learns from the token's
//! outcome.

use crate::vllm::acceptance_estimator::Estimate;

/// Number of steps for which the estimated acceptance of draft tokens is stored. An engine may be two steps ahead of
/// the newest outcome that the policy has observed, so the outcome of the third newest step must still find its
/// estimates.
const STEPS: usize = 3;

/// For each draft token of a step: (the token's confidence, the estimated probability that it is accepted); `longest`
/// entries a request. The confidence NaN marks an entry without a token.
type Tokens = Vec<(f64, Estimate)>;

/// The estimated probability of acceptance of the draft tokens of the last [`STEPS`] steps. Entries that a step does
/// not use keep older tokens.
#[derive(Debug)]
pub(crate) struct Memo {
    longest: usize,
    /// For each of the last steps, the newest first: its draft tokens with their estimated probability of acceptance.
    steps: [Tokens; STEPS],
}

impl Memo {
    /// Estimates for at most `longest` draft tokens a request and step. No draft token has an estimate yet.
    pub fn new(longest: u32) -> Memo {
        Memo { longest: longest as usize, steps: Default::default() }
    }

    /// Begins a step of `n` requests. Its draft tokens are stored in the buffer of the oldest step.
    pub fn begin(&mut self, n: usize) {
        self.steps.rotate_right(1);
        if self.steps[0].len() < n * self.longest {
            self.steps[0].resize(n * self.longest, (f64::NAN, Estimate::default()));
        }
    }

    /// Stores the estimated acceptance of a draft token of the newest step: token `at` (from 0) of request `i`. `q` is
    /// the token's confidence.
    pub fn note(&mut self, i: usize, at: usize, q: f64, estimate: Estimate) {
        self.steps[0][i * self.longest + at] = (q, estimate);
    }

    /// The stored estimate of acceptance for a draft token with the confidence `q`, at position `at` (from 0) of
    /// request `i`; `None` if no stored token has this confidence at these indices. An estimate depends only on the
    /// confidence, the position and the curve from confidence to acceptance. So an estimate that was made for another
    /// request is right too.
    #[inline]
    pub fn find(&self, i: usize, at: usize, q: f64) -> Option<Estimate> {
        let place = i * self.longest + at;
        self.steps.iter().filter_map(|step| step.get(place)).find(|(of, _)| *of == q).map(|(_, estimate)| *estimate)
    }

    /// Removes all stored estimates, because the curve from confidence to acceptance has changed.
    pub fn forget(&mut self) {
        self.steps.iter_mut().for_each(|step| step.fill((f64::NAN, Estimate::default())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vllm::acceptance_estimator::AcceptanceEstimator;

    #[test]
    fn estimates_are_found_for_three_steps_and_only_for_their_own_confidence() {
        let curve = AcceptanceEstimator::new(2, 8);
        let mut memo = Memo::new(2);
        let found = |memo: &Memo, i, at, q| memo.find(i, at, q).map(Estimate::chance);
        for q in [0.7, 0.6, 0.5] {
            memo.begin(3);
            memo.note(1, 1, q, curve.estimate(q, 1));
        }
        for q in [0.7, 0.6, 0.5] {
            assert_eq!(found(&memo, 1, 1, q), Some(curve.predict(q, 1)));
        }
        assert_eq!([found(&memo, 1, 1, 0.4), found(&memo, 1, 0, 0.7), found(&memo, 5, 1, 0.7)], [None; 3]);
        memo.begin(3);
        memo.note(1, 1, 0.4, curve.estimate(0.4, 1));
        assert_eq!(found(&memo, 1, 1, 0.7), None, "the newest step has taken its place");
        memo.forget();
        assert_eq!(found(&memo, 1, 1, 0.4), None, "the curve has changed");
    }
}
