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
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Version::V0 => "vllm-v0",
            Version::V0_32 => "vllm-0.32",
            Version::V0_33 => "vllm-0.33",
        }
    }
}

/// How drafts are made, as far as the scheduler must know (vLLM's `method`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftMethod {
    /// A draft model.
    #[default]
    DraftModel,
    /// An EAGLE head.
    Eagle,
    /// An EAGLE-3 head.
    Eagle3,
    /// Multi-token prediction.
    Mtp,
    /// A block-diffusion drafter.
    Dflash,
    /// A semi-autoregressive drafter.
    Dspark,
    /// A `Dspark` drafter that fills in a block that starts with a mask (`sample_from_anchor` false).
    DsparkFillIn,
    /// Prompt lookup: the last tokens are looked up in the text so far.
    Ngram,
    /// Lookups of the last tokens in suffix trees.
    Suffix,
}

/// vLLM's model runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Runner {
    /// The first runner: for CPUs, suffix decoding and parallel drafting.
    V1,
    /// The default of 0.33.
    V2,
}

/// When drafts are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftAt {
    /// At the end of a step, for the next step to verify: vLLM 0.32 and 0.33.
    StepEnd,
    /// At the start of the step that verifies them: the papers' engine, SGLang, and live runs of Foretoken.
    StepStart,
}

/// When the tokens of a step leave the server, if drafts are made at the end of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeliverAt {
    /// Tokens leave as soon as they are sampled; the device drafts meanwhile (runner V2).
    Sampled,
    /// After the drafts for the next step are made (runner V1).
    Drafted,
}

/// The tokens of the draft's first pass after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FirstDraftPass {
    /// All tokens of the step, including rejected drafts, and the drafter's extra slots.
    Padded,
    /// Only tokens that the draft has not run over.
    Unseen,
}

/// The order in which requests are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulingPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// By the requests' priority, lowest number first; then by arrival.
    Priority,
}

/// How the draft catches up on tokens that it missed because a request did not draft (docs/model.md 0.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftGap {
    /// The missed tokens run in the first pass of the draft's next use and cost as batched tokens.
    #[default]
    CatchUpNextUse,
    /// The draft runs over all tokens in every step, drafting or not.
    AlwaysExtend,
    /// The request never drafts again.
    Permanent,
}

/// How many tokens drafts take from the token budget (docs/model.md 9.11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetCharge {
    /// The policy's limit + 1 for each decode request, as in vLLM.
    #[default]
    Full,
    /// Verified tokens + 1; chunks may use the tokens that selection freed.
    Trimmed,
}

/// Where the draft keeps its KV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DraftKv {
    /// The draft's KV costs nothing: the draft has no KV, or its memory is set aside beforehand.
    #[default]
    None,
    /// The pool is split so that both models get the same number of blocks (vLLM v0).
    EqualSplit {
        /// Draft KV bytes a token / target KV bytes a token.
        ratio: f64,
    },
    /// The draft has a pool of its own.
    Separate {
        /// Number of blocks in the draft's pool.
        blocks: u32,
    },
}

/// Host time of each decision of a policy, seconds. 0 by default: decisions of simulated policies take no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DecisionSeconds {
    /// A proposal of draft lengths, once a step.
    pub propose: f64,
    /// A decision after a draft pass, for policies that decide there. On hardware the host waits for the device there.
    pub keep_drafting: f64,
    /// A selection before verification, for policies that select.
    pub select: f64,
}
