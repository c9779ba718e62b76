//! The prompts of the next step, which verifies the draft tokens of this one where drafts are made behind a step.

use foretoken_sim::BatchView;

/// The number of prompt tokens of a step is averaged over past steps. When a step is added, the weights of earlier
/// steps are multiplied by this factor.
const KEEP: f64 = 0.99;

/// Predicts the prompt tokens of the next step by averages over past steps. One average is for steps before which a
/// prompt was unfinished or waiting, and one for all other steps.
#[derive(Default)]
pub(crate) struct NextPrompts {
    /// True if a prompt was unfinished or waiting at the end of the last step, so that the next step will probably have
    /// prompt tokens.
    awaited: bool,
    /// Sums over past steps, in two entries: entry 0 for steps before which `awaited` was false, entry 1 for steps
    /// before which it was true. Each entry is (weight of all steps, weight of the steps with prompts, weighted sum of
    /// their prompt tokens).
    seen: [(f64, f64, f64); 2],
}

impl NextPrompts {
    /// Adds the prompt tokens of a step. Stores in `awaited` whether a prompt is unfinished or waits after the step.
    pub fn begin(&mut self, batch: &BatchView) {
        let (all, with, tokens) = &mut self.seen[usize::from(self.awaited)];
        let has = f64::from(u8::from(batch.prefill.tokens > 0));
        (*all, *with, *tokens) = (*all * KEEP + 1.0, *with * KEEP + has, *tokens * KEEP + batch.prefill.tokens as f64);
        self.awaited = batch.num_waiting > 0 || batch.num_running as usize > batch.len();
    }

    /// Predicts the prompts of the next step from past steps with the same value of `awaited`: (probability that the
    /// step has prompt tokens, mean number of prompt tokens of a step that has some).
    pub fn expected(&self) -> (f64, u64) {
        let (all, with, tokens) = self.seen[usize::from(self.awaited)];
        if with > 0.0 { (with / all, (tokens / with) as u64) } else { (0.0, 0) }
    }
}
