//! The draft tokens of a step, which of them are verified, and how many are accepted. The drafter and the executor fill
//! in these values in turn.

use crate::drafts::Drafts;
use crate::policy::{DraftPlan, StepOutcome};
use crate::time::Time;
use crate::workload::RequestId;

/// The draft tokens of a step and their results; empty without a drafter. Buffers are reused from step to step.
#[derive(Debug, Default)]
pub struct SpecDecode {
    /// Whether the draft tokens form chains (one guess for each position) or trees, and the draft length that the
    /// policy planned for each request.
    pub plan: DraftPlan,
    /// The draft tokens of each request: their number, confidences and trees.
    pub drafts: Drafts,
    /// Number of accepted draft tokens of each decode request.
    pub accepted: Vec<u32>,
    /// Number of draft passes of the step.
    pub passes: u32,
    /// Whether one draft pass gives all draft tokens of a request.
    pub in_parallel: bool,
}

impl SpecDecode {
    /// Begins a step of `n` decode requests with at most `max_draft_len` draft tokens each.
    #[inline]
    pub fn reset(&mut self, n: usize, max_draft_len: u32) {
        self.drafts.reset(n, max_draft_len);
        self.plan.reset(n);
        self.accepted.resize(n, 0);
    }

    /// Numbers of drafted, verified and accepted tokens of the `i`-th decode request; 0 without a drafter. For a draft
    /// tree: all drafted nodes, all verified nodes, and the nodes of the accepted path.
    #[inline]
    pub fn of(&self, i: usize) -> (u32, u32, u32) {
        if i >= self.drafts.verify_len.len() {
            // Without a drafter no request has draft tokens.
            return (0, 0, 0);
        }
        let (drafted, verified) = self.drafts.tokens(i);
        (drafted, verified, self.accepted[i])
    }

    /// Ends the drafting of a step: stores the number of draft passes. The number is at most 1 if `in_parallel` is
    /// true, that is, if one pass gives all draft tokens of a request.
    #[inline]
    pub fn drafted(&mut self, in_parallel: bool) {
        self.in_parallel = in_parallel;
        self.passes = if in_parallel { self.drafts.passes.min(1) } else { self.drafts.passes };
    }

    /// The outcome of the step for its decode requests `ids`, as policies see it.
    #[inline]
    pub fn outcome<'a>(&'a self, ids: &'a [RequestId], draft_time: Time, verify_time: Time) -> StepOutcome<'a> {
        StepOutcome {
            ids,
            drafted: &self.drafts.draft_len,
            verified: &self.drafts.verify_len,
            accepted: &self.accepted,
            drafts: &self.drafts,
            draft_time,
            verify_time,
        }
    }
}
