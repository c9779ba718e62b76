//! The scheduler's data about a request, from arrival to end.

use crate::time::Time;
use crate::workload::RequestId;

/// The part of a request that an engine serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// The prompt. The request ends with its first token, which no client gets, and keeps its KV blocks until they are
    /// released.
    Prompt,
    /// The output. The KV of the prompt comes from another engine.
    Output,
}

/// A request for whose prompt, computed by another engine, an engine has allocated KV blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Id of the request.
    pub id: RequestId,
    /// When the blocks were allocated.
    pub at: Time,
    /// Number of blocks whose KV must come from the other engine. The engine's prefix cache has the rest.
    pub blocks: u32,
}

/// A request in the waiting list, new or preempted.
#[derive(Clone, Copy, Debug)]
pub struct WaitingRequest {
    /// Id of the request.
    pub id: RequestId,
    /// Output tokens when the request was preempted, and those that a step in flight gave since; 0 for a new request.
    pub num_output_tokens: u32,
    /// Tokens that the draft had run over when the request was preempted; 0 for a new request.
    pub num_draft_computed_tokens: u32,
    /// Whether the request may still draft.
    pub may_draft: bool,
    /// Under priority scheduling the lowest number is served first.
    pub priority: i32,
    /// When the request arrived.
    pub arrival: Time,
    /// Whether the scheduler skipped the request since the request last ran. vLLM then does not count it among the
    /// waiting requests for which there was no room.
    pub passed_over: bool,
    /// Whether a step that began before the preemption still has output for the request.
    pub stale: bool,
    /// The part of the request that the engine serves.
    pub part: Part,
}

impl WaitingRequest {
    /// A request that has just arrived.
    pub fn new(id: RequestId, arrival: Time, priority: i32, part: Part) -> WaitingRequest {
        WaitingRequest {
            id,
            num_output_tokens: 0,
            num_draft_computed_tokens: 0,
            may_draft: true,
            priority,
            arrival,
            passed_over: false,
            stale: false,
            part,
        }
    }
}

/// A request in the running list.
///
/// One record a request: the update after a step touches nearly every field, so a list of records is faster here than a
/// column a field. Policies and executors scan columns (`InputBatch`).
#[derive(Clone, Debug)]
pub struct RunningRequest {
    /// Id of the request.
    pub id: RequestId,
    /// Tokens in the target's KV. Drafts of a step in flight count as accepted.
    pub num_computed_tokens: u32,
    /// Number of prompt and output tokens.
    pub num_tokens: u32,
    /// Number of output tokens.
    pub num_output_tokens: u32,
    /// Output tokens at which the request ends: the requested number, or what the model's length allows.
    pub max_tokens: u32,
    /// Requested number of output tokens.
    pub max_tokens_asked: u32,
    /// Tokens that the draft has run over.
    pub num_draft_computed_tokens: u32,
    /// Tokens scheduled in this step, drafts included; 0 if the step leaves the request out.
    pub num_scheduled_tokens: u32,
    /// Drafts that wait to be scheduled with the request's next token.
    pub num_spec_tokens: u32,
    /// Output tokens that steps in flight may give.
    pub num_output_placeholders: u32,
    /// The request's tokens in steps in flight.
    pub num_in_flight_tokens: u32,
    /// Tokens that are certain: other requests may find their full blocks in the prefix cache.
    pub num_cacheable_tokens: u32,
    /// Tokens for which the request's blocks have slots: a multiple of the block size.
    pub num_slots: u32,
    /// The index of the request's block tables in the KV cache manager.
    pub table: u32,
    /// Whether the prompt is being prefilled, or tokens are being recomputed.
    pub prefilling: bool,
    /// Whether the request may draft. Once false it stays false: there is no drafter, the drafter chose not to draft
    /// for the request, or the request missed tokens under `DraftGap::Permanent`.
    pub may_draft: bool,
    /// Whether the request ends with its prompt, whose KV another engine gets ([`Part::Prompt`]).
    pub hands_over: bool,
    /// Under priority scheduling the lowest number is served first.
    pub priority: i32,
    /// When the request arrived.
    pub arrival: Time,
    /// The request's TPOT limit, seconds; infinity for none.
    pub slo_tpot_s: f64,
}

impl RunningRequest {
    /// Whether the request samples in this step and goes on after the step, as far as the requested number of tokens
    /// says.
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
    /// The prompt is not shorter than `max_model_len` (in v0: longer than it).
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
