//! What the bandits share: their arms, which are draft lengths, and their reward, tokens per second of a step.

use crate::definition::{BadParameter, Check};
use foretoken_sim::{BatchView, MAX_SPEC_LEN, StepOutcome};

/// Tokens emitted per second of a step, bonus tokens included; `None` without decode requests or time.
pub(crate) fn tokens_per_s(outcome: &StepOutcome) -> Option<f64> {
    let seconds = (outcome.draft_time + outcome.verify_time).as_s();
    let tokens: u64 = outcome.accepted.iter().map(|&a| u64::from(a) + 1).sum();
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}

/// The length a step ran: its longest draft, which is shorter than the arm where limits were in the way.
pub(crate) fn played(outcome: &StepOutcome) -> u32 {
    outcome.drafted.iter().copied().max().unwrap_or(0)
}

/// May any request draft now?
pub(crate) fn has_room(batch: &BatchView) -> bool {
    batch.limit.iter().any(|&l| l > 0)
}

/// Arms in rising order, each once, cut to the engine's longest draft.
pub(crate) fn cut(arms: &[u32], max_draft_len: u32) -> Vec<u32> {
    let mut arms: Vec<u32> = arms.iter().map(|&a| a.min(max_draft_len)).collect();
    arms.sort_unstable();
    arms.dedup();
    arms
}

/// Refuses anything but two or more different draft lengths; 0 may be one of them.
pub(crate) fn check_arms(check: &Check, arms: &[u32]) -> Result<(), BadParameter> {
    check.that("arms", cut(arms, u32::MAX).len() >= 2 && arms.iter().all(|&a| a <= MAX_SPEC_LEN), || {
        format!("{arms:?} are not two or more different draft lengths from 0 to {MAX_SPEC_LEN}")
    })
}

/// A running mean.
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
