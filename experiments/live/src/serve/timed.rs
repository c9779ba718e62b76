//! A device that serves, and whose passes are timed in between, on one device and in one process: what changes on the machine
//! changes for both.

use super::machine::{Job, Loaded, Machine, Models, Served, on_cpu, on_cuda};
use crate::pair::{PairPasses, TimedPair};
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

/// Puts the models on the device twice: to serve, and to be timed as a profile times them.
pub fn open_timed(live: &LiveSpec, models: &Models, capacity: Capacity, asked: &Asked) -> Result<Box<dyn Timed>> {
    match Named::parse(&live.device).map_err(Problem::bad_input)? {
        Named::Cpu => {
            let serving = on_cpu(live, models, capacity)?;
            let place = Place::cpu(&serving.device);
            Ok(Box::new(Both::load(serving, place, models, asked)?))
        }
        Named::Cuda(n) => {
            let serving = on_cuda(live, n, models, capacity)?;
            let place = Place::cuda(n, &serving.device);
            Ok(Box::new(Both::load(serving, place, models, asked)?))
        }
    }
}

struct Both<D: Device> {
    serving: Loaded<D>,
    timed: TimedPair<D>,
    setup: Setup,
}

impl<D: Device + Send> Both<D> {
    fn load(mut serving: Loaded<D>, place: Place, models: &Models, asked: &Asked) -> Result<Both<D>> {
        let Models { target, draft } = models;
        let setup = place.setup(&serving.device, target, draft, asked);
        let timed = serving.device.session(|device| {
            TimedPair::load(
                device,
                (&target.shape, &target.weights, &setup.target_room),
                (&draft.shape, &draft.weights, &setup.draft_room),
            )
        });
        let timed = timed.map_err(|e| {
            Problem::failed(format!("the pair cannot be loaded once more, to be timed beside what serves: {e}"))
                .help("lower engine.num_gpu_blocks or engine.max_num_batched_tokens, or take smaller models")
        })?;
        Ok(Both { serving, timed, setup })
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
        let timed = &mut self.timed;
        self.serving.device.session(|device| work(&mut InWords(timed.on(device))));
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
