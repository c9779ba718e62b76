//! `prefill_schedule_interval` = N: while requests decode, prompts are scheduled only in every N-th step. Exception: a
//! step that may schedule prompts can leave requests waiting for lack of room. Then the next step may schedule prompts,
//! too.

use super::rules::Rules;
use crate::engine::request::RunningRequest;

/// The state of the rule `prefill_schedule_interval` (while requests decode, prompts are scheduled only in every N-th
/// step), from step to step and in the current step.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Whether the last step that did not defer prefills left requests waiting for lack of room. Then the next step
    /// does not defer prefills either.
    prefill_capacity_bound: bool,
    /// Number of steps so far that scheduled any tokens.
    num_executed_steps: i64,
    /// The number of the last step that scheduled a prefill, among the steps that scheduled tokens.
    last_prefill_step: i64,
    /// Whether the server whose rank this engine is holds prompts back.
    pub(super) held: bool,
    /// Whether prefills are deferred in this step.
    pub(super) defer_prefills: bool,
    /// Whether a running request's prompt was scheduled in this step.
    pub(super) prefill_scheduled: bool,
    /// Whether a request with more than one token left to compute was admitted in this step.
    pub(super) prefill_admitted: bool,
}

impl Pace {
    pub(super) fn new(rules: &Rules) -> Pace {
        Pace {
            prefill_capacity_bound: false,
            num_executed_steps: 0,
            last_prefill_step: -i64::from(rules.prefill_schedule_interval),
            held: false,
            defer_prefills: false,
            prefill_scheduled: false,
            prefill_admitted: false,
        }
    }

    /// Begins a step: decides whether the step defers prefills. Prefills are never deferred if no running request
    /// decodes.
    #[inline]
    pub(super) fn begin(&mut self, rules: &Rules, running: &[RunningRequest]) {
        (self.prefill_scheduled, self.prefill_admitted) = (false, false);
        self.defer_prefills = self.held;
        let interval = i64::from(rules.prefill_schedule_interval);
        if interval > 1 && !self.held {
            let due = self.num_executed_steps + 1 - self.last_prefill_step >= interval;
            self.defer_prefills = !self.prefill_capacity_bound && !due && running.iter().any(|r| !r.prefilling);
        }
    }

    /// Called when the step has admitted all requests that it can. `left` says whether requests are left in the waiting
    /// list, apart from those that the scheduler passed over.
    pub(super) fn admitted(&mut self, left: bool) {
        if !self.defer_prefills {
            self.prefill_capacity_bound = left;
        }
    }

    /// Called when a step is decided. `scheduled` says whether the step scheduled any request; only such steps are
    /// counted. If the step scheduled a prefill, stores the step's number.
    #[inline]
    pub(super) fn end(&mut self, rules: &Rules, scheduled: bool) {
        self.skip(u32::from(scheduled));
        if rules.prefill_schedule_interval > 1 && (self.prefill_scheduled || self.prefill_admitted) {
            self.last_prefill_step = self.num_executed_steps;
        }
    }

    /// Adds `steps` to the number of counted steps. These steps scheduled tokens, but no prompt.
    pub(super) fn skip(&mut self, steps: u32) {
        self.num_executed_steps += i64::from(steps);
    }
}
