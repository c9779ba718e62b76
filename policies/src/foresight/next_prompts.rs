//! The prompts of the next step, which verifies the draft tokens of this one where drafts are made behind a step.

use foretoken_sim::BatchView;

/// The number of prompt tokens of a step is averaged over past steps. When a step is added, the weights of earlier
/// steps are multiplied by this factor.
const KEEP: f64 = 0.99;

/// A step counts as full if its prompts, decode requests and draft tokens are this share of the token budget.
const FULL: f64 = 0.8;

/// Predicts the prompt tokens of the next step by averages over past steps. One average is for steps before which a
/// prompt was unfinished or waiting, and one for all other steps.
#[derive(Default)]
pub(crate) struct NextPrompts {
    /// True if a prompt was unfinished or waiting at the end of the last step, so that the next step will probably have
    /// prompt tokens.
    awaited: bool,
    /// Sums over past steps, in two entries: entry 0 for steps before which `awaited` was false, entry 1 for steps
    /// before which it was true.
    seen: [Seen; 2],
}

/// Past steps, where newer ones weigh more.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Weight of all steps, of the steps with prompts, and of the steps that prompts filled.
    all: f64,
    with: f64,
    full: f64,
    /// Weighted sum of their prompt tokens.
    tokens: f64,
}

/// What is expected of the next step.
#[derive(Clone, Copy, Default)]
pub(crate) struct Expected {
    /// Probability that it has prompts, and that they fill it.
    pub with: f64,
    pub full: f64,
    /// Mean number of prompt tokens of a step that has some.
    pub tokens: u64,
}

impl NextPrompts {
    /// Adds the prompt tokens of a step, which may have `budget` tokens and is charged `charged` draft tokens for each
    /// decode request. Stores in `awaited` whether a prompt is unfinished or waits after the step.
    pub fn begin(&mut self, batch: &BatchView, budget: u64, charged: u64) {
        let prompts = batch.prefill.tokens;
        let full = prompts > 0 && (prompts + batch.len() as u64 * (1 + charged)) as f64 >= FULL * budget as f64;
        let seen = &mut self.seen[usize::from(self.awaited)];
        let add = |known: &mut f64, now: f64| *known = *known * KEEP + now;
        add(&mut seen.all, 1.0);
        add(&mut seen.with, f64::from(u8::from(prompts > 0)));
        add(&mut seen.full, f64::from(u8::from(full)));
        add(&mut seen.tokens, prompts as f64);
        self.awaited = batch.num_waiting > 0 || batch.num_running as usize > batch.len();
    }

    /// Predicts the prompts of the next step from past steps with the same value of `awaited`.
    pub fn expected(&self) -> Expected {
        let Seen { all, with, full, tokens } = self.seen[usize::from(self.awaited)];
        match with > 0.0 {
            true => Expected { with: with / all, full: full / all, tokens: (tokens / with) as u64 },
            false => Expected::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Batch;

    /// 16 requests decode with 4 draft tokens each beside 1,600 prompt tokens: the draft tokens fill the step, so that
    /// a further one would take the place of a prompt token.
    #[test]
    fn draft_tokens_fill_a_step_too() {
        let batch = Batch::new(&[100; 16], &[8; 16]);
        let prefill = foretoken_sim::ChunkTotals { chunks: 2, tokens: 1600, context: 0, pairs: 0 };
        let view = BatchView { prefill, num_running: 18, num_waiting: 3, ..batch.view() };
        for (charged, full) in [(0, 0.0), (4, 1.0)] {
            let mut prompts = NextPrompts::default();
            (0..5).for_each(|_| prompts.begin(&view, 2048, charged));
            let expected = prompts.expected();
            assert_eq!((expected.with, expected.full, expected.tokens), (1.0, full, 1600));
        }
    }
}
