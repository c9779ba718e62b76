//! A device that serves runs, and times single passes between the runs with the same loaded models. A change of the
//! machine's speed, and the place of the weights in memory, then affect runs and timed passes equally.

use super::machine::{Job, Loaded, Machine, Models, Served, cpu, cuda, waiting};
use crate::pair::{self, PairPasses, Timer};
use crate::profiling::{Asked, Place};
use foretoken_kernels::device::Device;
use foretoken_kernels::executor::{CannotServe, Capacity};
use foretoken_profiler::{Passes, Role, Setup, Shape};
use foretoken_run::spec::live::{Device as Named, LiveSpec};
use foretoken_run::spec::problem::{Problem, Result};
use std::time::Duration;

/// A device that serves runs and, between the runs, times single passes.
pub trait Timed: Machine {
    /// Returns the settings with which the machine's profile is measured.
    fn setup(&self) -> &Setup;

    /// Calls `work` within one session of the device. `work` gets an object that times the machine's passes.
    fn time(&mut self, work: &mut Work);
}

/// A function that gets an object which times passes, and uses it.
pub type Work<'a> = dyn FnMut(&mut dyn Passes<Error = Failed>) + Send + 'a;

/// The error of a pass that failed; the text is the device's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// Loads the target and the draft onto the device once. The allocated memory is enough to serve runs that need at most
/// `capacity`, and to time all passes of a profile.
pub fn open_timed(live: &LiveSpec, models: &Models, capacity: Capacity, asked: &Asked) -> Result<Box<dyn Timed>> {
    match Named::parse(&live.device).map_err(Problem::bad_input)? {
        Named::Cpu => {
            let (cpu, name) = cpu(live)?;
            let setup = Place::cpu(&cpu).setup(&cpu, &models.target, &models.draft, asked);
            Ok(Box::new(TimedMachine::load((cpu, name), setup, models, capacity, live)?))
        }
        Named::Cuda(n) => {
            let (cuda, name) = cuda(n)?;
            let setup = Place::cuda(n, &cuda).setup(&cuda, &models.target, &models.draft, asked);
            Ok(Box::new(TimedMachine::load((cuda, name), setup, models, capacity, live)?))
        }
    }
}

struct TimedMachine<D: Device> {
    serving: Loaded<D>,
    timer: Timer,
    setup: Setup,
}

impl<D: Device + Send> TimedMachine<D> {
    fn load(
        device: (D, String),
        setup: Setup,
        models: &Models,
        capacity: Capacity,
        live: &LiveSpec,
    ) -> Result<TimedMachine<D>> {
        let room = capacity.or(&pair::capacity(&setup.target_room, &setup.draft_room));
        let mut serving = Loaded::load(device, models, room, waiting(live))?;
        let Loaded { device, pair, .. } = &mut serving;
        let timer = device.session(|device| Timer::new(device, pair));
        let timer = timer.map_err(|e| Problem::failed(format!("the pair cannot be run: {e}")))?;
        Ok(TimedMachine { serving, timer, setup })
    }
}

impl<D: Device + Send> Machine for TimedMachine<D> {
    fn name(&self) -> &str {
        self.serving.name()
    }

    fn serve(&mut self, job: Job) -> std::result::Result<Served, CannotServe> {
        self.serving.serve(job)
    }

    fn warm_up(&mut self) -> std::result::Result<(), String> {
        self.serving.warm_up()
    }
}

impl<D: Device + Send> Timed for TimedMachine<D> {
    fn setup(&self) -> &Setup {
        &self.setup
    }

    fn time(&mut self, work: &mut Work) {
        let TimedMachine { serving: Loaded { device, pair, .. }, timer, .. } = self;
        device.session(|device| work(&mut WithTextErrors(timer.on(device, pair))));
    }
}

/// Times passes on any device, and converts the device's errors to text.
struct WithTextErrors<'a, D: Device>(PairPasses<'a, D>);

impl<D: Device> Passes for WithTextErrors<'_, D> {
    type Error = Failed;

    fn warm_up_passes(&self) -> u32 {
        self.0.warm_up_passes()
    }

    fn time(&mut self, role: Role, shape: &Shape) -> std::result::Result<Duration, Failed> {
        self.0.time(role, shape).map_err(|e| Failed(e.to_string()))
    }
}
