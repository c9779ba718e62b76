//! The error for a difference between our replay and the recorded run of vLLM, and helpers for their comparison.

use super::fixture::{Entry, Recorded, Step};
use foretoken_sim::engine::{RunningRequest, Scheduler};
use std::collections::HashMap;

/// The recorder, the Python program that recorded vLLM, ends a workload after this number of successive steps without a
/// sampled token or an arrival.
pub(super) const IDLE_STEPS: u32 = 100;

/// A difference between a replay with our scheduler or engine and the recorded run of vLLM.
#[derive(Debug, thiserror::Error)]
#[error("{what}: vLLM {theirs}; ours {ours}")]
pub struct Differs {
    /// The name of the compared value that differs between our replay and the recorded run of vLLM.
    pub what: String,
    /// The value in vLLM's recorded run that differs from ours, as text.
    pub theirs: String,
    /// The value that our scheduler or engine gives, as text.
    pub ours: String,
}

pub(super) fn differs(what: impl Into<String>, theirs: impl std::fmt::Debug, ours: impl std::fmt::Debug) -> Differs {
    Differs { what: what.into(), theirs: format!("{theirs:?}"), ours: format!("{ours:?}") }
}

/// The requests that our scheduler has scheduled in the present step, in the scheduler's order.
pub(super) fn entries(scheduler: &Scheduler) -> Vec<Entry> {
    let admitted = &scheduler.output().admitted;
    let cached: HashMap<u32, u32> = admitted.iter().map(|a| (a.id, a.num_cached_tokens)).collect();
    let scheduled = scheduler.running().iter().filter(|r| r.num_scheduled_tokens > 0);
    let entry = |r: &RunningRequest| {
        let known = r.num_tokens + r.num_output_placeholders;
        let drafts = (r.num_computed_tokens + r.num_scheduled_tokens).saturating_sub(known);
        Entry { request: r.id, tokens: r.num_scheduled_tokens, drafts, cached: cached.get(&r.id).copied() }
    };
    scheduled.map(entry).collect()
}

/// Whether an assertion of vLLM failed in the step that our scheduler made as `step`, so that the recording ends before
/// this step. vLLM may pad a request that it admits with tokens in place of draft tokens, and asserts that the request
/// then has as many tokens in the step as a decoding request. The assertion fails if the threshold for long prefills
/// cuts off padding tokens.
pub(super) fn cuts_padding(recorded: &Recorded, step: &Step) -> bool {
    let padded = 1 + recorded.speculation.num_speculative_tokens;
    let one_left = |e: &Entry| e.cached.is_some() && e.tokens - e.drafts == 1;
    recorded.ending == "assertion" && step.entries.iter().any(|e| one_left(e) && e.tokens > 1 && e.tokens < padded)
}
