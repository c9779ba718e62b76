//! Profiles a pair of models: times its passes on this machine and fits costs to the times. A side file keeps what was
//! measured, so that an interrupted measurement goes on.

use crate::gpu;
use crate::models::Model;
use crate::output_file;
use crate::pair::{Timer, capacity};
use crate::processor;
use crate::profiling::{Asked, Limits, Place};
use foretoken_kernels::device::Device;
use foretoken_kernels::executor;
use foretoken_kernels::model::preset;
use foretoken_profiler::{
    CpuTime, Density, MeasureError, Partial, PartialError, Profile, Setup, Until, Visit, measure,
};
use foretoken_run::bar::Bar;
use foretoken_run::work::Work;
use foretoken_sim::Pair;
use foretoken_spec::live::{self, Instructions};
use foretoken_spec::problem::{Exit, Problem, Result};
use std::path::Path;
use std::time::{Duration, Instant};

/// Seed of random weights. The value does not matter; the profile records it.
const RANDOM_SEED: u64 = 1;
/// Seconds that a quick profile and a full one take, unless the caller says otherwise.
const BUDGET_S: (f64, f64) = (10.0, 60.0);

/// The source of a model's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsFrom {
    /// Drawn from a seed: times depend on shapes alone.
    Random,
    /// The model's own.
    Checkpoint,
}

/// What to profile.
#[derive(Clone, Copy)]
pub struct ProfileRequest<'a> {
    /// Each model: a preset, or a Hugging Face folder.
    pub models: Pair<&'a str>,
    /// The source of their weights; `None`: their own where they have any.
    pub weights: Option<WeightsFrom>,
    /// The device.
    pub device: live::Device,
    /// Threads of the CPU; `None`: one a core.
    pub threads: Option<usize>,
    /// Vector instructions of the CPU; `None`: the best that it has.
    pub instructions: Option<Instructions>,
    /// The engine's limits.
    pub limits: Limits,
    /// Times fewer shapes?
    pub quick: bool,
    /// Seconds to spend; `None`: 10 for a quick profile, else 60.
    pub time_budget_s: Option<f64>,
    /// Seed of the order of visits.
    pub seed: u64,
    /// The profile's file.
    pub output: &'a Path,
    /// Replaces a finished profile of that name?
    pub overwrite: bool,
    /// Asks the measurement to end, and counts its visits.
    pub work: &'a Work,
    /// Returns the current time as RFC 3339 text.
    pub now: fn() -> String,
}

/// Measures a pair, or continues an interrupted measurement, and writes the profile.
///
/// # Errors
/// The models, the device or the file cannot be used, a pass fails, nothing fits the times, or the work was
/// interrupted.
pub fn profile(request: &ProfileRequest) -> Result<Profile> {
    output_file::check(request.output, request.overwrite, "profile")?;
    let keys = Pair { target: "--target", draft: "--draft" };
    let models = keys.zip(request.models).try_map(|(key, name)| model(key, name, request.weights))?;
    let Pair { target, draft } = &models;
    if target.shape.vocab != draft.shape.vocab {
        let (t, d) = (target.shape.vocab, draft.shape.vocab);
        let message = format!("{} has {t} tokens, {} has {d}: one cannot draft for the other", target.name, draft.name);
        return Err(Problem::bad_input(message).help("give a pair that shares its vocabulary"));
    }
    let measuring = Measuring { request, models: &models };
    let profile = match request.device {
        live::Device::Cpu => {
            let mut device = processor::open(request.threads, request.instructions)?;
            let place = Place::cpu(&device);
            device.session(|device| measuring.run(device, place))
        }
        live::Device::Cuda(index) => {
            let mut device = gpu::open(index)?;
            let place = Place::cuda(index, &device);
            device.session(|device| measuring.run(device, place))
        }
    }?;
    // Until the profile exists, the side file keeps the measurements.
    let help = "free some space or make the folder writable; the same command then writes what is already measured";
    output_file::write(request.output, profile.to_toml().as_bytes(), help)?;
    let _ = std::fs::remove_file(Partial::path_for(request.output));
    Ok(profile)
}

fn model(key: &str, name: &str, from: Option<WeightsFrom>) -> Result<Model> {
    let without_weights = from.is_none() && preset(name).is_some();
    match (from, Model::find(key, name, None)) {
        (Some(WeightsFrom::Random), _) => Model::find(key, name, Some(RANDOM_SEED)),
        // A preset that is only a shape: its times do not depend on its weights.
        (_, Err(_)) if without_weights => Model::find(key, name, Some(RANDOM_SEED)),
        (_, own) => own,
    }
}

/// One measurement of a pair.
struct Measuring<'a> {
    request: &'a ProfileRequest<'a>,
    models: &'a Pair<Model>,
}

impl Measuring<'_> {
    fn run<D: Device>(&self, device: &mut D, place: Place) -> Result<Profile> {
        let setup = self.setup(device, place);
        let side = Partial::path_for(self.request.output);
        let (mut file, kept) = Partial::open(&side, &setup).map_err(side_file)?;
        let mut visits = kept.visits;
        let resumed = !visits.is_empty();
        if resumed {
            eprintln!("goes on after {} visits in {}", visits.len(), side.display());
        }
        if let Some(why) = kept.dropped {
            eprintln!("warning: {}: {why}: from there on it is measured again", side.display());
        }
        let begun = (Instant::now(), CpuTime::now());
        self.measure(device, &setup, &mut file, &mut visits)?;
        let busy = begun.1.zip(CpuTime::now()).and_then(|(before, after)| before.until(&after));
        // The time of several commands together is unknown.
        let wall = if resumed { Duration::ZERO } else { begun.0.elapsed() };
        setup
            .profile(&visits, wall, busy, (self.request.now)())
            .map_err(|e| Problem::failed(format!("nothing fits what was measured: {e}")))
    }

    /// The shapes to time, and the time to spend.
    fn setup<D: Device>(&self, device: &D, place: Place) -> Setup {
        let ProfileRequest { limits, quick, time_budget_s, seed, .. } = *self.request;
        let (density, budget_s) = if quick { (Density::Quick, BUDGET_S.0) } else { (Density::Full, BUDGET_S.1) };
        let asked = Asked { limits, density, budget_s: time_budget_s.unwrap_or(budget_s), seed };
        place.setup(device, &self.models.target, &self.models.draft, &asked)
    }

    /// Loads the pair and times its passes. `file` keeps each visit; `visits` has the visits of earlier commands.
    fn measure<D: Device>(
        &self,
        device: &mut D,
        setup: &Setup,
        file: &mut Partial,
        visits: &mut Vec<Visit>,
    ) -> Result<()> {
        let Pair { target, draft } = self.models;
        let room = capacity(&setup.target_room, &setup.draft_room);
        let (target, draft) = ((&target.shape, &target.weights), (&draft.shape, &draft.weights));
        let mut pair = executor::Pair::load(device, target, Some(draft), room)
            .map_err(|e| Problem::failed(format!("the pair cannot be loaded: {e}")))?;
        let mut timer =
            Timer::new(device, &mut pair).map_err(|e| Problem::failed(format!("the pair cannot be run: {e}")))?;
        let mut passes = timer.on(device, &mut pair);
        let work = self.request.work;
        let bar = Bar::new(visits.len() as u64, "visits", &work.counts);
        let keep = |at: usize, expected: usize, visit: &Visit| {
            bar.is_at(at as u64 + 1, expected as u64);
            file.keep(visit)
        };
        let watch = work.interrupt.watch();
        let effort = (setup.effort(), Until::Spent);
        let measured = measure(&mut passes, &setup.stops(), effort, visits, work.interrupt.flag(), keep);
        drop(watch);
        bar.finish();
        measured.map_err(|e| match e {
            MeasureError::Interrupted => {
                let message = format!("interrupted: {} visits are kept", visits.len());
                Problem::new(Exit::Interrupted, message).help("run the same command again to go on")
            }
            MeasureError::Keep(e) => side_file(e),
            failed @ MeasureError::Pass { .. } => Problem::failed(failed.to_string()),
        })
    }
}

fn side_file(e: PartialError) -> Box<Problem> {
    match e {
        PartialError::Other { ref path, .. } | PartialError::Unreadable { ref path, .. } => {
            Problem::bad_input(e.to_string())
                .help(format!("repeat the command it was made with, or remove {} to begin anew", path.display()))
        }
        PartialError::Io { .. } => {
            Problem::failed(e.to_string()).help("free some space, or choose another place with -o")
        }
    }
}
