//! What the scheduler remembers of a request, from its arrival to its end.

use crate::time::Time;
use crate::workload::RequestId;

/// A request in the waiting list: a new one, or one that was preempted.
#[derive(Clone, Copy, Debug)]
pub struct WaitingRequest {
    /// Which request.
    pub id: RequestId,
    /// Output tokens it had when it was preempted; 0 for a new one.
    pub num_output_tokens: u32,
    /// When it last emitted; `Time::MAX` when never.
    pub last_emit: Time,
    /// Tokens the draft had run over.
    pub num_draft_computed_tokens: u32,
    /// May it still draft?
    pub may_draft: bool,
    /// The least is served first, where that is the policy.
    pub priority: i32,
    /// When it arrived.
    pub arrival: Time,
    /// Was it passed over since it last ran? vLLM then does not count it among those that no room was found for.
    pub passed_over: bool,
    /// Is output of it still to come from a step that began before it was preempted?
    pub stale: bool,
    /// What such output did.
    pub done: SpecCounts,
}

impl WaitingRequest {
    /// A request that has just arrived.
    pub fn new(id: RequestId, arrival: Time, priority: i32) -> WaitingRequest {
        WaitingRequest {
            id,
            num_output_tokens: 0,
            last_emit: Time::MAX,
            num_draft_computed_tokens: 0,
            may_draft: true,
            priority,
            arrival,
            passed_over: false,
            stale: false,
            done: SpecCounts::default(),
        }
    }
}

/// A request in the running list.
///
/// One record of two cache lines a request: the update after a step touches nearly every field of it, so a list of
/// records beats a column a field here; what policies and executors scan is in columns ([`InputBatch`](super::input_batch::InputBatch)).
#[derive(Clone, Debug)]
pub struct RunningRequest {
    /// Which request.
    pub id: RequestId,
    /// Tokens in the target's KV. Behind a step in flight: if all its drafts hold.
    pub num_computed_tokens: u32,
    /// Prompt and output tokens.
    pub num_tokens: u32,
    /// Output tokens.
    pub num_output_tokens: u32,
    /// Output tokens at which it ends: what was asked for, or what the model's length allows.
    pub max_tokens: u32,
    /// Output tokens asked for.
    pub max_tokens_asked: u32,
    /// Tokens the draft has run over.
    pub num_draft_computed_tokens: u32,
    /// Tokens scheduled in this step, drafts included; 0 when left out.
    pub num_scheduled_tokens: u32,
    /// Drafts it holds, to be scheduled with its next token.
    pub num_spec_tokens: u32,
    /// Output tokens that steps in flight may bring.
    pub num_output_placeholders: u32,
    /// Tokens of it in steps in flight.
    pub num_in_flight_tokens: u32,
    /// Tokens whose full blocks may be found by others: confirmed ones.
    pub num_cacheable_tokens: u32,
    /// Tokens its blocks have slots for: a multiple of the block size.
    pub num_slots: u32,
    /// Where the KV cache manager keeps its block tables.
    pub table: u32,
    /// Is its prompt (or what it recomputes) still being prefilled?
    pub prefilling: bool,
    /// May it draft? False for good after a permanent gap.
    pub may_draft: bool,
    /// The least is served first, where that is the policy.
    pub priority: i32,
    /// When it arrived.
    pub arrival: Time,
    /// When it last emitted.
    pub last_emit: Time,
    /// Its TPOT limit, seconds; infinity when none.
    pub slo_tpot_s: f64,
    /// What it did since it was last admitted.
    pub done: SpecCounts,
}

impl RunningRequest {
    /// Does it sample in this step, and go on?
    pub fn can_use_drafts(&self) -> bool {
        let end = self.num_computed_tokens + self.num_scheduled_tokens;
        // A step in flight that samples adds a token for sure.
        let outputs = self.num_output_tokens + 1 + u32::from(self.num_output_placeholders > 0);
        self.num_scheduled_tokens > 0 && end >= self.num_tokens && outputs < self.max_tokens_asked
    }
}

/// What speculation did for a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpecCounts {
    /// Steps with at least one verified draft.
    pub rounds: u32,
    /// Draft tokens drafted.
    pub drafted: u32,
    /// Draft tokens verified.
    pub verified: u32,
    /// Draft tokens accepted.
    pub accepted: u32,
}

/// Why a request can never run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectReason {
    /// The prompt does not stay below `max_model_len`.
    PromptOverModelLen,
    /// A prompt that is never split is over the token budget of a step.
    PromptOverBudget,
    /// The prompt is longer than the KV pool.
    PromptOverPool,
    /// The prompt is longer than the draft's own KV pool.
    PromptOverDraftPool,
    /// No step of this engine can begin what is left of it: budget and drafts do not go together.
    NoStepFits,
    /// Prompt and output outgrew the KV pool.
    OutgrewPool,
    /// Prompt and output outgrew the draft's own KV pool.
    OutgrewDraftPool,
}
