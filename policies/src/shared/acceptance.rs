//! Estimators of the acceptance rate of draft tokens from the outcomes of past steps, which a server sees too.
//! `OwnRates` is the exception: it holds true acceptance rates, which a policy has only inside the wrapper
//! `true-rates`, which gives a policy the truth.

use crate::definition::PolicyContext;
use foretoken_sim::{RequestId, StepOutcome};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// Expected tokens of a request in a step with `k` draft tokens, the bonus token included. `a` is the probability that
/// a draft token is accepted if all before it are. The formula is E(a, k) = 1 + a + … + a^k (Leviathan et al. 2023, Eq.
/// 1). It is summed, because the closed form loses digits near a = 1.
pub fn expected_tokens(a: f64, k: u32) -> f64 {
    (0..=k).map(|j| a.powi(j as i32)).sum()
}

/// Which draft tokens count in the denominator of a step's acceptance rate (docs/model.md 14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Rate {
    /// A request's draft tokens up to and including the first rejected one. This estimates the probability that a draft
    /// token is right if all before it are, which the goodput formula needs.
    #[default]
    Attempts,
    /// Every verified draft token (docs/model.md 0.2). This estimate of the probability is too low, because draft
    /// tokens after a rejection cannot be accepted.
    PerDraft,
}

impl Rate {
    /// The acceptance rate of one step: accepted draft tokens divided by the draft tokens that count by this rule, over
    /// all requests. `None` if nothing was verified.
    pub fn of(self, outcome: &StepOutcome) -> Option<f64> {
        let (mut accepted, mut tries) = (0u64, 0u64);
        for (&a, &v) in outcome.accepted.iter().zip(outcome.verified) {
            accepted += u64::from(a);
            tries += u64::from(self.tries(a, v));
        }
        (tries > 0).then(|| accepted as f64 / tries as f64)
    }

    /// The number of draft tokens of one request that count in the denominator of the acceptance rate, if `accepted` of
    /// `verified` draft tokens were accepted.
    pub(crate) fn tries(self, accepted: u32, verified: u32) -> u32 {
        match self {
            Rate::Attempts => verified.min(accepted + 1),
            Rate::PerDraft => verified,
        }
    }
}

/// The true acceptance rate of each request, indexed by request id. Only the wrapper `true-rates`, which gives a policy
/// the simulator's true rates, sets it; otherwise it is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnRates(Option<Arc<[f64]>>);

impl OwnRates {
    /// The true acceptance rates that `context` gives to the policy; none unless the wrapper `true-rates` set them.
    pub(crate) fn of(context: &PolicyContext) -> OwnRates {
        OwnRates(context.own_rates.cloned())
    }

    /// The true acceptance rate of request `id`; `None` if the policy is not given true rates.
    pub(crate) fn rate(&self, id: RequestId) -> Option<f64> {
        self.0.as_ref().and_then(|rates| rates.get(id as usize)).copied()
    }

    /// The mean true acceptance rate of the requests `ids`; `None` if the policy is not given true rates, or if the
    /// batch is empty.
    pub(crate) fn mean(&self, ids: &[RequestId]) -> Option<f64> {
        let rates = self.0.as_ref().filter(|_| !ids.is_empty())?;
        Some(ids.iter().filter_map(|&id| rates.get(id as usize)).sum::<f64>() / ids.len() as f64)
    }
}

/// The mean of a quantity (such as an acceptance rate) over all past steps or over the last few steps; a given value
/// before the first step.
#[derive(Clone, Debug)]
pub(crate) struct RunningMean {
    value: f64,
    sum: f64,
    count: u64,
    /// Number of newest steps over which the mean is taken. `None`: all steps, of which only the sums are stored.
    window: Option<usize>,
    steps: VecDeque<(f64, u64)>,
}

impl RunningMean {
    /// Creates a mean without values, which is `start` until the first value is added. Later it is the mean of all
    /// values of the last `window` steps that had values, or of all steps if `window` is `None`.
    pub(crate) fn new(start: f64, window: Option<u32>) -> RunningMean {
        let window = window.map(|w| w as usize);
        let steps = VecDeque::with_capacity(window.map_or(0, |w| w + 1));
        RunningMean { value: start, sum: 0.0, count: 0, window, steps }
    }

    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    /// Adds the values of one step to the mean: `count` values with the sum `sum`. A step without values is ignored.
    pub(crate) fn add_step(&mut self, sum: f64, count: u64) {
        if count == 0 {
            return;
        }
        match self.window {
            None => {
                self.sum += sum;
                self.count += count;
            }
            Some(window) => {
                self.steps.push_back((sum, count));
                if self.steps.len() > window {
                    self.steps.pop_front();
                }
                // The sums are computed afresh over the window. A running sum from which the oldest step is subtracted
                // would keep that step's rounding error for ever.
                self.sum = self.steps.iter().map(|s| s.0).sum();
                self.count = self.steps.iter().map(|s| s.1).sum();
            }
        }
        self.value = self.sum / self.count as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;
    use foretoken_sim::Drafts;

    #[test]
    fn leviathan_equation_1() {
        assert!((expected_tokens(0.7, 3) - 2.533).abs() < 1e-12);
        assert!((expected_tokens(0.8, 7) - 4.161_139_2).abs() < 1e-12);
        assert_eq!(expected_tokens(1.0, 5), 6.0);
        for k in 0..9 {
            assert_eq!(expected_tokens(0.0, k), 1.0);
        }
    }

    #[test]
    fn attempts_end_at_the_first_rejection() {
        let drafts = Drafts::default();
        // Four requests with accepted of verified draft tokens: 2 of 4 (three tries), 3 of 3 (three tries), 0 of 2 (one
        // try), and nothing verified. Tries are the draft tokens up to and including the first rejected one.
        let step = outcome(&drafts, &[4, 3, 2, 0], &[2, 3, 0, 0]);
        assert_eq!(Rate::Attempts.of(&step), Some(5.0 / 7.0));
        assert_eq!(Rate::PerDraft.of(&step), Some(5.0 / 9.0));
        assert_eq!(Rate::Attempts.of(&outcome(&drafts, &[0, 0], &[0, 0])), None);
    }

    #[test]
    fn a_window_forgets_and_empty_steps_do_not_count() {
        let mut all = RunningMean::new(0.6, None);
        let mut two = RunningMean::new(0.6, Some(2));
        assert_eq!((all.value(), two.value()), (0.6, 0.6));
        for (sum, count) in [(1.0, 2), (0.0, 0), (3.0, 4), (0.2, 1)] {
            all.add_step(sum, count);
            two.add_step(sum, count);
        }
        assert!((all.value() - 4.2 / 7.0).abs() < 1e-15);
        assert!((two.value() - 3.2 / 5.0).abs() < 1e-15);
    }
}
