//! Shared by the bandit policies: arms (draft lengths to choose from), the reward of a step (its tokens per second),
//! and a running mean.

use crate::definition::{BadParameter, Check};
use foretoken_sim::{BatchView, MAX_SPEC_LEN, StepOutcome};

/// A step's tokens per second: its accepted draft tokens (also those beyond an output's end) and one bonus token for
/// each request, divided by the step's draft and verify time. `None` if the step had no decode requests or took no
/// time.
pub(crate) fn tokens_per_s(outcome: &StepOutcome) -> Option<f64> {
    let seconds = (outcome.draft_time + outcome.verify_time).as_s();
    let tokens: u64 = outcome.accepted.iter().map(|&a| u64::from(a) + 1).sum();
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}

/// The draft length that the step ran: the greatest number of draft tokens that a request had, 0 if none had any. It is
/// less than the length that the bandit chose if all requests have lower limits.
pub(crate) fn played(outcome: &StepOutcome) -> u32 {
    outcome.drafted.iter().copied().max().unwrap_or(0)
}

/// True if at least one request of the batch may draft in this step.
pub(crate) fn has_room(batch: &BatchView) -> bool {
    batch.limit.iter().any(|&l| l > 0)
}

/// The draft lengths that a bandit may choose (its arms), in rising order and without duplicates. A length above
/// `max_draft_len` becomes `max_draft_len`.
pub(crate) fn cut(arms: &[u32], max_draft_len: u32) -> Vec<u32> {
    let mut arms: Vec<u32> = arms.iter().map(|&a| a.min(max_draft_len)).collect();
    arms.sort_unstable();
    arms.dedup();
    arms
}

/// Checks that `arms` has at least two different draft lengths, and all are from 0 to [`MAX_SPEC_LEN`].
pub(crate) fn check_arms(check: &Check, arms: &[u32]) -> Result<(), BadParameter> {
    check.that("arms", cut(arms, u32::MAX).len() >= 2 && arms.iter().all(|&a| a <= MAX_SPEC_LEN), || {
        format!("{arms:?} are not two or more different draft lengths from 0 to {MAX_SPEC_LEN}")
    })
}

/// The mean of the values added so far (such as a draft length's tokens per second), and their number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mean {
    pub count: u64,
    pub value: f64,
}

impl Mean {
    pub fn add(&mut self, x: f64) {
        self.count += 1;
        self.value += (x - self.value) / self.count as f64;
    }
}
