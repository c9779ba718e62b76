//! The remaining token budget, the limits and the reused buffers with which the scheduler decides a step. Their
//! contents are not valid after the step.

use super::rules::Rules;
use crate::engine::request::WaitingRequest;
use crate::workload::RequestId;

/// The remaining token budget, the limits on prompt and draft tokens, and the buffers that the scheduler uses during
/// one step.
#[derive(Debug, Default)]
pub(super) struct StepScratch {
    /// Number of tokens that may still be scheduled in this step. vLLM has two budgets, one for tokens and one for the
    /// inputs of a pass. The drafter's extra slots are taken from both, and the budget for inputs is never the larger
    /// one, so one number is enough.
    pub(super) token_budget: u32,
    /// Most prompt tokens of a request in this step; 0 for no limit.
    pub(super) threshold: u32,
    /// Most draft tokens of a request in this step.
    pub(super) num_spec_tokens: u32,
    /// Number of requests at the front of the running list that are known to be decode requests in this step.
    pub(super) leading: usize,
    /// Whether a request that could use draft tokens was scheduled in this step and then preempted. If so, the step
    /// does not skip its drafting, just as if the request still ran.
    pub(super) drafts_needed: bool,
    /// Requests that were admitted in this step and for whose prompt the draft model lacks KV: (id, prompt tokens in
    /// the draft model's KV, prompt tokens missing there).
    pub(super) drafts_behind: Vec<(RequestId, u32, u32)>,
    /// Waiting requests that the scheduler passed over in this step. Empty between steps.
    pub(super) aside: Vec<WaitingRequest>,
    /// Index of each request in the running list, by request id. Requests move while a step is in flight, so an index
    /// is valid only if the list still has the request there.
    pub(super) place: Vec<u32>,
    /// Number of accepted draft tokens by request id, for SGLang's scheduler.
    pub(super) accepted: Vec<u32>,
}

impl StepScratch {
    /// Begins a step in which a request gets at most `num_spec_tokens` draft tokens.
    #[inline]
    pub(super) fn begin(&mut self, rules: &Rules, num_spec_tokens: u32) {
        self.token_budget = rules.max_num_batched_tokens;
        self.threshold = 0;
        self.num_spec_tokens = num_spec_tokens;
        self.leading = 0;
        self.drafts_needed = false;
        self.drafts_behind.clear();
    }
}
