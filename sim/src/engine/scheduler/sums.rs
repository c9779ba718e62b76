//! Appends the tokens that a request emits at the end of a step, and sums over the step's requests.

use crate::engine::request::{RunningRequest, SpecCounts};
use crate::metrics::Totals;
use crate::time::Time;
use crate::workload::RequestId;

/// Sums over a step's decode requests.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) emitted: u32,
    pub(super) drafted: u32,
    pub(super) verified: u32,
    pub(super) accepted: u32,
    pub(super) finished: u32,
    /// Number of requests that also emitted at the end of the step before.
    pub(super) since_last: u32,
}

impl Sums {
    /// Adds the counts of speculation for a request in a step.
    #[inline(always)]
    pub(super) fn count(&mut self, done: &mut SpecCounts, drafted: u32, verified: u32, accepted: u32) {
        done.drafted += drafted;
        done.verified += verified;
        done.accepted += accepted;
        done.rounds += u32::from(verified > 0);
        self.drafted += drafted;
        self.verified += verified;
        self.accepted += accepted;
    }
}

/// Appends the token that a request emits at the end of its prompt, or at the end of recomputation. Returns whether the
/// request ends with it.
pub(super) fn begin_output(
    r: &mut RunningRequest,
    end: Time,
    first_tokens: &mut Vec<RequestId>,
    totals: &mut Totals,
) -> bool {
    r.num_output_tokens += 1;
    r.num_tokens += 1;
    if r.last_emit == Time::MAX {
        first_tokens.push(r.id);
    } else {
        totals.gaps.record(end - r.last_emit, 1);
    }
    r.last_emit = end;
    r.num_output_tokens == r.max_tokens
}

/// Appends the tokens that a decode request emits at the end of a step. `ends`: end times of the step before and of
/// this step.
#[inline(always)]
pub(super) fn append(r: &mut RunningRequest, tokens: u32, ends: (Time, Time), sums: &mut Sums, totals: &mut Totals) {
    let emitted = tokens.min(r.max_tokens - r.num_output_tokens);
    r.num_output_tokens += emitted;
    r.num_tokens += emitted;
    r.num_scheduled_tokens = 0;
    sums.emitted += emitted;
    emit(r, ends, sums, totals);
}

/// Appends the one token that a decode request emits without drafts.
#[inline(always)]
pub(super) fn append_one(r: &mut RunningRequest, ends: (Time, Time), sums: &mut Sums, totals: &mut Totals) {
    r.num_computed_tokens += 1;
    r.num_output_tokens += 1;
    r.num_tokens += 1;
    r.num_scheduled_tokens = 0;
    emit(r, ends, sums, totals);
}

/// Records that a decode request emitted at the end of a step.
#[inline(always)]
fn emit(r: &mut RunningRequest, (last_end, end): (Time, Time), sums: &mut Sums, totals: &mut Totals) {
    if r.last_emit == last_end {
        sums.since_last += 1;
    } else {
        totals.gaps.record_one(end - r.last_emit);
    }
    r.last_emit = end;
    if r.num_output_tokens == r.max_tokens {
        sums.finished += 1;
    }
}
