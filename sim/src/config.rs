//! The settings of the engine. Names and defaults are vLLM's where vLLM has the setting.

mod bad;
mod checks;
mod choices;
mod releases;
mod settings;
mod sglang;

use crate::host::HostLaw;
use crate::latency::DraftDevice;
pub use bad::BadConfig;
use checks::{
    blocks_up_to, decision_times, draft_kv, draft_weights, optional, positive, share, time, tokens_from_1_to,
    tokens_up_to, whole_share,
};
pub use choices::{
    BatchRange, BudgetCharge, DecisionSeconds, DeliverAt, DraftAt, DraftGap, DraftKv, DraftMethod, DraftWeights,
    FirstDraftPass, Runner, SchedulingPolicy, Version,
};
pub use releases::Release;
use serde::{Deserialize, Serialize};
use settings::settings;
use sglang::sglang_settings;
pub use sglang::{EvictionPolicy, QueueOrder, RetractionPolicy, SglangSettings};

settings! {
    /// The settings of the serving engine: scheduler, KV cache, drafter and host times. Names and defaults are vLLM's
    /// where vLLM has the setting.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    pub struct EngineConfig;

    /// The release of vLLM or SGLang whose scheduling rules the engine follows. Several other settings take their
    /// default from it.
    version: Version = Version::default();
    /// The kind of drafter (vLLM's `method`). Lookahead slots, token budget and model runner depend on it.
    method: DraftMethod = DraftMethod::default();
    /// Number of MTP modules of the model (`num_nextn_predict_layers`), at least 1. Above 1 it needs `method = "mtp"`.
    mtp_modules: u32 = 1, positive;
    /// vLLM's model runner. It decides when draft tokens are made and when tokens are sent. Default: the runner that
    /// the vLLM release chooses; `v2` in `vllm-0.33` for most drafters, `v1` in earlier releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    runner: Option<Runner> = None;
    /// Whether the next step is scheduled while a step is still on the device. Default: true if the vLLM release can do
    /// this with the drafter and the other settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    async_scheduling: Option<bool> = None;
    /// Whether draft tokens are made at the start or the end of a step. Default: `step-start` in `vllm-v0`, else
    /// `step-end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_at: Option<DraftAt> = None;
    /// When clients get the tokens of a step: before or after the draft tokens for the next step are made. It needs
    /// `draft_at = "step-end"`. Default: before with runner `v2`, after with runner `v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<DeliverAt> = None;
    /// Which tokens the first draft pass of a step runs over. Default: `padded` if draft tokens are made at the end of
    /// a step, else `unseen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_draft_pass: Option<FirstDraftPass> = None;
    /// Whether the policy sits in the scheduler of a running vLLM (docs/in-your-server.md): all requests of a step get
    /// one draft length, the longest that the policy gives any of them, and graphs and admissions are as with a table
    /// of draft lengths.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    seated: bool = false;
    /// The order in which waiting requests are admitted: by arrival or by priority.
    scheduling_policy: SchedulingPolicy = SchedulingPolicy::default();
    /// Most requests that run at once (vLLM `max_num_seqs`), at least 1.
    max_num_seqs: u32 = 256, positive;
    /// Token budget of a step: most tokens, draft tokens and prompt chunks included, that a target pass may have, at
    /// least 1.
    max_num_batched_tokens: u32 = 2048, positive;
    /// Most requests that run at once, from 1 to `max_num_seqs`, if fewer than `max_num_seqs` are wanted. Default:
    /// `max_num_seqs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_num_active_seqs: Option<u32> = None, optional(positive);
    /// Whether a prompt may be split into chunks that run in several steps. Default: false in `vllm-v0`, else true.
    #[serde(skip_serializing_if = "Option::is_none")]
    chunked_prefill: Option<bool> = None;
    /// Most prompt tokens that a request may have in a step while other requests run or wait; 0 for no limit.
    long_prefill_token_threshold: u32 = 0;
    /// Whether `long_prefill_token_threshold` is raised to `max_num_batched_tokens` / (running + waiting requests), if
    /// this quotient is larger.
    long_prefill_token_threshold_adaptive: bool = false;
    /// N, at least 1: while requests decode, prompts are scheduled only in every N-th step. It acts only in
    /// `vllm-0.33`.
    prefill_schedule_interval: u32 = 1, positive;
    /// Number of tokens in a KV block, 1 to 65536.
    block_size: u32 = 16, tokens_from_1_to(MOST_BLOCK_SIZE);
    /// Number of KV blocks in device memory. Except in `vllm-v0` one of them is the null block, which is given to no
    /// request, so at least 2 are needed.
    num_gpu_blocks: u32 = 8192;
    /// Number of KV blocks that one recurrent state of a request takes over all recurrent layers, 0 to 65536. A running
    /// request holds 1 + K states, where K is the longest draft (vLLM `MambaSpec`, `num_speculative_blocks`). Default:
    /// derived from the roofline of the target's model; 0 without one.
    #[serde(skip_serializing_if = "is_zero")]
    state_blocks: u32 = 0, blocks_up_to(MOST_EXTRA_SLOTS);
    /// Number of KV blocks that a running request takes whatever its tokens and drafts, 0 to 65536: the windows of
    /// compressed attention, and compressors. Default: derived from the roofline of the target's model; 0 without one.
    #[serde(skip_serializing_if = "is_zero")]
    request_blocks: u32 = 0, blocks_up_to(MOST_EXTRA_SLOTS);
    /// Number of newest tokens of a request whose KV stays in memory in the layers with a sliding window, up to 2³¹; 0
    /// if all layers keep every token. It acts only in `vllm-0.32` and `vllm-0.33`. Default: derived from the roofline
    /// of the target's model; 0 without one.
    #[serde(skip_serializing_if = "is_zero")]
    sliding_window: u32 = 0, tokens_up_to(MOST_MODEL_LEN);
    /// Number of KV blocks that `block_size` tokens take in the layers with a sliding window, beside the one block for
    /// all other layers, 0 to 1024: the number of vLLM's KV cache groups for these layers. Default: derived from the
    /// roofline of the target's model; 0 without one.
    #[serde(skip_serializing_if = "is_zero")]
    window_groups: u32 = 0, blocks_up_to(MOST_WINDOW_GROUPS);
    /// Most tokens of prompt and output of a request together, 1 to 2³¹.
    max_model_len: u32 = 1 << 20, tokens_from_1_to(MOST_MODEL_LEN);
    /// Most tokens of a request for which the drafter can be run, 1 to 2³¹, if fewer than `max_model_len` (the draft
    /// model's own `max_model_len`). While any request of a step is nearer to this limit than the longest draft, vLLM's
    /// runner V1 drafts for no request of the batch (vllm#58080).
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_max_model_len: Option<u32> = None, optional(tokens_from_1_to(MOST_MODEL_LEN));
    /// Whether a request reuses the KV blocks of earlier requests with the same prefix.
    prefix_caching: bool = true;
    /// Whether no request reuses KV blocks on a server with a drafter, as vLLM 0.28 does with hybrid models
    /// (vllm#54360).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    drafts_end_prefix_hits: bool = false;
    /// Whether a request is admitted only if its whole sequence fits into the free blocks. Default: false in `vllm-v0`,
    /// else true.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler_reserve_full_isl: Option<bool> = None;
    /// Share of all KV blocks, [0, 1), that must stay free when a request is admitted while other requests run; in
    /// `vllm-v0` also when none runs. Default: 0.01 in `vllm-v0`, else 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    watermark: Option<f64> = None, optional(share);
    /// Number of KV slots that are reserved for a request in addition to the slots of its scheduled tokens, 0 to 65536.
    /// Default: as in the vLLM release for this drafter. For most drafters this is the longest draft length; for
    /// `ngram` and `suffix` it is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    num_lookahead_tokens: Option<u32> = None, optional(tokens_up_to(MOST_EXTRA_SLOTS));
    /// Number of tokens that each request takes from the token budget for its drafter, beside its draft tokens, 0 to
    /// 65536. Default: as in the vLLM release for this drafter; 1 for a draft model that makes one token in a pass, 0
    /// for most other drafters.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_num_new_slots_for_drafting: Option<u32> = None, optional(tokens_up_to(MOST_EXTRA_SLOTS));
    /// Whether an admitted request with one token left to compute gets padding tokens, as many as the longest draft
    /// length. Default: false in `vllm-v0`, else true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pad_admissions: Option<bool> = None;
    /// The memory that the draft model's KV takes from the memory of `num_gpu_blocks`.
    draft_kv: DraftKv = DraftKv::None, draft_kv;
    /// The draft model's weights, if a policy may give them up when KV memory is short (Nightjar): KV blocks take their
    /// place, nothing is drafted, and they come back over a link. It needs `draft_at = "step-start"`. Default: they
    /// stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_weights: Option<DraftWeights> = None, optional(draft_weights);
    /// The device of the draft model: the target's device (`shared`), or another one (`own`).
    draft_device: DraftDevice = DraftDevice::Shared;
    /// With `draft_device = "own"`: the share of rounds (a request's draft tokens of one step), [0, 1], in which the
    /// draft model guesses correctly what the target will accept. After a wrong guess, none of the request's next draft
    /// tokens is accepted.
    outcomes_guessed: f64 = 1.0, whole_share;
    /// Whether the draft model also runs over prompts. Set it to false for drafters without KV (prompt lookup, or a
    /// draft model whose cost is left out). Such drafters never have to run over context tokens that they skipped.
    draft_prefill: bool = true;
    /// When the draft model runs over the context tokens that it skipped while a request did not draft.
    draft_gap: DraftGap = DraftGap::CatchUpNextUse;
    /// Which draft tokens count against the token budget of a step: all that the policy allows, or only the verified
    /// ones.
    budget_charge: BudgetCharge = BudgetCharge::Full;
    /// Most draft tokens of a request in a step (vLLM `num_speculative_tokens`), 0 to 32. Policies stay within this
    /// limit.
    max_draft_len: u32 = 8, tokens_up_to(MAX_SPEC_LEN);
    /// Constant host time of a step outside the model passes, seconds, ≥ 0.
    step_overhead_s: f64 = 0.0, time;
    /// Seconds, ≥ 0, that a target pass takes longer if the engine cannot use full CUDA graphs. vLLM's runner V1 falls
    /// back to piecewise graphs (`cudagraph_mode`) if its draft lengths come from a table by batch size.
    piecewise_graph_s: f64 = 0.0, time;
    /// Part of the host time of a step that grows with the step's requests and tokens. It is added to
    /// `step_overhead_s`.
    #[serde(skip_serializing_if = "HostLaw::is_zero")]
    host: HostLaw = HostLaw::default();
    /// Time of a request's way from the client to the scheduler and of its answer's way back, together (HTTP,
    /// tokenizer, processes), seconds, ≥ 0. The scheduler sees a request this long after it was sent. Latencies count
    /// from the sending.
    frontend_s: f64 = 0.0, time;
    /// Host time of each kind of decision of a policy, seconds, ≥ 0.
    decision_s: DecisionSeconds = DecisionSeconds::default(), decision_times;
    /// The settings of SGLang's scheduler that vLLM lacks. They act with `version = "sglang-0.5.23"`.
    #[serde(skip_serializing_if = "SglangSettings::is_default")]
    sglang: SglangSettings = SglangSettings::default(), sglang_settings;
    /// Whether the simulator computes consecutive steps at once if no decision falls between them. This is faster.
    /// Results are identical with true and false.
    skip_stretches: bool = true;
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(x: &u32) -> bool {
    *x == 0
}

/// Methods that return the values with which the engine runs. A setting that the user left out has the default of the
/// chosen vLLM release.
impl EngineConfig {
    /// The numbers and switches of the vLLM release that the engine follows.
    pub fn release(&self) -> &'static Release {
        self.version.release()
    }

    /// When draft tokens are made: the setting `draft_at`, or else what the vLLM release does.
    pub fn drafts_at(&self) -> DraftAt {
        self.draft_at.unwrap_or(self.release().draft_at)
    }

    /// Whether the tokens of a prompt may be split over several steps: the setting, or else what the vLLM release does.
    pub fn chunked_prefill(&self) -> bool {
        self.chunked_prefill.unwrap_or(self.release().chunked_prefill)
    }

    /// Whether a request is admitted only if its whole sequence fits into the free KV blocks: the setting, or else what
    /// the vLLM release does.
    pub fn scheduler_reserve_full_isl(&self) -> bool {
        self.scheduler_reserve_full_isl.unwrap_or(self.release().reserve_full_isl)
    }

    /// Share of the KV blocks, [0, 1), that are kept free when requests are admitted: the setting, or else the default
    /// of the vLLM release.
    pub fn watermark(&self) -> f64 {
        self.watermark.unwrap_or(self.release().watermark)
    }

    /// Applies the defaults of live runs on a device to the settings that the user left out: draft tokens are made at
    /// the start of the step that verifies them, and one step runs at a time. Returns whether a setting was changed. In
    /// v0 nothing changes, because v0 works in this way anyway.
    pub fn as_on_a_device(&mut self) -> bool {
        let set = self.draft_at.is_some() && self.async_scheduling.is_some();
        let silent = self.release().draft_at != DraftAt::StepStart && !set;
        if silent {
            self.draft_at.get_or_insert(DraftAt::StepStart);
            self.async_scheduling.get_or_insert(false);
        }
        silent
    }

    /// The names of the settings whose value differs from the choice of the vLLM release. Only settings whose default
    /// follows from the vLLM release or the drafter are compared (except `runner`). Some have simpler rules:
    /// `deliver_at`, `num_lookahead_tokens` and `max_num_new_slots_for_drafting` are listed whenever they are set.
    /// `async_scheduling` is listed if it is false and `draft_at` is not listed.
    pub fn overridden(&self) -> Vec<&'static str> {
        let release = self.release();
        let chunked = self.chunked_prefill.is_some_and(|set| set != release.chunked_prefill);
        let reserve = self.scheduler_reserve_full_isl.is_some_and(|set| set != release.reserve_full_isl);
        let watermark = self.watermark.is_some_and(|set| set != release.watermark);
        let pads = self.pad_admissions.is_some_and(|set| set != release.pad_admissions);
        let step_start = self.draft_at.is_some_and(|set| set != release.draft_at);
        let unseen = self.first_draft_pass == Some(FirstDraftPass::Unseen) && release.draft_at == DraftAt::StepEnd;
        let keys = [
            // Each entry has the name of a setting and whether it overrides the vLLM release. The defaults of the first
            // eight settings follow from the vLLM release, or from release and drafter.
            ("draft_at", step_start),
            ("async_scheduling", self.async_scheduling == Some(false) && !step_start),
            ("deliver_at", self.deliver_at.is_some()),
            ("first_draft_pass", unseen),
            ("chunked_prefill", chunked),
            ("scheduler_reserve_full_isl", reserve),
            ("watermark", watermark),
            ("pad_admissions", pads),
            // The defaults of this setting and of the next one follow from the drafter, so both are listed whenever
            // they are set.
            ("num_lookahead_tokens", self.num_lookahead_tokens.is_some()),
            ("max_num_new_slots_for_drafting", self.max_num_new_slots_for_drafting.is_some()),
        ];
        keys.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect()
    }

    /// KV blocks that a running request takes in addition to the blocks of its tokens, if its drafts have up to `k`
    /// tokens: 1 + `k` recurrent states, and what does not depend on drafts.
    pub fn blocks_of_a_request(&self, k: u32) -> u32 {
        self.request_blocks + self.state_blocks * (1 + k)
    }

    /// KV blocks that a decoding request of `tokens` tokens holds, if its drafts have up to `k` tokens: the blocks of
    /// its tokens and of the layers with a sliding window, and [`blocks_of_a_request`](Self::blocks_of_a_request).
    pub fn blocks_held(&self, tokens: u32, k: u32) -> u32 {
        let blocks = tokens.div_ceil(self.block_size);
        // A window that does not begin with a block reaches into one more.
        let window = blocks.min(self.sliding_window.div_ceil(self.block_size) + 1);
        blocks + self.window_groups * window + self.blocks_of_a_request(k)
    }

    /// Number of KV blocks of the target's pool that requests can use: all but the null block (docs/model.md 4.1).
    /// `drafting` says whether there is a draft model.
    pub fn usable_blocks(&self, drafting: bool) -> u32 {
        self.target_blocks(drafting).saturating_sub(self.release().null_blocks)
    }

    /// Number of KV blocks in the target's pool. `drafting` says whether there is a draft model. With
    /// `draft_kv = "equal-split"` a draft model takes its share of the blocks (invariant 7 of INVARIANTS.md).
    pub fn target_blocks(&self, drafting: bool) -> u32 {
        match self.draft_kv {
            DraftKv::EqualSplit { ratio } if drafting => (f64::from(self.num_gpu_blocks) / (1.0 + ratio)) as u32,
            _ => self.num_gpu_blocks,
        }
    }

    /// The setting that limits the number of running requests, and its value.
    pub fn running_limit(&self, drafting: bool) -> (&'static str, u32) {
        match self.sglang.speculative_max_running_requests {
            Some(most) if drafting => ("sglang.speculative_max_running_requests", most),
            _ => ("max_num_seqs", self.max_num_seqs),
        }
    }
}

impl EngineConfig {
    /// Checks the settings that serde cannot check.
    ///
    /// # Errors
    /// A number is 0 that must be at least 1, a size or a draft length is over its limit, several MTP modules are given
    /// for another method, fewer than 2 KV blocks are given to an engine with a null block, or a share, a time or a
    /// ratio is out of range, or one of the two settings of sliding windows is 0 and the other is not. The error names
    /// the setting.
    pub fn check(&self) -> Result<(), BadConfig> {
        self.check_each()?;
        self.host.check().map_err(|(key, why)| BadConfig { key, why })?;
        if self.mtp_modules > 1 && self.method != DraftMethod::Mtp {
            let why = format!("{} modules, but engine.method is not \"mtp\"", self.mtp_modules);
            return Err(BadConfig { key: "mtp_modules", why });
        }
        if (self.sliding_window > 0) != (self.window_groups > 0) {
            let (key, other) = match self.sliding_window {
                0 => ("window_groups", "sliding_window"),
                _ => ("sliding_window", "window_groups"),
            };
            return Err(BadConfig { key, why: format!("engine.{other} is missing, or 0: give both, or neither") });
        }
        if self.num_gpu_blocks < 2 && self.release().null_blocks > 0 {
            let why = "must be at least 2: one block is the null block".into();
            return Err(BadConfig { key: "num_gpu_blocks", why });
        }
        Ok(())
    }
}

/// Most draft tokens of a request in a step, for any configuration (vLLM `MAX_SPEC_LEN`).
pub const MAX_SPEC_LEN: u32 = 32;

/// Most tokens in a KV block (`MOST_BLOCK_SIZE`) and in a request (`MOST_MODEL_LEN`). With these limits the number of
/// tokens in a request's blocks fits into 32 bits.
const MOST_BLOCK_SIZE: u32 = 1 << 16;
const MOST_MODEL_LEN: u32 = 1 << 31;

/// Upper limit of the settings `num_lookahead_tokens` and `max_num_new_slots_for_drafting`: KV slots and tokens that
/// are reserved for each request's drafter.
const MOST_EXTRA_SLOTS: u32 = 1 << 16;

/// Most groups of layers with a sliding window. A model has fewer layers.
const MOST_WINDOW_GROUPS: u32 = 1 << 10;

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
