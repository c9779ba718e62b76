//! What the curve from confidence to chance made of the tokens of the last steps. The policy needs it when it drafts a
//! token, and again when it learns from the token's outcome.

use crate::vllm::acceptance_estimator::Estimate;

/// Number of steps whose tokens are kept: an engine that is two steps ahead of its outcomes learns from the third step
/// back.
const STEPS: usize = 3;

/// Tokens with their confidences and the estimates from them, `longest` tokens a request. A confidence of NaN marks a
/// place without a token.
type Tokens = Vec<(f64, Estimate)>;

/// The estimates for the tokens of the last [`STEPS`] steps. Places that a step does not use keep older tokens.
#[derive(Debug)]
pub(crate) struct Memo {
    longest: usize,
    /// The newest step is the first.
    steps: [Tokens; STEPS],
}

impl Memo {
    /// A memo for drafts of at most `longest` tokens.
    pub fn new(longest: u32) -> Memo {
        Memo { longest: longest as usize, steps: Default::default() }
    }

    /// Begins a step of `n` requests, whose tokens take the places of the oldest step.
    pub fn begin(&mut self, n: usize) {
        self.steps.rotate_right(1);
        if self.steps[0].len() < n * self.longest {
            self.steps[0].resize(n * self.longest, (f64::NAN, Estimate::default()));
        }
    }

    /// Keeps the estimate of token `at` (from 0) of request `i` of the newest step. `q` is the token's confidence.
    pub fn note(&mut self, i: usize, at: usize, q: f64, estimate: Estimate) {
        self.steps[0][i * self.longest + at] = (q, estimate);
    }

    /// The estimate of a token with the confidence `q`; `None` if no kept token with this confidence has the same place
    /// (request index `i`, position `at` from 0). An estimate depends on nothing but the confidence, the position and
    /// the curve, so it is the right one, whatever request it was made for.
    #[inline]
    pub fn find(&self, i: usize, at: usize, q: f64) -> Option<Estimate> {
        let place = i * self.longest + at;
        self.steps.iter().filter_map(|step| step.get(place)).find(|(of, _)| *of == q).map(|(_, estimate)| *estimate)
    }

    /// Forgets all estimates, because the curve has changed.
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
