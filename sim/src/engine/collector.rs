//! Where a run's facts go: records, totals, the series and, when asked for, every step.

use crate::metrics::{Series, Totals};
use crate::{Outcome, RequestId, RequestRecords, StepRecord, Time};

/// Everything a run leaves behind.
#[derive(Clone, Debug)]
pub struct Collector {
    /// One record a request.
    pub records: RequestRecords,
    /// Sums over steps.
    pub totals: Totals,
    /// Load over time.
    pub series: Series,
    /// Every step, when asked for.
    pub steps: Vec<StepRecord>,
    keep_steps: bool,
}

impl Collector {
    /// For a workload of `requests` requests.
    pub fn new(requests: usize, keep_steps: bool) -> Collector {
        Collector {
            records: RequestRecords::new(requests),
            totals: Totals::default(),
            series: Series::default(),
            steps: Vec::new(),
            keep_steps,
        }
    }

    /// Must every step be told in full? Then no stretch may be skipped.
    pub fn wants_every_step(&self) -> bool {
        self.keep_steps
    }

    /// A step has ended.
    #[inline]
    pub fn step(&mut self, s: &StepRecord) {
        self.totals.step(s);
        self.series.step(s);
        if self.keep_steps {
            self.steps.push(*s);
        }
    }

    /// A request emitted its whole output.
    pub fn finish(&mut self, id: RequestId, now: Time) {
        self.records.finish[id as usize] = now;
        self.records.outcome[id as usize] = Outcome::Finished;
    }

    /// A request can never fit.
    pub fn reject(&mut self, id: RequestId, now: Time) {
        self.records.finish[id as usize] = now;
        self.records.outcome[id as usize] = Outcome::Rejected;
    }
}
