//! The settings of the engine. Names and defaults are vLLM's where vLLM has the setting.

mod bad;
mod checks;
mod choices;
mod settings;

use crate::host::HostLaw;
use crate::latency::DraftDevice;
pub use bad::BadConfig;
use checks::{decision_times, draft_kv, optional, positive, share, time, tokens_from_1_to, tokens_up_to, whole_share};
pub use choices::{
    BatchRange, BudgetCharge, DecisionSeconds, DeliverAt, DraftAt, DraftGap, DraftKv, DraftMethod, FirstDraftPass,
    Runner, SchedulingPolicy, Version,
};
use serde::{Deserialize, Serialize};
use settings::settings;

settings! {
    /// The engine's settings.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    pub struct EngineConfig;

    /// The vLLM release whose rules the engine follows.
    version: Version = Version::default();
    /// How drafts are made.
    method: DraftMethod = DraftMethod::default();
    /// Number of MTP modules of the model (`num_nextn_predict_layers`).
    mtp_modules: u32 = 1, positive;
    /// The model runner. Default: the one that the release chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    runner: Option<Runner> = None;
    /// Schedule the next step while one is in flight? Default: what the release does with this drafter.
    #[serde(skip_serializing_if = "Option::is_none")]
    async_scheduling: Option<bool> = None;
    /// When drafts are made. Default: as in the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_at: Option<DraftAt> = None;
    /// When the tokens of a step leave the server. Default: as with the runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<DeliverAt> = None;
    /// The tokens of the first draft pass. Default: as in the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_draft_pass: Option<FirstDraftPass> = None;
    /// The order in which requests are served.
    scheduling_policy: SchedulingPolicy = SchedulingPolicy::default();
    /// Most requests in the running list.
    max_num_seqs: u32 = 256, positive;
    /// Token budget of a step.
    max_num_batched_tokens: u32 = 2048, positive;
    /// Most requests that may run, at most `max_num_seqs`. Default: `max_num_seqs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_num_active_seqs: Option<u32> = None, optional(positive);
    /// May a prompt be split over steps? Default: as in the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    chunked_prefill: Option<bool> = None;
    /// Most tokens of a request's chunk in a step while it is not alone; 0 for no limit.
    long_prefill_token_threshold: u32 = 0;
    /// Raise this threshold to the token budget divided by the number of running and waiting requests?
    long_prefill_token_threshold_adaptive: bool = false;
    /// N: while requests decode, prompts are scheduled in every N-th step only.
    prefill_schedule_interval: u32 = 1, positive;
    /// Tokens in a KV block.
    block_size: u32 = 16, tokens_from_1_to(MOST_BLOCK_SIZE);
    /// KV blocks of the device.
    num_gpu_blocks: u32 = 8192;
    /// Most tokens of prompt + output of a request.
    max_model_len: u32 = 1 << 20, tokens_from_1_to(MOST_MODEL_LEN);
    /// Reuse the KV of blocks with equal prefixes?
    prefix_caching: bool = true;
    /// Admit a request only if its whole sequence fits into the free blocks? Default: as in the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler_reserve_full_isl: Option<bool> = None;
    /// Share of blocks kept free when requests are admitted while others run. Default: the release's.
    #[serde(skip_serializing_if = "Option::is_none")]
    watermark: Option<f64> = None, optional(share);
    /// KV slots reserved behind a request's scheduled tokens. Default: by release and method.
    #[serde(skip_serializing_if = "Option::is_none")]
    num_lookahead_tokens: Option<u32> = None, optional(tokens_up_to(MOST_EXTRA_SLOTS));
    /// Extra tokens that each request takes from the token budget. Default: by release and method.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_num_new_slots_for_drafting: Option<u32> = None, optional(tokens_up_to(MOST_EXTRA_SLOTS));
    /// Pad an admitted request with one token left to the length of a decode with drafts? Default: as in the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pad_admissions: Option<bool> = None;
    /// Where the draft keeps its KV.
    draft_kv: DraftKv = DraftKv::None, draft_kv;
    /// Where the draft runs.
    draft_device: DraftDevice = DraftDevice::Shared;
    /// Share of rounds of which a draft on a device of its own guesses the outcome correctly, [0, 1]. After a wrong
    /// guess the next drafts of the request continue another text, and none is accepted.
    outcomes_guessed: f64 = 1.0, whole_share;
    /// Does the draft run over prompts too? False for a draft without KV (prompt lookup, or a draft whose cost is left
    /// out), which has no gaps to catch up on either.
    draft_prefill: bool = true;
    /// How the draft catches up on tokens that it missed.
    draft_gap: DraftGap = DraftGap::CatchUpNextUse;
    /// How many tokens drafts take from the token budget.
    budget_charge: BudgetCharge = BudgetCharge::Full;
    /// Most draft tokens of a request in a step (vLLM `num_speculative_tokens`).
    max_draft_len: u32 = 8, tokens_up_to(MAX_SPEC_LEN);
    /// Host time of a step outside the model, seconds.
    step_overhead_s: f64 = 0.0, time;
    /// Time that a target pass takes longer where the engine leaves full CUDA graphs, seconds: with a table by batch
    /// size vLLM's runner V1 falls back to piecewise graphs (`cudagraph_mode`).
    piecewise_graph_s: f64 = 0.0, time;
    /// Host time of a step by its requests and tokens, beside `step_overhead_s`.
    #[serde(skip_serializing_if = "HostLaw::is_zero")]
    host: HostLaw = HostLaw::default();
    /// Time between a client and the scheduler, there and back (HTTP, tokenizer, processes), seconds. The scheduler
    /// sees a request this long after it was sent; latencies count from when it was sent.
    frontend_s: f64 = 0.0, time;
    /// Host time of a policy's decisions, seconds.
    decision_s: DecisionSeconds = DecisionSeconds::default(), decision_times;
    /// Compute a run of steps in which nothing is decided in one go? Results are the same bytes with on and off.
    skip_stretches: bool = true;
}

/// Defaults of the release for settings that are left out.
impl EngineConfig {
    /// When drafts are made: the setting `draft_at`, or else what the release does.
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

    /// Sets what live runs on a device do, where the user has set nothing: drafts at the start of the step that
    /// verifies them, one step at a time. Returns whether it set anything.
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
        self.check_each()?;
        self.host.check().map_err(|(key, why)| BadConfig { key, why })?;
        if self.mtp_modules > 1 && self.method != DraftMethod::Mtp {
            let why = format!("{} modules, but engine.method is not \"mtp\"", self.mtp_modules);
            return Err(BadConfig { key: "mtp_modules", why });
        }
        if self.num_gpu_blocks < 2 && self.version != Version::V0 {
            let why = "must be at least 2: one block is the null block".into();
            return Err(BadConfig { key: "num_gpu_blocks", why });
        }
        Ok(())
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
