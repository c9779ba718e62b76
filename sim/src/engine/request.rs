//! The scheduler's data about a request, from arrival to end.

use crate::time::Time;
use crate::workload::RequestId;

/// A request in the waiting list, new or preempted.
#[derive(Clone, Copy, Debug)]
pub struct WaitingRequest {
    /// Id of the request.
    pub id: RequestId,
    /// Output tokens at its preemption; 0 for a new request.
    pub num_output_tokens: u32,
    /// Tokens that the draft had run over.
    pub num_draft_computed_tokens: u32,
    /// Whether it may still draft.
    pub may_draft: bool,
    /// Under priority scheduling the lowest number is served first.
    pub priority: i32,
    /// When it arrived.
    pub arrival: Time,
    /// Whether the scheduler passed it over since it last ran. vLLM then does not count it among the waiting requests
    /// for which there was no room.
    pub passed_over: bool,
    /// Whether a step that began before its preemption still has output for it.
    pub stale: bool,
}

impl WaitingRequest {
    /// A request that has just arrived.
    pub fn new(id: RequestId, arrival: Time, priority: i32) -> WaitingRequest {
        WaitingRequest {
            id,
            num_output_tokens: 0,
            num_draft_computed_tokens: 0,
            may_draft: true,
            priority,
            arrival,
            passed_over: false,
            stale: false,
        }
    }
}

/// A request in the running list.
///
/// One record a request: the update after a step touches nearly every field, so a list of records is faster here than a
/// column a field. Policies and executors scan columns
/// ([`InputBatch`](super::input_batch::InputBatch)).
#[derive(Clone, Debug)]
pub struct RunningRequest {
    /// Id of the request.
    pub id: RequestId,
    /// Tokens in the target's KV. With a step in flight, all its drafts are assumed to hold.
    pub num_computed_tokens: u32,
    /// Number of prompt and output tokens.
    pub num_tokens: u32,
    /// Number of output tokens.
    pub num_output_tokens: u32,
    /// Output tokens at which it ends: the requested number, or what the model's length allows.
    pub max_tokens: u32,
    /// Requested number of output tokens.
    pub max_tokens_asked: u32,
    /// Tokens that the draft has run over.
    pub num_draft_computed_tokens: u32,
    /// Tokens scheduled in this step, drafts included; 0 if left out.
    pub num_scheduled_tokens: u32,
    /// Drafts that wait to be scheduled with its next token.
    pub num_spec_tokens: u32,
    /// Output tokens that steps in flight may give.
    pub num_output_placeholders: u32,
    /// Its tokens in steps in flight.
    pub num_in_flight_tokens: u32,
    /// Confirmed tokens: their full blocks may be hit by others.
    pub num_cacheable_tokens: u32,
    /// Tokens for which its blocks have slots: a multiple of the block size.
    pub num_slots: u32,
    /// The slot of its block tables in the KV cache manager.
    pub table: u32,
    /// Whether its prompt is being prefilled, or tokens are being recomputed.
    pub prefilling: bool,
    /// Whether it may draft. False for good after a permanent gap.
    pub may_draft: bool,
    /// Under priority scheduling the lowest number is served first.
    pub priority: i32,
    /// When it arrived.
    pub arrival: Time,
    /// Its TPOT limit, seconds; infinity for none.
    pub slo_tpot_s: f64,
}

impl RunningRequest {
    /// Whether it samples in this step and does not end with it.
    pub fn can_use_drafts(&self) -> bool {
        let end = self.num_computed_tokens + self.num_scheduled_tokens;
        // A step in flight that samples adds one token for sure.
        let outputs = self.num_output_tokens + 1 + u32::from(self.num_output_placeholders > 0);
        self.num_scheduled_tokens > 0 && end >= self.num_tokens && outputs < self.max_tokens_asked
    }
}

/// Why a request can never run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectReason {
    /// The prompt is not shorter than `max_model_len`.
    PromptOverModelLen,
    /// The prompt may not be split, and is longer than the token budget of a step.
    PromptOverBudget,
    /// The prompt is longer than the KV pool.
    PromptOverPool,
    /// The prompt is longer than the draft's own KV pool.
    PromptOverDraftPool,
    /// No step can begin the rest of the request: token budget and drafts do not fit together.
    NoStepFits,
    /// Prompt and output became larger than the KV pool.
    OutgrewPool,
    /// Prompt and output became larger than the draft's own KV pool.
    OutgrewDraftPool,
}
