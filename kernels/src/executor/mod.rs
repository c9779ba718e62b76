//! The device executor: the simulator's engine, scheduler and policies run on real forward passes and a real clock.
//!
//! The engine plans passes; the executor runs them and reports their results. The executor has the things that only a
//! run on a device needs: the tokens, the paged KV of the target and the draft model, and the clock. It makes no
//! decisions of the scheduler or the policy, and no layer above depends on which executor runs. With
//! [`Acceptance::Greedy`] and [`Acceptance::Sampled`] the models decide which draft tokens are accepted. With
//! [`Acceptance::Declared`] an acceptance source of the simulator decides.

mod acceptance;
mod buffers;
mod capacity;
mod clock;
mod drafting;
mod error;
mod marks;
mod pair;
mod prompts;
mod requests;
mod state;
mod verifying;

pub use acceptance::Acceptance;
pub use capacity::{Capacity, Needs};
pub use clock::Waiting;
pub use error::{CannotServe, LiveError};
pub use pair::Pair;
pub use prompts::{Prompts, RandomPrompts};
pub use state::{DeviceExecutor, Live};

use crate::device::Device;
use foretoken_sim::executor::{DraftPass, Executor, Moment, StepPlan};
use foretoken_sim::live::MarkKind;
use foretoken_sim::metrics::Spent;
use foretoken_sim::{ContextReads, Drafts, PassShape, RequestId, RequestTruth, Time};

impl<D: Device> Executor for DeviceExecutor<'_, D> {
    type Error = LiveError<D::Error>;
    const SKIPS: bool = false;

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn queued_until(&self) -> Time {
        self.clock.now()
    }

    fn begin_iteration(&mut self) {
        self.mark_instant(MarkKind::Round);
    }

    fn wait_until(&mut self, at: Time) {
        let begin = self.clock.read();
        self.clock.wait_until(at);
        self.mark_span(MarkKind::Wait, begin);
    }

    fn start(&mut self, request: RequestTruth) {
        if let Some(truths) = &mut self.truths {
            truths.start(request);
        }
        self.requests.start(request, self.prompts);
    }

    fn preempted(&mut self, id: RequestId) {
        self.requests.get(id).clear_drafts();
    }

    fn end(&mut self, id: RequestId) {
        if let Some(truths) = &mut self.truths {
            truths.end(id);
        }
        if let Some(output) = self.requests.end(id) {
            self.recorder.ended(id, output);
        }
    }

    fn cap_draft_limits(&mut self, _: &[RequestId], _: &[u32], _: &mut [u32]) {
        self.mark_instant(MarkKind::Scheduled);
    }

    fn drafts_in_parallel(&self) -> bool {
        false
    }

    fn charge_decision(&mut self, moment: Moment) {
        self.mark_instant(MarkKind::Decided(moment));
    }

    fn draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), Self::Error> {
        let begin = self.clock.read();
        let shape = pass.shape(&step.batch, &out.trees);
        self.open_step(step);
        let device = self.draft_pass(step, pass, out)?;
        self.mark_pass(MarkKind::Draft(pass.pass), begin, device, shape);
        Ok(())
    }

    fn verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), Self::Error> {
        let begin = self.clock.read();
        let shape = step.target_shape(drafts, !accepted.is_empty(), ContextReads::Once);
        self.open_step(step);
        let device = self.verify_pass(step, drafts, accepted)?;
        self.mark_pass(MarkKind::Verify, begin, device, shape);
        self.record(step, drafts, accepted);
        Ok(())
    }

    fn spent(&mut self, _: Time) -> Option<Spent> {
        None
    }

    fn plain_step(&mut self, _: PassShape) {
        unreachable!("a device has no steps to skip")
    }
}

/// At the end of the run, passes the events that were recorded after the last step to the recorder.
impl<D: Device> Drop for DeviceExecutor<'_, D> {
    fn drop(&mut self) {
        if !self.trace.marks.is_empty() {
            self.recorder.step(&self.trace);
        }
    }
}
