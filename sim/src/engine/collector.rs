//! Collects the results of a run: records, totals, the series and, if wanted, every step.

use super::request::{RejectReason, RunningRequest};
use super::scheduler_output::Admission;
use super::spec_decode::SpecDecode;
use crate::metrics::{Outcome, RequestRecords, Series, StepRecord, Totals};
use crate::patience::Patience;
use crate::time::Time;
use crate::workload::RequestId;

/// All results of a run.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The records of all requests.
    pub records: RequestRecords,
    /// Sums over all steps.
    pub totals: Totals,
    /// The load over time.
    pub series: Series,
    /// Every step, if wanted.
    pub steps: Vec<StepRecord>,
    /// Requests that could never run to their end, with the reason, in order.
    pub rejected: Vec<(RequestId, RejectReason)>,
    keep_steps: bool,
    /// Decides when the run may end early; `None` if it runs to its end.
    patience: Option<Patience>,
}

impl Collector {
    /// An empty collector for a workload with `requests` requests.
    pub fn new(requests: usize, keep_steps: bool) -> Collector {
        Collector {
            records: RequestRecords::new(requests),
            totals: Totals::default(),
            series: Series::default(),
            steps: Vec::new(),
            rejected: Vec::new(),
            keep_steps,
            patience: None,
        }
    }

    /// Lets the run end once the verdict of `patience` is certain.
    pub(crate) fn be_patient(&mut self, patience: Option<Patience>) {
        self.patience = patience;
    }

    /// Whether the verdict is certain, so that the run may end.
    #[inline]
    pub(super) fn certain(&self) -> bool {
        self.patience.as_ref().is_some_and(Patience::certain)
    }

    /// Takes out the `patience` with its counts, after the run.
    pub(crate) fn patience(&mut self) -> Option<Patience> {
        self.patience.take()
    }

    /// Whether every step must be recorded. Then no stretch may be skipped.
    pub fn wants_every_step(&self) -> bool {
        self.keep_steps
    }

    /// Records a step that has ended.
    #[inline]
    pub fn step(&mut self, record: &StepRecord, spec: &SpecDecode) {
        self.totals.step(record);
        self.series.step(record);
        if spec.drafts.wants.confidence && !spec.drafts.in_trees() {
            self.totals.calibration.step(&spec.drafts, &spec.accepted);
        }
        if self.keep_steps {
            self.steps.push(*record);
        }
    }

    /// Records that a request was admitted. Returns whether this was the first time.
    pub(super) fn admit(&mut self, admission: Admission, now: Time) -> bool {
        let i = admission.id as usize;
        let first = self.records.first_scheduled[i] == Time::MAX;
        if first {
            self.records.first_scheduled[i] = now;
            self.records.cached_tokens[i] = admission.num_cached_tokens;
        }
        first
    }

    /// Records that a request left the running list: adds its counts since it was admitted.
    pub(super) fn left(&mut self, r: &RunningRequest) {
        let (records, i) = (&mut self.records, r.id as usize);
        records.emitted[i] = r.num_output_tokens;
        records.rounds[i] += r.done.rounds;
        records.drafted[i] += r.done.drafted;
        records.verified[i] += r.done.verified;
        records.accepted[i] += r.done.accepted;
    }

    /// Records that a request lost its KV.
    pub(super) fn preempt(&mut self, r: &RunningRequest) {
        self.left(r);
        self.records.preemptions[r.id as usize] += 1;
    }

    /// Records that a request emitted its whole output.
    pub(super) fn finish(&mut self, r: &RunningRequest, now: Time) {
        self.left(r);
        self.records.finish[r.id as usize] = now;
        self.records.outcome[r.id as usize] = Outcome::Finished;
        self.tell(r.id);
    }

    /// Records that a request can never run.
    pub(super) fn reject(&mut self, id: RequestId, now: Time, reason: RejectReason) {
        self.records.finish[id as usize] = now;
        self.records.outcome[id as usize] = Outcome::Rejected;
        self.rejected.push((id, reason));
        self.tell(id);
    }

    fn tell(&mut self, id: RequestId) {
        if let Some(patience) = &mut self.patience {
            patience.ended(&self.records, id);
        }
    }
}
