//! The settings of the engine. Names and defaults are vLLM's where vLLM has the setting.

use crate::host::HostLaw;
use crate::latency::DraftDevice;
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

/// The engine's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// The release whose rules apply.
    pub version: Version,
    /// How drafts are made.
    pub method: DraftMethod,
    /// Number of MTP modules of the model (`num_nextn_predict_layers`).
    pub mtp_modules: u32,
    /// The model runner. Default: the one that the release chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<Runner>,
    /// Schedule the next step while one is in flight? Default: what the release does with this drafter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub async_scheduling: Option<bool>,
    /// When drafts are made. Default: as in the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_at: Option<DraftAt>,
    /// When the tokens of a step leave the server. Default: as with the runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<DeliverAt>,
    /// The tokens of the first draft pass. Default: as in the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_draft_pass: Option<FirstDraftPass>,
    /// The order in which requests are served.
    pub scheduling_policy: SchedulingPolicy,
    /// Most requests in the running list.
    pub max_num_seqs: u32,
    /// Token budget of a step.
    pub max_num_batched_tokens: u32,
    /// Most requests that may run, at most `max_num_seqs`. Default: `max_num_seqs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_num_active_seqs: Option<u32>,
    /// May a prompt be split over steps? Default: as in the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunked_prefill: Option<bool>,
    /// Most tokens of a request's chunk in a step while it is not alone; 0 for no limit.
    pub long_prefill_token_threshold: u32,
    /// Raise this threshold to the token budget divided by the number of running and waiting requests?
    pub long_prefill_token_threshold_adaptive: bool,
    /// N: while requests decode, prompts are scheduled in every N-th step only.
    pub prefill_schedule_interval: u32,
    /// Tokens in a KV block.
    pub block_size: u32,
    /// KV blocks of the device.
    pub num_gpu_blocks: u32,
    /// Most tokens of prompt + output of a request.
    pub max_model_len: u32,
    /// Reuse the KV of blocks with equal prefixes?
    pub prefix_caching: bool,
    /// Admit a request only if its whole sequence fits into the free blocks? Default: as in the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_reserve_full_isl: Option<bool>,
    /// Share of blocks kept free when requests are admitted while others run. Default: the release's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermark: Option<f64>,
    /// KV slots reserved behind a request's scheduled tokens. Default: by release and method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_lookahead_tokens: Option<u32>,
    /// Extra tokens that each request takes from the token budget. Default: by release and method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_num_new_slots_for_drafting: Option<u32>,
    /// Pad an admitted request with one token left to the length of a decode with drafts? Default: as in the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pad_admissions: Option<bool>,
    /// Where the draft keeps its KV.
    pub draft_kv: DraftKv,
    /// Where the draft runs.
    pub draft_device: DraftDevice,
    /// Share of rounds whose outcome a draft on a device of its own guesses, [0, 1]. After a wrong guess the next
    /// drafts of the request continue another text, and none is accepted.
    pub outcomes_guessed: f64,
    /// Does the draft run over prompts too? False for a draft without KV (prompt lookup, or a draft whose cost is left
    /// out), which has no gaps to catch up on either.
    pub draft_prefill: bool,
    /// How the draft catches up on tokens that it missed.
    pub draft_gap: DraftGap,
    /// How many tokens drafts take from the token budget.
    pub budget_charge: BudgetCharge,
    /// Most draft tokens of a request in a step (vLLM `num_speculative_tokens`).
    pub max_draft_len: u32,
    /// Host time of a step outside the model, seconds.
    pub step_overhead_s: f64,
    /// Time that a target pass takes longer where the engine leaves full CUDA graphs, seconds: with a table by batch
    /// size vLLM's runner V1 falls back to piecewise graphs (`cudagraph_mode`).
    pub piecewise_graph_s: f64,
    /// Time between a client and the scheduler, there and back (HTTP, tokenizer, processes), seconds. The scheduler
    /// sees a request this long after it was sent; latencies count from when it was sent.
    pub frontend_s: f64,
    /// Host time of a policy's decisions, seconds.
    pub decision_s: DecisionSeconds,
    /// Host time of a step by its requests and tokens, beside `step_overhead_s`.
    #[serde(skip_serializing_if = "HostLaw::is_zero")]
    pub host: HostLaw,
    /// Compute a run of steps in which nothing is decided in one go? Results are the same bytes with on and off.
    pub skip_stretches: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            version: Version::default(),
            method: DraftMethod::default(),
            mtp_modules: 1,
            runner: None,
            async_scheduling: None,
            draft_at: None,
            deliver_at: None,
            first_draft_pass: None,
            scheduling_policy: SchedulingPolicy::default(),
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            max_num_active_seqs: None,
            chunked_prefill: None,
            long_prefill_token_threshold: 0,
            long_prefill_token_threshold_adaptive: false,
            prefill_schedule_interval: 1,
            block_size: 16,
            num_gpu_blocks: 8192,
            max_model_len: 1 << 20,
            prefix_caching: true,
            scheduler_reserve_full_isl: None,
            watermark: None,
            num_lookahead_tokens: None,
            max_num_new_slots_for_drafting: None,
            pad_admissions: None,
            draft_kv: DraftKv::None,
            draft_device: DraftDevice::Shared,
            outcomes_guessed: 1.0,
            draft_prefill: true,
            draft_gap: DraftGap::CatchUpNextUse,
            budget_charge: BudgetCharge::Full,
            max_draft_len: 8,
            step_overhead_s: 0.0,
            piecewise_graph_s: 0.0,
            frontend_s: 0.0,
            decision_s: DecisionSeconds::default(),
            host: HostLaw::default(),
            skip_stretches: true,
        }
    }
}

/// A setting with which the engine cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("engine.{key}: {why}")]
pub struct BadConfig {
    /// Name of the setting.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub why: String,
}

/// Defaults of the release for settings that are left out.
impl EngineConfig {
    /// When drafts are made; unless it is set, as in the release.
    pub fn drafts_at(&self) -> DraftAt {
        self.draft_at.unwrap_or(if self.version == Version::V0 { DraftAt::StepStart } else { DraftAt::StepEnd })
    }

    /// Whether a prompt may be split over steps.
    pub fn chunked_prefill(&self) -> bool {
        self.chunked_prefill.unwrap_or(self.version != Version::V0)
    }

    /// Whether a request is admitted only if its whole sequence fits.
    pub fn scheduler_reserve_full_isl(&self) -> bool {
        self.scheduler_reserve_full_isl.unwrap_or(self.version != Version::V0)
    }

    /// Share of blocks that are kept free when requests are admitted.
    pub fn watermark(&self) -> f64 {
        self.watermark.unwrap_or(if self.version == Version::V0 { 0.01 } else { 0.0 })
    }

    /// Sets what a device does, where the settings are silent: drafts at the start of the step that verifies them, one
    /// step at a time. Returns whether a setting was silent.
    pub fn as_on_a_device(&mut self) -> bool {
        let silent = self.version != Version::V0 && (self.draft_at.is_none() || self.async_scheduling.is_none());
        if silent {
            self.draft_at.get_or_insert(DraftAt::StepStart);
            self.async_scheduling.get_or_insert(false);
        }
        silent
    }

    /// The settings that are set to another value than the release's default.
    pub fn overridden(&self) -> Vec<&'static str> {
        let released = EngineConfig { version: self.version, ..EngineConfig::default() };
        let chunked = self.chunked_prefill.is_some_and(|set| set != released.chunked_prefill());
        let reserve = self.scheduler_reserve_full_isl.is_some_and(|set| set != released.scheduler_reserve_full_isl());
        let watermark = self.watermark.is_some_and(|set| set != released.watermark());
        let pads = self.pad_admissions.is_some_and(|set| set != (self.version != Version::V0));
        let step_start = self.draft_at.is_some_and(|set| (set == DraftAt::StepStart) != (self.version == Version::V0));
        let keys = [
            // The defaults of these follow from the release, or from the drafter.
            ("draft_at", step_start),
            ("async_scheduling", self.async_scheduling == Some(false) && !step_start),
            ("deliver_at", self.deliver_at.is_some()),
            ("first_draft_pass", self.first_draft_pass == Some(FirstDraftPass::Unseen) && self.version != Version::V0),
            ("chunked_prefill", chunked),
            ("scheduler_reserve_full_isl", reserve),
            ("watermark", watermark),
            ("pad_admissions", pads),
            // The defaults of these follow from the drafter.
            ("num_lookahead_tokens", self.num_lookahead_tokens.is_some()),
            ("max_num_new_slots_for_drafting", self.max_num_new_slots_for_drafting.is_some()),
        ];
        keys.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect()
    }

    /// Number of blocks in the target's pool. `drafting` says whether a draft model takes its share (invariant 7).
    pub fn target_blocks(&self, drafting: bool) -> u32 {
        match self.draft_kv {
            DraftKv::EqualSplit { ratio } if drafting => (f64::from(self.num_gpu_blocks) / (1.0 + ratio)) as u32,
            _ => self.num_gpu_blocks,
        }
    }
}

impl EngineConfig {
    /// Checks the settings that serde cannot check.
    ///
    /// # Errors
    /// A number is 0 that must be at least 1, a size or a draft length is over its limit, several MTP modules are given
    /// for another method, fewer than 2 KV blocks are given to an engine with a null block, or a share, a time or a
    /// ratio is out of range. The error names the setting.
    pub fn check(&self) -> Result<(), BadConfig> {
        let positive = [
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("block_size", self.block_size),
            ("max_model_len", self.max_model_len),
            ("mtp_modules", self.mtp_modules),
            ("prefill_schedule_interval", self.prefill_schedule_interval),
            ("max_num_active_seqs", self.max_num_active_seqs.unwrap_or(1)),
        ];
        for (key, value) in positive {
            if value == 0 {
                return Err(BadConfig { key, why: "must be at least 1".into() });
            }
        }
        let bounded =
            [("block_size", self.block_size, MOST_BLOCK_SIZE), ("max_model_len", self.max_model_len, MOST_MODEL_LEN)];
        for (key, value, most) in bounded {
            if value > most {
                return Err(BadConfig { key, why: format!("{value} is over the limit of {most} tokens") });
            }
        }
        let extra = [
            ("num_lookahead_tokens", self.num_lookahead_tokens.unwrap_or(0)),
            ("max_num_new_slots_for_drafting", self.max_num_new_slots_for_drafting.unwrap_or(0)),
        ];
        for (key, value) in extra {
            if value > MOST_EXTRA_SLOTS {
                return Err(BadConfig { key, why: format!("{value} is over the limit of {MOST_EXTRA_SLOTS} tokens") });
            }
        }
        if self.mtp_modules > 1 && self.method != DraftMethod::Mtp {
            let why = format!("{} modules, but engine.method is not \"mtp\"", self.mtp_modules);
            return Err(BadConfig { key: "mtp_modules", why });
        }
        if self.num_gpu_blocks < 2 && self.version != Version::V0 {
            let why = "must be at least 2: one block is the null block".into();
            return Err(BadConfig { key: "num_gpu_blocks", why });
        }
        if self.max_draft_len > MAX_SPEC_LEN {
            return Err(BadConfig {
                key: "max_draft_len",
                why: format!("{} is over the limit of {MAX_SPEC_LEN}", self.max_draft_len),
            });
        }
        if let Some(share) = self.watermark.filter(|share| !(0.0..1.0).contains(share)) {
            return Err(BadConfig { key: "watermark", why: format!("{share} is not a share in [0, 1)") });
        }
        if !(0.0..=1.0).contains(&self.outcomes_guessed) {
            let why = format!("{} is not a share in [0, 1]", self.outcomes_guessed);
            return Err(BadConfig { key: "outcomes_guessed", why });
        }
        let times = [
            ("step_overhead_s", self.step_overhead_s),
            ("piecewise_graph_s", self.piecewise_graph_s),
            ("frontend_s", self.frontend_s),
            ("decision_s.propose", self.decision_s.propose),
            ("decision_s.keep_drafting", self.decision_s.keep_drafting),
            ("decision_s.select", self.decision_s.select),
        ];
        if let Some((key, s)) = times.into_iter().find(|(_, s)| !(*s >= 0.0 && s.is_finite())) {
            return Err(BadConfig { key, why: format!("{s} is not a time ≥ 0 s") });
        }
        self.host.check().map_err(|(key, why)| BadConfig { key, why })?;
        match self.draft_kv {
            DraftKv::EqualSplit { ratio } if !(ratio >= 0.0 && ratio.is_finite()) => {
                Err(BadConfig { key: "draft_kv.equal-split.ratio", why: format!("{ratio} is not a ratio ≥ 0") })
            }
            DraftKv::Separate { blocks: 0 } => {
                Err(BadConfig { key: "draft_kv.separate.blocks", why: "must be at least 1".into() })
            }
            _ => Ok(()),
        }
    }
}

/// Most draft tokens of a request in a step, for any configuration (vLLM `MAX_SPEC_LEN`).
pub const MAX_SPEC_LEN: u32 = 32;

/// Most tokens in a KV block and in a request: the engine counts the tokens of a request's blocks in 32 bits.
const MOST_BLOCK_SIZE: u32 = 1 << 16;
const MOST_MODEL_LEN: u32 = 1 << 31;

/// Most extra slots or lookahead slots that may be set for a request.
const MOST_EXTRA_SLOTS: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_the_longest_request_are_counted_in_32_bits() {
        let with = |block_size, max_model_len| EngineConfig { block_size, max_model_len, ..EngineConfig::default() };
        let most = with(MOST_BLOCK_SIZE, MOST_MODEL_LEN);
        assert_eq!(most.check(), Ok(()));
        let tokens = most.max_model_len + crate::tree::MAX_TREE_TOKENS;
        assert!(tokens.div_ceil(most.block_size).checked_mul(most.block_size).is_some());
        let why = |config: EngineConfig| config.check().unwrap_err().to_string();
        assert_eq!(why(with(65_537, 4096)), "engine.block_size: 65537 is over the limit of 65536 tokens");
        assert_eq!(why(with(16, u32::MAX)), "engine.max_model_len: 4294967295 is over the limit of 2147483648 tokens");
    }
}
