//! Profiles a target and a draft: times their passes on this machine and fits costs to the times. A side file stores
//! the finished measurements, so that an interrupted profile can be continued.

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
use foretoken_run::spec::live::{self, Instructions};
use foretoken_run::spec::problem::{Exit, Problem, Result};
use foretoken_run::work::Work;
use foretoken_sim::Pair;
use std::path::Path;
use std::time::{Duration, Instant};

/// Seed of random weights. Pass times do not depend on the seed; the profile records it.
const RANDOM_SEED: u64 = 1;
/// Default time budgets in seconds: (of a quick profile, of a full profile).
const BUDGET_S: (f64, f64) = (10.0, 60.0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsFrom {
    /// Random weights. They give the same pass times as the model's own weights.
    Random,
    /// The model's own weights.
    Checkpoint,
}

/// Which target and draft to profile, and how.
#[derive(Clone, Copy)]
pub struct ProfileRequest<'a> {
    /// The names of the target and the draft: each is a preset or a Hugging Face folder.
    pub models: Pair<&'a str>,
    /// The source of the models' weights. `None`: a model has its own weights if it has any, else random weights.
    pub weights: Option<WeightsFrom>,
    pub device: live::Device,
    /// Number of threads of the CPU; `None`: one per core.
    pub threads: Option<usize>,
    /// Vector instructions of the CPU; `None`: the best that the processor has.
    pub instructions: Option<Instructions>,
    /// The largest passes of the engine. They limit the shapes that are timed.
    pub limits: Limits,
    /// Whether to time only about a quarter of the pass shapes.
    pub quick: bool,
    /// Seconds to spend on timing passes; `None`: 10 for a quick profile, otherwise 60.
    pub time_budget_s: Option<f64>,
    /// Seed that decides the order in which pass shapes are measured, and the folds of the cross-validation of the
    /// fits.
    pub seed: u64,
    pub output: &'a Path,
    /// Whether to replace a finished profile at the path `output`.
    pub overwrite: bool,
    /// Handle through which the caller can stop the measurement and read its progress.
    pub work: &'a Work,
    /// Returns the current time as RFC 3339 text, which the profile states as its time of measurement.
    pub now: fn() -> String,
}

/// Measures a target and a draft, or continues an interrupted measurement. Writes the profile, then removes the side
/// file, which stored the measurements until the profile was written.
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
    // The side file stores the measurements for a later command. It is removed only after the profile is written, so
    // that no measurement can be lost.
    let help = "free some space or make the folder writable; the same command then writes what is already measured";
    output_file::write(request.output, profile.to_toml().as_bytes(), help)?;
    let _ = std::fs::remove_file(Partial::path_for(request.output));
    Ok(profile)
}

fn model(key: &str, name: &str, from: Option<WeightsFrom>) -> Result<Model> {
    let without_weights = from.is_none() && preset(name).is_some();
    match (from, Model::find(key, name, None)) {
        (Some(WeightsFrom::Random), _) => Model::find(key, name, Some(RANDOM_SEED)),
        // A preset without weights gets random weights, because pass times do not depend on weights.
        (_, Err(_)) if without_weights => Model::find(key, name, Some(RANDOM_SEED)),
        (_, own) => own,
    }
}

/// The inputs of a measurement: the caller's request, and the target and the draft to measure.
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
        // The duration of a resumed measurement counts as 0, because the earlier commands did not record their
        // durations.
        let wall = if resumed { Duration::ZERO } else { begun.0.elapsed() };
        setup
            .profile(&visits, wall, busy, (self.request.now)())
            .map_err(|e| Problem::failed(format!("nothing fits what was measured: {e}")))
    }

    /// Returns the settings of the measurement of pass times: the models, the machine, the limits on the shapes of
    /// passes, and the time budget.
    fn setup<D: Device>(&self, device: &D, place: Place) -> Setup {
        let ProfileRequest { limits, quick, time_budget_s, seed, .. } = *self.request;
        let (density, budget_s) = if quick { (Density::Quick, BUDGET_S.0) } else { (Density::Full, BUDGET_S.1) };
        let asked = Asked { limits, density, budget_s: time_budget_s.unwrap_or(budget_s), seed };
        place.setup(device, &self.models.target, &self.models.draft, &asked)
    }

    /// Loads both models and times their passes. A visit is a few timed passes of one shape. Each finished visit is
    /// appended to `visits` and to `file`, from which a later command can continue. At the beginning, `visits` has the
    /// visits of earlier, interrupted commands.
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
        PartialError::Busy { .. } => {
            Problem::bad_input(e.to_string()).help("wait until it ends, or choose another place with -o")
        }
        PartialError::Io { .. } => {
            Problem::failed(e.to_string()).help("free some space, or choose another place with -o")
        }
    }
}
