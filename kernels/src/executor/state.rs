//! The fields of the device executor, and its constructor.

use super::acceptance::Acceptance;
use super::buffers::{Drafting, Verifying};
use super::capacity::Needs;
use super::clock::{Waiting, WallClock};
use super::error::CannotServe;
use super::pair::Pair;
use super::prompts::{self, Prompts};
use super::requests::Requests;
use crate::device::Device;
use crate::paged::Batch;
use foretoken_sim::acceptance::Truths;
use foretoken_sim::executor::StepPlan;
use foretoken_sim::live::{Recorder, StepTrace};
use foretoken_sim::{EngineConfig, SpecPolicy, Workload};
use std::sync::atomic::AtomicBool;

/// The inputs of an executor for one run on a device: the settings and requests of the run, and how acceptance,
/// recording and waiting work.
pub struct Live<'a> {
    pub config: &'a EngineConfig,
    /// The requests of the run, with their arrivals and lengths.
    pub workload: &'a Workload,
    pub prompts: &'a dyn Prompts,
    /// What decides which draft tokens are accepted.
    pub acceptance: Acceptance<'a>,
    /// Receives the record of every step, and the output of every request that ends.
    pub recorder: &'a mut dyn Recorder,
    /// What the thread does while it waits for the next arrival of a request.
    pub waiting: Waiting,
    /// Another thread sets this flag to end the run early. A wait for an arrival then ends at once.
    pub interrupt: &'a AtomicBool,
}

/// An executor that runs the engine's passes on a device. Pass it to [`foretoken_sim::Serving::run`], within
/// [`Device::session`].
pub struct DeviceExecutor<'a, D: Device> {
    pub(super) device: &'a mut D,
    pub(super) pair: &'a mut Pair<D>,
    pub(super) acceptance: Acceptance<'a>,
    pub(super) truths: Option<Truths<'a>>,
    pub(super) prompts: &'a dyn Prompts,
    pub(super) recorder: &'a mut dyn Recorder,
    pub(super) clock: WallClock<'a>,
    pub(super) requests: Requests,
    pub(super) drafting: Drafting,
    pub(super) verifying: Verifying,
    pub(super) batch: Batch,
    pub(super) trace: StepTrace,
    /// Number of the step whose draft tokens are stored in `requests`.
    pub(super) drafted_step: Option<u64>,
}

impl<'a, D: Device> DeviceExecutor<'a, D> {
    /// Makes an executor. Its clock starts when the engine first reads the clock. `policy` must be the policy that will
    /// run with this executor; `None` means no speculation.
    pub fn new(
        device: &'a mut D,
        pair: &'a mut Pair<D>,
        policy: Option<&dyn SpecPolicy>,
        live: Live<'a>,
    ) -> Result<DeviceExecutor<'a, D>, CannotServe> {
        let Live { config, workload, prompts, acceptance, recorder, waiting, interrupt } = live;
        let needs = Needs::of(policy, &acceptance)?;
        pair.check(config, needs)?;
        prompts::check(prompts, workload, config, pair.vocab())?;
        let max_draft_len = if policy.is_some() { config.max_draft_len } else { 0 };
        let truths = match acceptance {
            Acceptance::Declared(source) => {
                let source = source.of_run(max_draft_len).unwrap_or(source);
                Some(Truths::new(source, max_draft_len, workload.len()))
            }
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
            clock: WallClock::new(waiting, interrupt),
            verifying: Verifying::default(),
            batch: Batch::default(),
            trace: StepTrace::default(),
            drafted_step: None,
        })
    }

    /// Called at every pass of a step. At the first pass of a step, removes the draft tokens of the step before; at
    /// later passes, does nothing.
    pub(super) fn open_step(&mut self, step: &StepPlan) {
        if self.drafted_step != Some(step.batch.step) {
            self.drafted_step = Some(step.batch.step);
            step.batch.ids.iter().for_each(|&id| self.requests.get(id).clear_drafts());
        }
    }
}
