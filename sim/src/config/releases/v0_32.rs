//! vLLM 0.32.0 (`v1/core/sched/scheduler.py`, `config/vllm.py`, `config/speculative.py`), which makes draft tokens at
//! the end of a step.

use super::{Release, v0_33};
use crate::config::choices::Runner;

pub(super) const RELEASE: Release = Release {
    name: "vllm-0.32",
    number: "0.32.0",
    runner: Runner::V1,
    defers_prefills: false,
    stops_at_unsplittable: true,
    goes_on_after_self_preemption: false,
    hashes_lookahead: false,
    drops_last_hit: true,
    mtp_needs_long_blocks: true,
    caches_when_verified: false,
    ngram_async: false,
    ignores_dspark_table: false,
    charges_draft_blocks: true,
    bounds_block_batches: false,
    skips_useless_drafts: false,
    writes_context_alone: false,
    adapts_verification: false,
    ..v0_33::RELEASE
};
