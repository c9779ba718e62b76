//! The types of the engine's settings that are not plain numbers.

use serde::{Deserialize, Serialize};

/// (first, last, k): k draft tokens for each request if the batch size is from first to last.
pub type BatchRange = (i64, i64, i64);

/// The release of vLLM or SGLang whose scheduler is replicated. It decides every rule of the scheduler. Some other
/// settings each replace one of these rules, if they are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Version {
    /// vLLM's v0 engine as of 0.6.3, which the papers used: a step is either a prefill step or a decode step
    /// (docs/model.md 14).
    #[serde(rename = "vllm-v0")]
    V0,
    /// vLLM 0.32, which makes draft tokens at the end of a step.
    #[serde(rename = "vllm-0.32")]
    V0_32,
    /// vLLM 0.33, which makes draft tokens at the end of a step.
    #[default]
    #[serde(rename = "vllm-0.33")]
    V0_33,
    /// SGLang 0.5.23: a step has prompts, or decode requests, which draft at its start.
    #[serde(rename = "sglang-0.5.23")]
    Sglang0_5_23,
}

/// The kind of drafter (vLLM's `method`). Lookahead slots, token budget and model runner depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftMethod {
    /// A separate draft model.
    #[default]
    DraftModel,
    /// An EAGLE head.
    Eagle,
    /// An EAGLE-3 head.
    Eagle3,
    /// The model's own modules for multi-token prediction (MTP).
    Mtp,
    /// DFlash: a block-diffusion drafter, which makes all tokens of a block in one pass.
    Dflash,
    /// DSpark: a drafter that makes a block of tokens semi-autoregressively.
    Dspark,
    /// DSpark with `sample_from_anchor` false: the block that it fills in starts with a mask token.
    DsparkFillIn,
    /// Prompt lookup: searches the text so far for its newest tokens, and drafts the tokens that followed them there.
    Ngram,
    /// Suffix decoding: searches suffix trees of earlier text for the newest tokens, and drafts the tokens that
    /// followed them there.
    Suffix,
}

impl DraftMethod {
    /// Whether the drafter reads the target's hidden state of a token beside the token after it.
    pub fn reads_hidden_states(self) -> bool {
        matches!(self, DraftMethod::Eagle | DraftMethod::Eagle3 | DraftMethod::Mtp)
    }
}

/// vLLM's model runner, the part of a worker that runs passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Runner {
    /// Runner V1, which vLLM uses for CPUs, suffix decoding and parallel drafting.
    V1,
    /// Runner V2, the default of vLLM 0.33.
    V2,
}

/// Whether draft tokens are made at the start or the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftAt {
    /// At the end of a step, for the next step to verify: vLLM 0.32 and 0.33.
    StepEnd,
    /// At the start of the step that verifies them: the papers' engine, SGLang, and live runs of Foretoken.
    StepStart,
}

/// When clients get the tokens of a step. This applies only if draft tokens are made at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeliverAt {
    /// As soon as the tokens are sampled, while the device runs draft passes (runner V2).
    Sampled,
    /// After the draft tokens for the next step are made (runner V1).
    Drafted,
}

/// Which tokens the first draft pass of a step runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FirstDraftPass {
    /// All tokens of the step, rejected draft tokens and the drafter's extra slots included.
    Padded,
    /// Only tokens over which the draft model has not run, so that their draft KV is missing.
    Unseen,
}

/// The order in which waiting requests are admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulingPolicy {
    /// In order of arrival (first come, first served).
    #[default]
    Fcfs,
    /// By the priority of requests, the lowest number first. Requests of equal priority are admitted in order of
    /// arrival.
    Priority,
}

/// When the draft model runs over the context tokens that it skipped while a request did not draft (docs/model.md 0.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftGap {
    /// When the request drafts again: its first draft pass also runs over the tokens that the draft model skipped, and
    /// they add to the pass's batched tokens.
    #[default]
    CatchUpNextUse,
    /// At once: the draft model runs over all new tokens in every step, even if the request does not draft.
    AlwaysExtend,
    /// Never: once the draft model has skipped tokens of a request, the request does not draft any more.
    Permanent,
}

/// Which draft tokens count against the token budget of a step (docs/model.md 9.11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetCharge {
    /// All draft tokens that the policy allows count: each decode request takes the policy's draft limit + 1 tokens of
    /// the budget, as in vLLM.
    #[default]
    Full,
    /// Only verified draft tokens count: each decode request takes its verified draft tokens + 1 tokens of the budget.
    /// Prompt chunks may use the budget of dropped draft tokens.
    Trimmed,
}

/// The draft model's weights as memory that a policy may give up for KV blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DraftWeights {
    /// Number of KV blocks that fit into the memory of the weights, at least 1. `num_gpu_blocks` does not count them. A
    /// server without a drafter has them for its requests.
    pub blocks: u32,
    /// Bytes of the weights, > 0.
    pub bytes: f64,
    /// Bytes a second, > 0, of the link over which the weights come back.
    pub link_bytes_s: f64,
}

/// The memory that the draft model's KV takes from the memory of `num_gpu_blocks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DraftKv {
    /// No memory: the draft model has no KV, or its KV is in memory that `num_gpu_blocks` does not count.
    #[default]
    None,
    /// Target and draft model share the memory of `num_gpu_blocks`, and both get the same number of blocks (vLLM v0).
    EqualSplit {
        /// KV bytes of a token in the draft model, divided by KV bytes of a token in the target, ≥ 0.
        ratio: f64,
    },
    /// No memory: the draft model has a number of KV blocks of its own, and the target keeps all of `num_gpu_blocks`.
    Separate {
        /// Number of KV blocks of the draft model.
        blocks: u32,
    },
}

/// Host time of each kind of decision of a policy, seconds, ≥ 0. Default: 0, decisions take no simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DecisionSeconds {
    /// Time to decide the draft lengths before drafting, once in each step, seconds.
    pub propose: f64,
    /// Time to decide after a draft pass whether the step runs another draft pass, seconds. It counts only for policies
    /// that decide after each draft pass. On hardware the host then waits for the device.
    pub keep_drafting: f64,
    /// Time to choose which draft tokens are verified, seconds. It counts only for policies that choose among their
    /// draft tokens. The choice reads confidences, so on hardware the host waits for the last draft pass, and the pass
    /// that verifies begins after the choice.
    pub select: f64,
}
