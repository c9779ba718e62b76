//! What SGLang's scheduler is set to beside the settings that vLLM has too. Names are SGLang's.

use super::bad::BadConfig;
use serde::{Deserialize, Serialize};

/// The order of the waiting requests (`--schedule-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QueueOrder {
    /// In the order of arrival.
    #[default]
    Fcfs,
    /// The longest cached prefix first; a prompt that begins like one before it waits until that one is computed.
    Lpm,
    /// The subtree of the cache with the most waiting requests first.
    DfsWeight,
    /// The longest output asked for first.
    Lof,
    /// The highest ratio of prompt tokens that were computed while a request waited to its own uncached tokens first.
    Hrrn,
    /// The fewest uncached tokens first.
    ShortestPrefillFirst,
}

/// Which cached prefix goes first when memory is short (`--radix-eviction-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EvictionPolicy {
    /// The one that was used least recently.
    #[default]
    Lru,
    /// The one that was used most recently.
    Mru,
    /// The one that the fewest requests put in.
    Lfu,
    /// One that only one request put in, before all others.
    Slru,
    /// One of the last `tlru_tail` tokens of a conversation, before all others.
    Tlru,
    /// The oldest one.
    Fifo,
    /// The newest one.
    Filo,
    /// The one of the least priority.
    Priority,
}

/// Which request loses its KV first when memory is short (`--retraction-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RetractionPolicy {
    /// The one with the fewest output tokens.
    #[default]
    Length,
    /// The one with the highest priority number, of these the one with the fewest output tokens.
    Priority,
}

/// The settings of SGLang's scheduler that vLLM lacks. They act with `version = "sglang-0.5.23"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SglangSettings {
    /// Most prompt tokens of a step; 0 if prompts are not split (`--chunked-prefill-size`). SGLang's default is 8192 on
    /// GPUs of 60 to 160 GiB.
    pub chunked_prefill_size: u32,
    /// Most prompt tokens of a step, also if prompts are not split (`--max-prefill-tokens`), at least 1.
    pub max_prefill_tokens: u32,
    /// Whether decode requests join a step of prompts, with one token each and without drafts (`--enable-mixed-chunk`).
    pub enable_mixed_chunk: bool,
    /// The order of the waiting requests (`--schedule-policy`).
    pub schedule_policy: QueueOrder,
    /// How much of the output that running requests asked for must stay free when others are admitted, as a factor
    /// (`--schedule-conservativeness`), ≥ 0.
    pub schedule_conservativeness: f64,
    /// Most prompts of a step (`--prefill-max-requests`), at least 1. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_max_requests: Option<u32>,
    /// Most requests that wait, at least 1 (`--max-queued-requests`). A request more is rejected; with
    /// `scheduling_policy = "priority"` the least urgent one is, also if it waited before. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_queued_requests: Option<u32>,
    /// Decode steps that must come between two steps with prompts (`--prefill-decode-interval`).
    pub prefill_decode_interval: u32,
    /// From how many running requests on `prefill_decode_interval` acts.
    pub prefill_decode_interval_min_bs: u32,
    /// The loop looks for new requests once in this many passes of decode steps (`--scheduler-recv-interval`), at least
    /// 1. Behind a step with prompts it looks at once.
    pub scheduler_recv_interval: u32,
    /// With `scheduling_policy = "priority"`: a waiting request evicts running ones whose priority number is higher by
    /// more than this (`--priority-scheduling-preemption-threshold`).
    pub priority_scheduling_preemption_threshold: i32,
    /// Which cached prefix goes first when memory is short (`--radix-eviction-policy`).
    pub radix_eviction_policy: EvictionPolicy,
    /// With `radix_eviction_policy = "tlru"`: how many tokens at the end of a conversation need not be cached, at least
    /// 1 (in `--radix-eviction-policy-config`, `threshold` − `next_prompt_estimate`).
    pub tlru_tail: u32,
    /// Which request loses its KV first when memory is short (`--retraction-policy`).
    pub retraction_policy: RetractionPolicy,
    /// With `scheduling_policy = "priority"`: whether running requests are never evicted.
    pub disable_priority_preemption: bool,
    /// Most requests that run at once with a drafter. Default: `max_num_seqs`; 48, as in SGLang, if that is not given
    /// either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speculative_max_running_requests: Option<u32>,
    /// The output length that each client asks for. Requests then end by their end token, and admission expects only a
    /// part of this length. Default: clients ask for what they get, and ignore the end token, as benchmarks do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<u32>,
}

impl Default for SglangSettings {
    fn default() -> SglangSettings {
        SglangSettings {
            chunked_prefill_size: 8192,
            max_prefill_tokens: 16_384,
            enable_mixed_chunk: false,
            schedule_policy: QueueOrder::Fcfs,
            schedule_conservativeness: 1.0,
            prefill_max_requests: None,
            max_queued_requests: None,
            prefill_decode_interval: 0,
            prefill_decode_interval_min_bs: 0,
            scheduler_recv_interval: 1,
            priority_scheduling_preemption_threshold: 10,
            radix_eviction_policy: EvictionPolicy::Lru,
            tlru_tail: 1024,
            retraction_policy: RetractionPolicy::Length,
            disable_priority_preemption: false,
            speculative_max_running_requests: None,
            max_new_tokens: None,
        }
    }
}

impl SglangSettings {
    pub(super) fn is_default(&self) -> bool {
        *self == SglangSettings::default()
    }
}

/// Checks the settings of SGLang's scheduler.
pub(super) fn sglang_settings(_: &'static str, s: &SglangSettings) -> Result<(), BadConfig> {
    let refuse = |key, why: &str| Err(BadConfig { key, why: why.into() });
    if s.max_prefill_tokens == 0 {
        return refuse("sglang.max_prefill_tokens", "must be at least 1");
    }
    if s.scheduler_recv_interval == 0 {
        return refuse("sglang.scheduler_recv_interval", "must be at least 1");
    }
    if s.prefill_max_requests == Some(0) {
        return refuse("sglang.prefill_max_requests", "must be at least 1");
    }
    if s.tlru_tail == 0 {
        return refuse("sglang.tlru_tail", "must be at least 1");
    }
    if s.max_queued_requests == Some(0) {
        return refuse("sglang.max_queued_requests", "must be at least 1");
    }
    if s.speculative_max_running_requests == Some(0) {
        return refuse("sglang.speculative_max_running_requests", "must be at least 1");
    }
    if s.max_new_tokens == Some(0) {
        return refuse("sglang.max_new_tokens", "must be at least 1");
    }
    if !(s.schedule_conservativeness >= 0.0 && s.schedule_conservativeness.is_finite()) {
        return refuse("sglang.schedule_conservativeness", "must be a number ≥ 0");
    }
    Ok(())
}
