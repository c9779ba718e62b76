//! vLLM's v0 engine as of 0.6.3 (`core/scheduler.py`), on which the papers ran.

use super::release::Release;
use crate::config::choices::{DraftAt, Runner};

pub(super) const RELEASE: Release = Release {
    name: "vllm-v0",
    number: "0.6.3",
    sglang: false,
    prefills_apart: true,
    charges_drafts: false,
    draft_at: DraftAt::StepStart,
    runner: Runner::V1,
    chunked_prefill: false,
    reserve_full_isl: false,
    watermark: 0.01,
    watermark_always: true,
    pad_admissions: false,
    defers_prefills: false,
    null_blocks: 0,
    spare_blocks: 1,
    tokens_beyond_model_len: 1,
    sorts_waiting: false,
    rejects_on_arrival: false,
    stops_at_unsplittable: false,
    goes_on_after_self_preemption: false,
    hashes_lookahead: false,
    drops_last_hit: false,
    mtp_needs_long_blocks: false,
    caches_when_verified: false,
    ngram_async: false,
    ignores_dspark_table: false,
    charges_draft_blocks: false,
    bounds_block_batches: false,
    skips_useless_drafts: false,
    writes_context_alone: false,
    adapts_verification: false,
};
