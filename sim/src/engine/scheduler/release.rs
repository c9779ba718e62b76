//! The release's values for settings that are left out, and numbers derived from settings. Taken from the vLLM files
//! that [`rules`](super::rules) names.

use super::speculative_config::SpeculativeConfig;
use crate::config::{DraftAt, DraftMethod, EngineConfig, FirstDraftPass, Runner, Version};

/// The model runner; default: the one that the release takes for this drafter.
pub(in crate::engine) fn runner(c: &EngineConfig, spec: &SpeculativeConfig) -> Runner {
    let block = matches!(c.method, DraftMethod::Dflash | DraftMethod::Dspark | DraftMethod::DsparkFillIn);
    let old = c.method == DraftMethod::Suffix || (spec.parallel_drafting && !block);
    let needs_v1 = spec.num_speculative_tokens > 0 && old;
    c.runner.unwrap_or(if c.version < Version::V0_33 || needs_v1 { Runner::V1 } else { Runner::V2 })
}

/// When drafts are made; default: as in the release.
pub(super) fn draft_at(c: &EngineConfig) -> DraftAt {
    c.draft_at.unwrap_or(if c.version == Version::V0 { DraftAt::StepStart } else { DraftAt::StepEnd })
}

/// The tokens of the first draft pass; default: as in the release.
pub(in crate::engine) fn first_draft_pass(c: &EngineConfig) -> FirstDraftPass {
    let padded = draft_at(c) == DraftAt::StepEnd;
    c.first_draft_pass.unwrap_or(if padded { FirstDraftPass::Padded } else { FirstDraftPass::Unseen })
}

/// Whether the next step is scheduled while one is in flight. vLLM does so wherever it can.
pub(super) fn async_scheduling(c: &EngineConfig, spec: &SpeculativeConfig) -> bool {
    c.async_scheduling.unwrap_or(never_async(c, spec).is_none())
}

/// Why async scheduling is not possible; `None` if it is.
pub(super) fn never_async(c: &EngineConfig, spec: &SpeculativeConfig) -> Option<&'static str> {
    let (new, v2) = (c.version >= Version::V0_33, runner(c, spec) == Runner::V2);
    match c.method {
        _ if draft_at(c) == DraftAt::StepStart => Some("drafts are made at the start of a step"),
        _ if spec.num_speculative_tokens == 0 => None,
        _ if first_draft_pass(c) == FirstDraftPass::Unseen => Some("the first draft pass waits for what was accepted"),
        DraftMethod::Suffix => Some("the drafter looks up what was accepted"),
        DraftMethod::Ngram if !(new && v2) => Some("the drafter looks up what was accepted"),
        _ => None,
    }
}

/// vLLM's `num_lookahead_tokens`: KV slots reserved behind a request's scheduled tokens, for `k` drafts.
pub(super) fn num_lookahead_tokens(method: DraftMethod, k: u32) -> u32 {
    match method {
        _ if k == 0 => 0,
        DraftMethod::Ngram | DraftMethod::Suffix => 0,
        DraftMethod::DraftModel | DraftMethod::Eagle | DraftMethod::Eagle3 | DraftMethod::Mtp | DraftMethod::Dspark => {
            k
        }
        DraftMethod::Dflash | DraftMethod::DsparkFillIn => k + 1,
    }
}

/// vLLM's `max_num_new_slots_for_drafting`: extra tokens that each request takes from the token budget.
pub(super) fn draft_slots(c: &EngineConfig, spec: &SpeculativeConfig) -> u32 {
    let (k, old) = (spec.num_speculative_tokens, c.version == Version::V0_32);
    match c.method {
        _ if k == 0 => 0,
        DraftMethod::DraftModel if spec.parallel_drafting => k,
        DraftMethod::DraftModel => 1,
        DraftMethod::Eagle | DraftMethod::Eagle3 if spec.parallel_drafting => k - 1,
        DraftMethod::Dflash if old => k,
        DraftMethod::Dspark | DraftMethod::DsparkFillIn if old => k - 1,
        _ => 0,
    }
}

/// vLLM's `num_prefill_lookahead_tokens`: how many tokens behind a chunk the drafter needs, for `k` drafts.
pub(super) fn num_prefill_lookahead_tokens(c: &EngineConfig, k: u32) -> u32 {
    match c.method {
        _ if k == 0 => 0,
        DraftMethod::Ngram | DraftMethod::Suffix | DraftMethod::DraftModel => 0,
        DraftMethod::Mtp if c.mtp_modules > 1 && k > 1 => k,
        _ => 1,
    }
}

/// Whether the table of lengths is ignored: runner V1 of 0.33 uses the fixed length if the drafter cannot change its
/// length.
pub(super) fn drops_table(c: &EngineConfig, spec: &SpeculativeConfig) -> bool {
    let dspark = matches!(c.method, DraftMethod::Dspark | DraftMethod::DsparkFillIn);
    c.version >= Version::V0_33 && runner(c, spec) == Runner::V1 && dspark
}

/// Draft length by number of scheduled requests, from 0. Numbers between and behind the ranges take the length of the
/// range before.
pub(super) fn lookup(c: &EngineConfig, spec: &SpeculativeConfig) -> Vec<u32> {
    let most = i64::from(spec.num_speculative_tokens);
    let mut ranges = spec.per_batch_size.clone();
    ranges.sort_unstable();
    let at = |n: i64| ranges.iter().rev().find(|&&(first, _, _)| first <= n).map_or(0, |&(_, _, k)| k.min(most) as u32);
    (0..=i64::from(c.max_num_seqs)).map(at).collect()
}
