//! vLLM 0.33.0 (`v1/core/sched/scheduler.py`, `config/vllm.py`, `config/speculative.py`).

use super::release::Release;
use crate::config::choices::{DraftAt, Runner};

pub(super) const RELEASE: Release = Release {
    name: "vllm-0.33",
    number: "0.33.0",
    sglang: false,
    prefills_apart: false,
    charges_drafts: true,
    draft_at: DraftAt::StepEnd,
    runner: Runner::V2,
    chunked_prefill: true,
    reserve_full_isl: true,
    watermark: 0.0,
    watermark_always: false,
    pad_admissions: true,
    defers_prefills: true,
    null_blocks: 1,
    spare_blocks: 0,
    tokens_beyond_model_len: 0,
    sorts_waiting: true,
    rejects_on_arrival: true,
    stops_at_unsplittable: false,
    goes_on_after_self_preemption: true,
    hashes_lookahead: true,
    drops_last_hit: false,
    mtp_needs_long_blocks: false,
    caches_when_verified: true,
    ngram_async: true,
    ignores_dspark_table: true,
    charges_draft_blocks: false,
    bounds_block_batches: true,
    skips_useless_drafts: true,
    writes_context_alone: true,
    adapts_verification: true,
};
