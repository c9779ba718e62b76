//! What the scheduler remembers while it decides a step, and the buffers that it reuses. No value outlives the step.

use super::rules::Rules;
use crate::engine::request::WaitingRequest;
use crate::workload::RequestId;

/// What the scheduler remembers of the current step, and its buffers.
#[derive(Debug, Default)]
pub(super) struct StepScratch {
    /// Tokens that may still be scheduled in this step. vLLM has two budgets, one for tokens and one for inputs. Both
    /// are charged with the drafter's extra slots, and the second is never the larger one.
    pub(super) token_budget: u32,
    /// Most tokens of a request's chunk in this step; 0 for no limit.
    pub(super) threshold: u32,
    /// Most drafts of a request in this step.
    pub(super) num_spec_tokens: u32,
    /// How many running requests, from the first, are known to decode in this step.
    pub(super) leading: usize,
    /// Whether a request that could use drafts was scheduled and then preempted. It counts as if it still ran.
    pub(super) drafts_needed: bool,
    /// The requests admitted in this step whose draft lacks KV of the prompt: for each the id, and the prompt tokens
    /// that the draft has and lacks.
    pub(super) drafts_behind: Vec<(RequestId, u32, u32)>,
    /// Waiting requests that were passed over in this step; empty between steps.
    pub(super) aside: Vec<WaitingRequest>,
    /// Index of each request in the running list, by id. Valid only if the list has the request there, because requests
    /// move while a step is in flight.
    pub(super) place: Vec<u32>,
}

impl StepScratch {
    /// Begins a step in which a request gets at most `num_spec_tokens` drafts.
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
