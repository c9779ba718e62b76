//! Records the steps of a simulated run in the format of a live run's tape. The simulated and the live run can then be
//! compared field by field.

use foretoken_sim::executor::{DraftPass, Executor, Moment, StepPlan};
use foretoken_sim::live::{Mark, MarkKind, Round, StepTrace, TracedNode};
use foretoken_sim::{AroundExecutor, ContextReads, Drafts, PassShape, RequestId, Time};

/// An executor that forwards all calls to the executor `inner`. It records the calls as steps, and adds host time
/// between steps.
pub struct TraceRecorder<E> {
    inner: E,
    /// True if the run has no speculation. A target pass then has one new token per decode request.
    plain: bool,
    /// Host time (time in which no pass runs) that is added after each step. The executor `inner` only has the times of
    /// passes.
    overhead: Time,
    /// True if a step has ended, and the host time after it (time in which no pass runs) is not added yet.
    host_time_due: bool,
    step: StepTrace,
    steps: Vec<StepTrace>,
}

impl<E: Executor> TraceRecorder<E> {
    /// Makes a recorder of the calls of `inner`. `overhead` is the host time between steps. `plain` is true if there is
    /// no speculation.
    pub fn new(inner: E, plain: bool, overhead: Time) -> TraceRecorder<E> {
        TraceRecorder { inner, plain, overhead, host_time_due: false, step: StepTrace::default(), steps: Vec::new() }
    }

    pub fn into_steps(self) -> Vec<StepTrace> {
        self.steps
    }

    fn mark(&mut self, kind: MarkKind, begin: Time, shape: PassShape) {
        let end = self.inner.now();
        self.step.marks.push(Mark { kind, begin, end, device: end.saturating_sub(begin), shape });
    }

    fn instant(&mut self, kind: MarkKind) {
        self.mark(kind, self.inner.now(), PassShape::default());
    }

    fn note(&mut self, step: &StepPlan, drafts: &Drafts, accepted: &[u32]) {
        let batch = &step.batch;
        self.step.step = batch.step;
        (self.step.num_running, self.step.num_waiting) = (batch.num_running, batch.num_waiting);
        self.step.chunks.extend_from_slice(step.chunks);
        for (i, (&request, &start)) in batch.ids.iter().zip(batch.emitted).enumerate() {
            let context = batch.context[i];
            let mut round = Round { request, start, context, drafted: 0, verified: 0, accepted: 0, nodes: 0 };
            if !self.plain {
                (round.drafted, round.verified) = (drafts.draft_len[i], drafts.verify_len[i]);
                round.accepted = accepted[i];
                if drafts.in_trees() {
                    let nodes = drafts.trees[i].nodes();
                    round.nodes = nodes.len() as u32;
                    let traced = |n: &foretoken_sim::tree::Node| TracedNode {
                        parent: n.parent,
                        rank: n.rank,
                        confidence: n.confidence,
                        kept: n.kept,
                        accepted: false,
                    };
                    self.step.nodes.extend(nodes.iter().map(traced));
                }
            }
            self.step.rounds.push(round);
        }
    }
}

impl<E: Executor> AroundExecutor for TraceRecorder<E> {
    type Inner = E;
    type Error = E::Error;

    fn inner(&self) -> &E {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut E {
        &mut self.inner
    }

    fn around_begin_iteration(&mut self) {
        self.inner.begin_iteration();
        // The steps of a live run include host time, so it is added here too.
        if std::mem::take(&mut self.host_time_due) && self.overhead > Time::ZERO {
            self.inner.wait_until(self.inner.now() + self.overhead);
        }
        self.instant(MarkKind::Round);
    }

    fn around_wait_until(&mut self, at: Time) {
        let begin = self.inner.now();
        self.inner.wait_until(at);
        self.mark(MarkKind::Wait, begin, PassShape::default());
    }

    fn around_cap_draft_limits(&mut self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]) {
        self.inner.cap_draft_limits(ids, emitted, limit);
        self.instant(MarkKind::Scheduled);
    }

    fn around_charge_decision(&mut self, moment: Moment) {
        self.inner.charge_decision(moment);
        self.instant(MarkKind::Decided(moment));
    }

    fn around_draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), E::Error> {
        // The shape is computed before the pass runs, because the pass extends the draft trees.
        let (shape, begin) = (pass.shape(&step.batch, &out.trees), self.inner.now());
        self.inner.draft(step, pass, out)?;
        self.mark(MarkKind::Draft(pass.pass), begin, shape);
        Ok(())
    }

    fn around_verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), E::Error> {
        let shape = step.target_shape(drafts, !self.plain, ContextReads::Once);
        let begin = self.inner.now();
        self.inner.verify(step, drafts, accepted)?;
        self.mark(MarkKind::Verify, begin, shape);
        self.note(step, drafts, accepted);
        self.steps.push(std::mem::take(&mut self.step));
        self.host_time_due = true;
        Ok(())
    }
}
