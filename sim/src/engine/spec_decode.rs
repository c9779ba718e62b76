//! What a step drafts, what of it is verified and what was accepted: lent to the drafter and to the executor in turn.

use crate::drafts::Drafts;
use crate::policy::{BatchView, DraftPlan, StepOutcome};
use crate::time::Time;

/// The speculation of a step. Without a drafter it stays empty. Buffers are reused from step to step.
#[derive(Debug, Default)]
pub struct SpecDecode {
    /// What is proposed.
    pub plan: DraftPlan,
    /// What was drafted.
    pub drafts: Drafts,
    /// Accepted draft tokens of each decode request.
    pub accepted: Vec<u32>,
    /// Draft forwards run.
    pub passes: u32,
    /// Does one forward bring all draft tokens of a round?
    pub in_parallel: bool,
}

impl SpecDecode {
    /// Begins a step of `n` decode requests with at most `max_draft_len` drafts each.
    #[inline]
    pub fn reset(&mut self, n: usize, max_draft_len: u32) {
        self.drafts.reset(n, max_draft_len);
        self.plan.reset(n);
        self.accepted.resize(n, 0);
    }

    /// Tokens drafted, verified and accepted of the `i`-th decode request; of a tree all count, whatever path they are on.
    #[inline]
    pub fn of(&self, i: usize) -> (u32, u32, u32) {
        if i >= self.drafts.verify_len.len() {
            // Nobody drafts.
            return (0, 0, 0);
        }
        let (drafted, verified) = self.drafts.tokens(i);
        (drafted, verified, self.accepted[i])
    }

    /// Ends drafting: `in_parallel` says whether one forward brought all tokens.
    #[inline]
    pub fn drafted(&mut self, in_parallel: bool) {
        self.in_parallel = in_parallel;
        self.passes = if in_parallel { self.drafts.passes.min(1) } else { self.drafts.passes };
    }

    /// The step as the policy learns of it.
    #[inline]
    pub fn outcome<'a>(&'a self, batch: &BatchView<'a>, draft_time: Time, verify_time: Time) -> StepOutcome<'a> {
        StepOutcome {
            ids: batch.ids,
            drafted: &self.drafts.draft_len,
            verified: &self.drafts.verify_len,
            accepted: &self.accepted,
            drafts: &self.drafts,
            draft_time,
            verify_time,
        }
    }
}
