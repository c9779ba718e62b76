//! A device that serves, and whose passes are timed in between, with the same models in the same memory: what changes on the
//! machine changes for both, and where the weights happen to lie does not make one of them faster.

use super::machine::{Job, Loaded, Machine, Models, Served, cpu, cuda, waiting};
use crate::pair::{self, PairPasses, Timer};
use crate::profiling::{Asked, Place};
use foretoken_kernels::device::Device;
use foretoken_kernels::executor::{CannotServe, Capacity};
use foretoken_profiler::{Passes, Role, Setup, Shape};
use foretoken_spec::live::{Device as Named, LiveSpec};
use foretoken_spec::problem::{Problem, Result};
use std::time::Duration;

/// A machine that times passes, too.
pub trait Timed: Machine {
    /// What a profile of it is measured by.
    fn setup(&self) -> &Setup;

    /// Hands the passes over, within one session of the device.
    fn time(&mut self, work: &mut Work);
}

/// What is done with passes.
pub type Work<'a> = dyn FnMut(&mut dyn Passes<Error = Failed>) + Send + 'a;

/// A pass failed, in the device's words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// Puts the models on the device once, with room to serve and to be timed as a profile times them.
pub fn open_timed(live: &LiveSpec, models: &Models, capacity: Capacity, asked: &Asked) -> Result<Box<dyn Timed>> {
    match Named::parse(&live.device).map_err(Problem::bad_input)? {
        Named::Cpu => {
            let (cpu, name) = cpu(live)?;
            let setup = Place::cpu(&cpu).setup(&cpu, &models.target, &models.draft, asked);
            Ok(Box::new(Both::load((cpu, name), setup, models, capacity, live)?))
        }
        Named::Cuda(n) => {
            let (cuda, name) = cuda(n)?;
            let setup = Place::cuda(n, &cuda).setup(&cuda, &models.target, &models.draft, asked);
            Ok(Box::new(Both::load((cuda, name), setup, models, capacity, live)?))
        }
    }
}

struct Both<D: Device> {
    serving: Loaded<D>,
    timer: Timer,
    setup: Setup,
}

impl<D: Device + Send> Both<D> {
    fn load(
        device: (D, String),
        setup: Setup,
        models: &Models,
        capacity: Capacity,
        live: &LiveSpec,
    ) -> Result<Both<D>> {
        let room = capacity.or(&pair::capacity(&setup.target_room, &setup.draft_room));
        let mut serving = Loaded::load(device, models, room, waiting(live))?;
        let Loaded { device, pair, .. } = &mut serving;
        let timer = device.session(|device| Timer::new(device, pair));
        let timer = timer.map_err(|e| Problem::failed(format!("the pair cannot be run: {e}")))?;
        Ok(Both { serving, timer, setup })
    }
}

impl<D: Device + Send> Machine for Both<D> {
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

impl<D: Device + Send> Timed for Both<D> {
    fn setup(&self) -> &Setup {
        &self.setup
    }

    fn time(&mut self, work: &mut Work) {
        let Both { serving: Loaded { device, pair, .. }, timer, .. } = self;
        device.session(|device| work(&mut InWords(timer.on(device, pair))));
    }
}

/// Passes whose errors are words, whatever the device.
struct InWords<'a, D: Device>(PairPasses<'a, D>);

impl<D: Device> Passes for InWords<'_, D> {
    type Error = Failed;

    fn time(&mut self, role: Role, shape: &Shape) -> std::result::Result<Duration, Failed> {
        self.0.time(role, shape).map_err(|e| Failed(e.to_string()))
    }
}
