//! The types of the engine's settings that are not plain numbers.

use serde::{Deserialize, Serialize};

/// (first, last, k): k draft tokens a request for batch sizes from first to last.
pub type BatchRange = (i64, i64, i64);

/// The release of vLLM whose scheduler is replicated. It sets every rule at once; single keys override it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Version {
    /// vLLM's v0 engine as of 0.6.3, which the papers used: a step is either a prefill step or a decode step
    /// (docs/model.md 14).
    #[serde(rename = "vllm-v0")]
    V0,
    /// vLLM 0.32.
    #[serde(rename = "vllm-0.32")]
    V0_32,
    /// vLLM 0.33.
    #[default]
    #[serde(rename = "vllm-0.33")]
    V0_33,
}

impl Version {
    /// The version's name in experiment files, such as `vllm-0.33`.
    pub fn name(self) -> &'static str {
        match self {
            Version::V0 => "vllm-v0",
            Version::V0_32 => "vllm-0.32",
            Version::V0_33 => "vllm-0.33",
        }
    }
}

/// The kind of drafter (vLLM's `method`). It decides lookahead slots, budgets and the runner.
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
    /// DSpark: a semi-autoregressive drafter of blocks.
    Dspark,
    /// DSpark with `sample_from_anchor` false: the block that it fills in starts with a mask token.
    DsparkFillIn,
    /// Prompt lookup: searches the text so far for the newest tokens, and drafts what followed them there.
    Ngram,
    /// Suffix decoding: searches suffix trees of earlier text for the newest tokens, and drafts what followed.
    Suffix,
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

/// Whether drafts are made at the start or the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftAt {
    /// At the end of a step, for the next step to verify: vLLM 0.32 and 0.33.
    StepEnd,
    /// At the start of the step that verifies them: the papers' engine, SGLang, and live runs of Foretoken.
    StepStart,
}

/// When clients get the tokens of a step, if drafts are made at the end of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeliverAt {
    /// As soon as they are sampled, while the device drafts (runner V2).
    Sampled,
    /// After the drafts for the next step are made (runner V1).
    Drafted,
}

/// Which tokens the first draft pass after a step runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FirstDraftPass {
    /// All tokens of the step, rejected drafts and the drafter's extra slots included.
    Padded,
    /// Only tokens whose draft KV is missing.
    Unseen,
}

/// The order in which waiting requests are admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulingPolicy {
    /// In order of arrival (first come, first served).
    #[default]
    Fcfs,
    /// By the requests' priority, lowest number first; then by arrival.
    Priority,
}

/// When the draft runs over tokens that it missed while its request did not draft (docs/model.md 0.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftGap {
    /// When the request drafts again: the missed tokens run in its first draft pass and cost as batched tokens.
    #[default]
    CatchUpNextUse,
    /// At once: the draft runs over all new tokens in every step, even if the request does not draft.
    AlwaysExtend,
    /// Never: the request does not draft again.
    Permanent,
}

/// Which drafts count against the token budget of a step (docs/model.md 9.11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetCharge {
    /// Each decode request takes the policy's draft limit + 1 tokens, as in vLLM.
    #[default]
    Full,
    /// Each decode request takes its verified drafts + 1 tokens. Prompt chunks may use what the dropped drafts leave.
    Trimmed,
}

/// The memory that the draft's KV takes from the target's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DraftKv {
    /// No memory: the draft has no KV, or its memory is not part of `num_gpu_blocks`.
    #[default]
    None,
    /// Target and draft share the memory of `num_gpu_blocks`, and both get the same number of blocks (vLLM v0).
    EqualSplit {
        /// KV bytes of a token in the draft / KV bytes of a token in the target, ≥ 0.
        ratio: f64,
    },
    /// The draft has separate blocks; the target keeps all of `num_gpu_blocks`.
    Separate {
        /// Number of KV blocks of the draft.
        blocks: u32,
    },
}

/// Host time of each kind of decision of a policy, seconds, ≥ 0. Default: 0, decisions take no simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DecisionSeconds {
    /// Time to decide the draft lengths before drafting, once a step, seconds.
    pub propose: f64,
    /// Time to decide after a draft pass whether to draft on, seconds. It counts only for policies that decide there.
    /// On hardware the host then waits for the device.
    pub keep_drafting: f64,
    /// Time to choose the drafts to verify, seconds. It counts only for policies that choose.
    pub select: f64,
}
