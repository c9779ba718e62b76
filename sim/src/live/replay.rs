//! A clock that repeats the times of a real clock. With the recorded acceptance, the engine must repeat every step of
//! the live run.

use super::{Mark, MarkKind, StepTrace};
use crate::acceptance::{AcceptanceSource, Truths};
use crate::drafts::Drafts;
use crate::executor::{DraftPass, Executor, Moment, RequestTruth, StepPlan};
use crate::latency::PassShape;
use crate::metrics::Spent;
use crate::time::Time;
use crate::workload::RequestId;

/// The error of a replay that no longer follows its recording: the engine began an activity (such as a pass) of another
/// kind than the activity that the recording has next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the replay left the recording at step {step}: {}, but it now asks for {asked:?}",
    recorded.map_or_else(|| "the recording ends here".to_owned(), |m| format!("{m:?} came next"))
)]
pub struct Diverged {
    /// Index of the step at which the replay diverged.
    pub step: u64,
    /// The kind of the activity (such as a pass or a decision) that comes next in the recording; `None` at the end of
    /// the recording.
    pub recorded: Option<MarkKind>,
    /// The kind of the activity (such as a pass or a decision) that the replay began.
    pub asked: MarkKind,
}

/// An executor whose passes and decisions take the times that a real run recorded.
pub struct ReplayClock<'a> {
    truths: Truths<'a>,
    /// The recorded activities (passes, decisions, waits) that are not replayed yet, each with the index of its step.
    /// Activities of the kind `Recorded` (a step was given to the recorder) are left out.
    marks: Box<dyn Iterator<Item = (u64, Mark)> + 'a>,
    now: Time,
    step: u64,
    diverged: Option<Diverged>,
}

impl<'a> ReplayClock<'a> {
    /// Replays the recorded steps one after the other. `acceptance` is the acceptance that was recorded with them
    /// ([`super::RecordedRounds`]), or the source that decided the live run's acceptance. `max_draft_len` is the most
    /// draft tokens of a request in a step, 0 without a drafter.
    pub fn new(
        steps: &'a [StepTrace],
        acceptance: &'a dyn AcceptanceSource,
        max_draft_len: u32,
        requests: usize,
    ) -> ReplayClock<'a> {
        let marks = steps.iter().flat_map(|s| s.marks.iter().map(|&m| (s.step, m)));
        let marks = marks.filter(|(_, m)| m.kind != MarkKind::Recorded);
        ReplayClock {
            truths: Truths::new(acceptance, max_draft_len, requests),
            marks: Box::new(marks),
            now: Time::ZERO,
            step: 0,
            diverged: None,
        }
    }

    /// Moves the clock to the end of the next recorded activity. If this activity has another kind than `asked`, or if
    /// no activity is left, the replay has diverged, and from then on the clock does not follow the recording.
    fn pass(&mut self, asked: MarkKind) {
        if self.diverged.is_some() {
            return;
        }
        let next = self.marks.next();
        match next {
            Some((step, mark)) if mark.kind == asked => {
                self.step = step;
                self.now = mark.end;
            }
            other => {
                let step = other.map_or(self.step, |(step, _)| step);
                self.diverged = Some(Diverged { step, recorded: other.map(|(_, m)| m.kind), asked });
            }
        }
    }

    fn result(&self) -> Result<(), Diverged> {
        self.diverged.clone().map_or(Ok(()), Err)
    }
}

impl Executor for ReplayClock<'_> {
    type Error = Diverged;
    const SKIPS: bool = false;

    fn now(&self) -> Time {
        self.now
    }

    fn queued_until(&self) -> Time {
        self.now
    }

    fn begin_iteration(&mut self) {
        self.pass(MarkKind::Round);
    }

    fn wait_until(&mut self, _: Time) {
        self.pass(MarkKind::Wait);
        // After a divergence the clock jumps to the largest time, at which the engine's loop ends. If the clock stood
        // still, the next arrival would never come, and the loop would wait for ever.
        if self.diverged.is_some() {
            self.now = Time::MAX;
        }
    }

    fn start(&mut self, request: RequestTruth) {
        self.truths.start(request);
    }

    fn preempted(&mut self, _: RequestId) {}

    fn end(&mut self, id: RequestId) {
        self.truths.end(id);
    }

    fn cap_draft_limits(&mut self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]) {
        self.pass(MarkKind::Scheduled);
        self.truths.cap_draft_limits(ids, emitted, limit);
    }

    fn drafts_in_parallel(&self) -> bool {
        false
    }

    fn charge_decision(&mut self, moment: Moment) {
        self.pass(MarkKind::Decided(moment));
    }

    fn draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), Diverged> {
        self.pass(MarkKind::Draft(pass.pass));
        self.truths.reveal(&step.batch, pass, out);
        self.result()
    }

    fn verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), Diverged> {
        self.pass(MarkKind::Verify);
        if !accepted.is_empty() {
            self.truths.accept(&step.batch, drafts, accepted);
        }
        self.result()
    }

    fn spent(&mut self, _: Time) -> Option<Spent> {
        None
    }

    fn plain_step(&mut self, _: PassShape) {
        unreachable!("recorded time has no steps to skip")
    }
}
