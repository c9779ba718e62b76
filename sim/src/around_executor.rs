//! The trait of wrappers around an executor. A wrapper watches what the executor does, or makes it fail.

use crate::drafts::Drafts;
use crate::executor::{DraftPass, Executor, Moment, RequestTruth, StepPlan};
use crate::latency::PassShape;
use crate::metrics::Spent;
use crate::time::Time;
use crate::workload::RequestId;

/// An [`Executor`] that passes every call to another executor, the inner one. An implementor may watch or change calls
/// in the `around_` hooks.
pub trait AroundExecutor {
    /// The type of the wrapped executor.
    type Inner: Executor;

    /// The error with which a pass of the draft model or of the target fails.
    type Error: From<<Self::Inner as Executor>::Error>;

    /// The executor to which this wrapper passes its calls.
    fn inner(&self) -> &Self::Inner;

    /// The executor to which this wrapper passes its calls, mutable.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// Called in place of [`Executor::begin_iteration`]. By default it calls the wrapped executor's method.
    fn around_begin_iteration(&mut self) {
        self.inner_mut().begin_iteration();
    }

    /// Called in place of [`Executor::wait_until`]. By default it calls the wrapped executor's method.
    fn around_wait_until(&mut self, at: Time) {
        self.inner_mut().wait_until(at);
    }

    /// Called in place of [`Executor::cap_draft_limits`]. By default it calls the wrapped executor's method.
    fn around_cap_draft_limits(&mut self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]) {
        self.inner_mut().cap_draft_limits(ids, emitted, limit);
    }

    /// Called in place of [`Executor::charge_decision`]. By default it calls the wrapped executor's method.
    fn around_charge_decision(&mut self, moment: Moment) {
        self.inner_mut().charge_decision(moment);
    }

    /// Called in place of [`Executor::draft`]. By default it calls the wrapped executor's method.
    ///
    /// # Errors
    /// The errors of [`Executor::draft`].
    fn around_draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), Self::Error> {
        Ok(self.inner_mut().draft(step, pass, out)?)
    }

    /// Called in place of [`Executor::verify`]. By default it calls the wrapped executor's method.
    ///
    /// # Errors
    /// The errors of [`Executor::verify`].
    fn around_verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), Self::Error> {
        Ok(self.inner_mut().verify(step, drafts, accepted)?)
    }
}

/// The engine may not compute several steps of a wrapped executor in one go, because the wrapper must see every step.
impl<T: AroundExecutor> Executor for T {
    type Error = <T as AroundExecutor>::Error;
    const SKIPS: bool = false;

    fn now(&self) -> Time {
        self.inner().now()
    }

    fn queued_until(&self) -> Time {
        self.inner().queued_until()
    }

    fn begin_iteration(&mut self) {
        self.around_begin_iteration();
    }

    fn wait_until(&mut self, at: Time) {
        self.around_wait_until(at);
    }

    fn start(&mut self, request: RequestTruth) {
        self.inner_mut().start(request);
    }

    fn start_as(&mut self, id: RequestId, request: RequestTruth) {
        self.inner_mut().start_as(id, request);
    }

    fn preempted(&mut self, id: RequestId) {
        self.inner_mut().preempted(id);
    }

    fn end(&mut self, id: RequestId) {
        self.inner_mut().end(id);
    }

    fn cap_draft_limits(&mut self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]) {
        self.around_cap_draft_limits(ids, emitted, limit);
    }

    fn drafts_in_parallel(&self) -> bool {
        self.inner().drafts_in_parallel()
    }

    fn charge_decision(&mut self, moment: Moment) {
        self.around_charge_decision(moment);
    }

    fn draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), Self::Error> {
        self.around_draft(step, pass, out)
    }

    fn verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), Self::Error> {
        self.around_verify(step, drafts, accepted)
    }

    fn spent(&mut self, at: Time) -> Option<Spent> {
        self.inner_mut().spent(at)
    }

    fn plain_step(&mut self, _: PassShape) {
        unreachable!("only executors that skip are asked")
    }
}
