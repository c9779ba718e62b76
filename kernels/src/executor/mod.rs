//! The device executor: the same engine, scheduler and policies, on real forward passes and a real clock.
//!
//! The engine says what to run; this runs it and reports what came out. It keeps what only hardware has: tokens, paged KV
//! of both models, the clock. It never decides anything, and nothing above it learns that it is there. Draft tokens are
//! either judged by the models ([`Acceptance::Greedy`], [`Acceptance::Sampled`]) or by a source of the simulator
//! ([`Acceptance::Declared`]), so that passes are real while acceptance is known.

mod capacity;
mod clock;
mod drafting;
mod error;
mod marks;
mod pair;
mod prompts;
mod requests;
mod verifying;

pub use capacity::{Capacity, Needs};
pub use error::{CannotServe, LiveError};
pub use pair::Pair;
pub use prompts::{Prompts, RandomPrompts};

use crate::device::Device;
use crate::paged::Batch;
use clock::WallClock;
use drafting::Drafting;
use foretoken_sim::acceptance::Truths;
use foretoken_sim::executor::{DraftPass, Executor, Moment, StepPlan};
use foretoken_sim::live::{MarkKind, Recorder, StepTrace};
use foretoken_sim::{
    AcceptanceSource, ContextReads, Drafts, EngineConfig, PassShape, RequestId, RequestTruth, SpecPolicy, Time,
    Workload,
};
use requests::Requests;
use std::sync::atomic::AtomicBool;
use verifying::Verifying;

/// Who says which draft tokens are right.
#[derive(Clone, Copy)]
pub enum Acceptance<'a> {
    /// The models, greedily: the target's likeliest token is the next one.
    Greedy,
    /// The models, by exact rejection sampling of sampled drafts.
    Sampled {
        /// Of both models' softmax; above 0.
        temperature: f32,
        /// Seed of all draws, which are keyed by request, round start and depth.
        seed: u64,
    },
    /// A source of the simulator, forced onto real passes.
    Declared(&'a dyn AcceptanceSource),
}

/// What is served and how, as far as an executor must know.
pub struct Live<'a> {
    /// The engine's settings.
    pub config: &'a EngineConfig,
    /// The requests.
    pub workload: &'a Workload,
    /// Their prompts.
    pub prompts: &'a dyn Prompts,
    /// Who says which draft tokens are right.
    pub acceptance: Acceptance<'a>,
    /// Who is told of every step.
    pub recorder: &'a mut dyn Recorder,
    /// Set from outside to end the run early: a wait for an arrival ends at once.
    pub interrupt: &'a AtomicBool,
}

/// An executor on a device. Give it to [`foretoken_sim::Serving::run`], inside of [`Device::session`].
pub struct DeviceExecutor<'a, D: Device> {
    device: &'a mut D,
    pair: &'a mut Pair<D>,
    acceptance: Acceptance<'a>,
    truths: Option<Truths<'a>>,
    prompts: &'a dyn Prompts,
    recorder: &'a mut dyn Recorder,
    clock: WallClock<'a>,
    requests: Requests,
    drafting: Drafting,
    verifying: Verifying,
    batch: Batch,
    trace: StepTrace,
    /// The step whose drafts are in the requests.
    drafted_step: Option<u64>,
}

impl<'a, D: Device> DeviceExecutor<'a, D> {
    /// An executor whose clock starts with the first round of the engine. `policy` is the one that will run on it, `None`
    /// the plain engine.
    ///
    /// # Errors
    /// What cannot be served on these models or this device.
    pub fn new(
        device: &'a mut D,
        pair: &'a mut Pair<D>,
        policy: Option<&dyn SpecPolicy>,
        live: Live<'a>,
    ) -> Result<DeviceExecutor<'a, D>, CannotServe> {
        let Live { config, workload, prompts, acceptance, recorder, interrupt } = live;
        let needs = Needs::of(policy, &acceptance)?;
        pair.check(config, needs)?;
        prompts::check(prompts, workload, config, pair.vocab())?;
        let max_draft_len = if policy.is_some() { config.max_draft_len } else { 0 };
        let truths = match acceptance {
            Acceptance::Declared(source) => Some(Truths::new(source, max_draft_len, workload.len())),
            _ => None,
        };
        Ok(DeviceExecutor {
            requests: Requests::new(workload, pair.capacity()),
            drafting: Drafting::new(pair.capacity()),
            device,
            pair,
            acceptance,
            truths,
            prompts,
            recorder,
            clock: WallClock::new(interrupt),
            verifying: Verifying::default(),
            batch: Batch::default(),
            trace: StepTrace::default(),
            drafted_step: None,
        })
    }

    /// Forgets the drafts of the step before.
    fn open_step(&mut self, step: &StepPlan) {
        if self.drafted_step != Some(step.batch.step) {
            self.drafted_step = Some(step.batch.step);
            step.batch.ids.iter().for_each(|&id| self.requests.get(id).clear_drafts());
        }
    }
}

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

    fn plain_step(&mut self, _: PassShape) {
        unreachable!("a device has no steps to skip")
    }
}

/// What happened after the last step is recorded as well.
impl<D: Device> Drop for DeviceExecutor<'_, D> {
    fn drop(&mut self) {
        if !self.trace.marks.is_empty() {
            self.recorder.step(&self.trace);
        }
    }
}
