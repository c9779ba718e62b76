//! SGLang 0.5.23 (`managers/scheduler.py`, `managers/schedule_policy.py`). Its rules are a scheduler of their own
//! (`engine/scheduler/sglang/`); of vLLM's numbers and switches only a few mean something.

use super::{Release, v0_33};
use crate::config::choices::{DraftAt, Runner};

pub(super) const RELEASE: Release = Release {
    name: "sglang-0.5.23",
    number: "0.5.23",
    sglang: true,
    draft_at: DraftAt::StepStart,
    runner: Runner::V1,
    reserve_full_isl: false,
    pad_admissions: false,
    defers_prefills: false,
    null_blocks: 0,
    sorts_waiting: false,
    ngram_async: false,
    bounds_block_batches: false,
    skips_useless_drafts: false,
    adapts_verification: false,
    ..v0_33::RELEASE
};
