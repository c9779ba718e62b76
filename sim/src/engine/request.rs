//! The scheduler's data about a request, from arrival to end.

use crate::time::Time;
use crate::workload::{RequestId, Workload};

/// The part of a request that an engine serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The engine computes the request's prompt and its output.
    #[default]
    Whole,
    /// The engine computes only the prompt. The request ends with its first token, which is not sent to the client. The
    /// request keeps its KV blocks until the blocks are released.
    Prompt,
    /// The engine computes only the output. The KV of the prompt comes from another engine.
    Output,
}

/// A request that has KV blocks on this engine for a prompt that another engine computes (`WAITING_FOR_REMOTE_KVS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Id of the request.
    pub id: RequestId,
    /// When this engine allocated the blocks.
    pub at: Time,
    /// Number of blocks whose KV must come from the other engine. The other blocks of the prompt are in this engine's
    /// prefix cache.
    pub blocks: u32,
}

/// A request in the waiting list, new or preempted.
#[derive(Clone, Copy, Debug)]
pub struct WaitingRequest {
    /// Id of the request.
    pub id: RequestId,
    /// Number of the request: how many requests came before it ([`Workload::number`]).
    pub number: RequestId,
    /// Number of output tokens so far, including tokens that a step in flight gave after the preemption. 0 for a new
    /// request.
    pub num_output_tokens: u32,
    /// Number of tokens that the draft model had processed when the request was preempted; 0 for a new request.
    pub num_draft_computed_tokens: u32,
    /// Whether draft tokens may be made for the request when it runs again.
    pub may_draft: bool,
    /// Priority of the request. Under priority scheduling the request with the lowest number is admitted first.
    pub priority: i32,
    /// When the request arrived.
    pub arrival: Time,
    /// Whether the scheduler has passed over this request (skipped it in a step) since the request last ran. vLLM does
    /// not count such a request among the waiting requests for which there was no room.
    pub passed_over: bool,
    /// Whether the request was preempted while a step was in flight that still has output for it.
    pub stale: bool,
    /// The part of the request that the engine serves: prompt and output, only the prompt, or only the output.
    pub part: Part,
}

impl WaitingRequest {
    /// The request `id` of a workload, which has just arrived.
    pub fn new(workload: &Workload, id: RequestId, arrival: Time, part: Part) -> WaitingRequest {
        WaitingRequest {
            id,
            number: workload.number(id),
            num_output_tokens: 0,
            num_draft_computed_tokens: 0,
            may_draft: true,
            priority: workload.priority.get(id as usize).copied().unwrap_or(0),
            arrival,
            passed_over: false,
            stale: false,
            part,
        }
    }
}

/// A request in the running list.
///
/// Each request is one record, because the update after a step touches nearly every field; a column for each field
/// would be slower. Policies and executors read columns (`InputBatch`).
#[derive(Clone, Debug)]
pub struct RunningRequest {
    /// Id of the request.
    pub id: RequestId,
    /// Number of the request's tokens in the target's KV. Draft tokens that a step in flight verifies count as
    /// accepted.
    pub num_computed_tokens: u32,
    /// Number of the request's prompt and output tokens so far.
    pub num_tokens: u32,
    /// Number of the request's output tokens so far.
    pub num_output_tokens: u32,
    /// Number of tokens that are certain (not draft tokens). Other requests may find the full blocks of these tokens in
    /// the prefix cache.
    pub num_cacheable_tokens: u32,
    /// Number of output tokens at which the request ends: the requested number, or fewer if `max_model_len` is reached
    /// before.
    pub max_tokens: u32,
    /// Requested number of output tokens.
    pub max_tokens_asked: u32,
    /// Number of the request's tokens that the draft model has processed.
    pub num_draft_computed_tokens: u32,
    /// Number of tokens that are scheduled in this step, draft tokens included; 0 if the step leaves the request out.
    pub num_scheduled_tokens: u32,
    /// Number of draft tokens that the request holds, and that are scheduled together with its next token.
    pub num_spec_tokens: u32,
    /// Number of output tokens that steps in flight may give, if all draft tokens are accepted.
    pub num_output_placeholders: u32,
    /// Number of the request's tokens that steps in flight compute.
    pub num_in_flight_tokens: u32,
    /// Number of tokens for which the request's blocks have KV slots: a multiple of the block size.
    pub num_slots: u32,
    /// The index of the request's block tables in the KV cache manager.
    pub table: u32,
    /// Whether the request is in prefill, or recomputes tokens after a preemption.
    pub prefilling: bool,
    /// Whether draft tokens may be made for the request. Once false it stays false. It is false if there is no drafter,
    /// if the drafter chose not to draft for the request, or if the draft model missed tokens of the request under
    /// `DraftGap::Permanent`.
    pub may_draft: bool,
    /// Whether the request ends with its prompt and hands its KV to another engine ([`Part::Prompt`]).
    pub hands_over: bool,
    /// Priority of the request. Under priority scheduling the request with the highest number is preempted first.
    pub priority: i32,
    /// When the request arrived.
    pub arrival: Time,
    /// The request's TPOT limit, seconds; infinity for none.
    pub slo_tpot_s: f64,
}

impl RunningRequest {
    /// Whether draft tokens that are made for this request at the end of this step can be of use. Two conditions must
    /// hold. The request samples a token in this step. And if this step and the step in flight give it one token each,
    /// it still has fewer output tokens than requested.
    pub fn can_use_drafts(&self) -> bool {
        let end = self.num_computed_tokens + self.num_scheduled_tokens;
        // A step in flight that samples gives the request at least one token.
        let outputs = self.num_output_tokens + 1 + u32::from(self.num_output_placeholders > 0);
        self.num_scheduled_tokens > 0 && end >= self.num_tokens && outputs < self.max_tokens_asked
    }
}

/// Why a request does not run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectReason {
    /// The prompt has `max_model_len` tokens or more; in v0 more than `max_model_len` tokens.
    PromptOverModelLen,
    /// The prompt may not be split, and is longer than the token budget of a step.
    PromptOverBudget,
    /// The prompt is longer than the KV pool.
    PromptOverPool,
    /// The prompt is longer than the draft model's own KV pool.
    PromptOverDraftPool,
    /// No step can begin the request: it has one token left to compute and gets padding tokens in place of draft
    /// tokens, and the padding does not fit into the token budget of a step.
    NoStepFits,
    /// As many requests waited as may wait.
    QueueFull,
    /// Prompt and output became larger than the KV pool.
    OutgrewPool,
    /// Prompt and output became larger than the draft model's own KV pool.
    OutgrewDraftPool,
}
