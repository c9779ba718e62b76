//! `prefill_schedule_interval`: while requests decode, prompts are scheduled every so many steps only.

use super::rules::Rules;
use crate::engine::request::RunningRequest;

/// What the scheduler remembers from step to step, and of this one.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Could the last step that prefilled not empty the waiting list? Then prefills are not held back.
    prefill_capacity_bound: bool,
    /// Steps that scheduled tokens.
    num_executed_steps: i64,
    /// The last of them that prefilled.
    last_prefill_step: i64,
    /// Are prefills held back in this step?
    pub(super) defer_prefills: bool,
    /// Was a running request's prompt scheduled in this step?
    pub(super) prefill_scheduled: bool,
    /// Was a request admitted in this step with more than a token left?
    pub(super) prefill_admitted: bool,
}

impl Pace {
    pub(super) fn new(rules: &Rules) -> Pace {
        Pace {
            prefill_capacity_bound: false,
            num_executed_steps: 0,
            last_prefill_step: -i64::from(rules.prefill_schedule_interval),
            defer_prefills: false,
            prefill_scheduled: false,
            prefill_admitted: false,
        }
    }

    /// A step begins.
    #[inline]
    pub(super) fn begin(&mut self, rules: &Rules, running: &[RunningRequest]) {
        (self.prefill_scheduled, self.prefill_admitted) = (false, false);
        let interval = i64::from(rules.prefill_schedule_interval);
        if interval > 1 {
            let due = self.num_executed_steps + 1 - self.last_prefill_step >= interval;
            self.defer_prefills = !self.prefill_capacity_bound && !due && running.iter().any(|r| !r.prefilling);
        }
    }

    /// Looked at the waiting list: `left` says whether requests still wait that were never passed over.
    pub(super) fn admitted(&mut self, left: bool) {
        if !self.defer_prefills {
            self.prefill_capacity_bound = left;
        }
    }

    /// A step was decided; `scheduled`: did it schedule anybody?
    #[inline]
    pub(super) fn end(&mut self, rules: &Rules, scheduled: bool) {
        self.skip(u32::from(scheduled));
        if rules.prefill_schedule_interval > 1 && (self.prefill_scheduled || self.prefill_admitted) {
            self.last_prefill_step = self.num_executed_steps;
        }
    }

    /// So many steps went by that decoded only.
    pub(super) fn skip(&mut self, steps: u32) {
        self.num_executed_steps += i64::from(steps);
    }
}
