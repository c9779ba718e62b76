//! What SGLang's scheduler is set to.

use crate::config::{EngineConfig, EvictionPolicy, QueueOrder, RetractionPolicy, SchedulingPolicy};

/// What SGLang's scheduler is set to. Numbers are tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SglangRules {
    /// KV slots of the pool.
    pub kv_tokens: u32,
    /// `--page-size`.
    pub page_size: u32,
    /// `--chunked-prefill-size`; `None` if prompts are not split.
    pub chunked_prefill_size: Option<u32>,
    /// `--max-prefill-tokens`.
    pub max_prefill_tokens: u32,
    /// `--max-running-requests`.
    pub max_running_requests: u32,
    /// `--prefill-max-requests`.
    pub prefill_max_requests: Option<u32>,
    /// `--enable-mixed-chunk`.
    pub mixed_chunk: bool,
    /// `--schedule-policy`.
    pub order: QueueOrder,
    /// `--enable-priority-scheduling` with its preemption threshold.
    pub priority: Option<Priority>,
    /// `--radix-eviction-policy`.
    pub eviction: EvictionPolicy,
    /// `--radix-eviction-policy-config`: `threshold` − `next_prompt_estimate`.
    pub tlru_tail: u32,
    /// `--retraction-policy`.
    pub retraction: RetractionPolicy,
    /// `--schedule-conservativeness`.
    pub conservativeness: f64,
    /// Whether there is a radix cache.
    pub radix_cache: bool,
    /// KV slots that a request holds behind its certain tokens when it drafts: twice the most that a step may fill.
    /// `None` without speculation.
    pub reserve: Option<u32>,
    /// Whether the radix cache's keys are pairs of tokens (EAGLE).
    pub pairs: bool,
    /// Whether a batch is made before the result of the last one is read.
    pub overlap: bool,
    /// `--prefill-decode-interval`: decode steps after a step with prompts, from how many running requests on.
    pub decode_interval: u32,
    /// `--max-queued-requests`.
    pub max_queued: Option<u32>,
    /// From how many running requests on `decode_interval` holds.
    pub decode_interval_min: u32,
    /// The loop looks for new requests once in this many passes of decode steps.
    pub recv_interval: u32,
    /// Most tokens of a request.
    pub longest: u32,
    /// The output length that each client asks for; `None` if clients ask for what they get.
    pub max_new_tokens: Option<u32>,
}

/// Priority scheduling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priority {
    /// Whether low numbers go first.
    pub low_first: bool,
    /// By how much more a waiting request must have so that it evicts a running one; `None` if it never does.
    pub preempts_above: Option<i32>,
}

impl SglangRules {
    /// The rules that follow from the engine's settings. `drafts` is the longest draft of a step, 0 without a drafter;
    /// `overlap` says whether a batch is made before the result of the last one is read.
    pub fn of(c: &EngineConfig, drafts: u32, overlap: bool) -> SglangRules {
        let s = &c.sglang;
        let (_, running) = c.running_limit(drafts > 0);
        let kv_tokens = c.target_blocks(drafts > 0).saturating_mul(c.block_size);
        SglangRules {
            kv_tokens,
            page_size: c.block_size,
            chunked_prefill_size: (s.chunked_prefill_size > 0).then_some(s.chunked_prefill_size),
            max_prefill_tokens: s.max_prefill_tokens,
            max_running_requests: running.min((kv_tokens / 2).max(1)),
            prefill_max_requests: s.prefill_max_requests,
            mixed_chunk: s.enable_mixed_chunk,
            order: s.schedule_policy,
            priority: (c.scheduling_policy == SchedulingPolicy::Priority).then_some(Priority {
                low_first: true,
                preempts_above: (!s.disable_priority_preemption).then_some(s.priority_scheduling_preemption_threshold),
            }),
            eviction: s.radix_eviction_policy,
            tlru_tail: s.tlru_tail,
            retraction: s.retraction_policy,
            conservativeness: s.schedule_conservativeness,
            radix_cache: c.prefix_caching && !(drafts > 0 && c.drafts_end_prefix_hits),
            reserve: (drafts > 0).then_some(2 * (drafts + 1)),
            pairs: drafts > 0 && c.method.reads_hidden_states(),
            overlap,
            decode_interval: s.prefill_decode_interval,
            decode_interval_min: s.prefill_decode_interval_min_bs,
            max_queued: s.max_queued_requests,
            recv_interval: s.scheduler_recv_interval,
            longest: c.max_model_len.min(kv_tokens).saturating_sub(1),
            max_new_tokens: s.max_new_tokens,
        }
    }

    /// Whether a prompt is refused, so that one token runs in its place.
    pub fn refuses(&self, prompt: u32) -> bool {
        prompt > self.longest.saturating_sub(6)
    }

    /// The most output tokens of a request with this prompt: memory and the model's length bound it. With 0 the prompt
    /// is computed, and its client gets nothing.
    pub fn most_outputs(&self, prompt: u32) -> u32 {
        let memory = self.kv_tokens.saturating_sub(prompt.next_multiple_of(self.page_size) + self.page_size + 1);
        memory.min(self.longest.saturating_sub(prompt + 1))
    }
}
