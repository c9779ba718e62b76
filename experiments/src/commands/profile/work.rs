//! `foretoken profile`: times the passes of a pair of models on this machine, and keeps them with their fits.

use super::{EngineLimits, ProfileArgs, WeightsFrom};
use crate::cli::device::DeviceName;
use crate::cli::format::Format;
use crate::commands::print;
use crate::work;
use foretoken_kernels::device::Device;
use foretoken_kernels::executor::Pair;
use foretoken_kernels::model::preset;
use foretoken_live::gpu;
use foretoken_live::models::Model;
use foretoken_live::pair::{Timer, capacity};
use foretoken_live::processor;
use foretoken_live::profiling::{Asked, Limits, Place};
use foretoken_profiler::{
    CpuTime, Density, MeasureError, Partial, PartialError, Profile, Region, Role, Until, Visit, measure,
};
use foretoken_report::Staged;
use foretoken_spec::problem::{Exit, Problem, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

/// Seed of random weights. The value does not matter; the profile records it.
const RANDOM_SEED: u64 = 1;
/// Seconds that a profile takes: with `--quick`, and without.
const BUDGET_S: (f64, f64) = (10.0, 60.0);

/// Runs the command with its arguments.
pub fn run(args: &ProfileArgs) -> Result<()> {
    work().interrupt.keeps("what was measured is kept", "run the same command again to go on");
    let profile = measured(args, work().interrupt.flag())?;
    write(&args.output, profile.to_toml().as_bytes())?;
    let _ = std::fs::remove_file(Partial::path_for(&args.output));
    if args.plot {
        plot(&args.output, &profile)?;
    }
    profile.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    match args.format {
        Format::Table => print(&summary(&profile))?,
        Format::Json => {
            print(&format!("{}\n", serde_json::to_string_pretty(&profile).expect("plain data always serialises")))?
        }
    }
    match profile.distrust() {
        None => Ok(()),
        Some(why) => {
            let message = format!("{} is written, but {why}", args.output.display());
            let help =
                "its table may still be good: hardware.truth = \"table\" uses it, and policies believe a bad line";
            Err(Problem::new(Exit::Negative, message).help(help))
        }
    }
}

/// Measures the pair, or continues an interrupted measurement. The caller writes the file.
pub fn measured(args: &ProfileArgs, interrupt: &AtomicBool) -> Result<Profile> {
    check_output(args)?;
    let target = model("--target", &args.target, args.weights)?;
    let draft = model("--draft", &args.draft, args.weights)?;
    if target.shape.vocab != draft.shape.vocab {
        let (t, d) = (target.shape.vocab, draft.shape.vocab);
        let message = format!("{} has {t} tokens, {} has {d}: one cannot draft for the other", target.name, draft.name);
        return Err(Problem::bad_input(message).help("give a pair that shares its vocabulary"));
    }
    let job = Job { args, target: &target, draft: &draft, interrupt };
    match args.device {
        DeviceName::Cpu => {
            let mut device = processor::open(args.threads.map(usize::from), args.instructions)?;
            let place = Place::cpu(&device);
            device.session(|device| job.run(device, place))
        }
        DeviceName::Cuda(index) => {
            let mut device = gpu::open(index)?;
            let place = Place::cuda(index, &device);
            device.session(|device| job.run(device, place))
        }
    }
}

/// Refuses to replace a finished profile without `--overwrite`.
fn check_output(args: &ProfileArgs) -> Result<()> {
    let out = &args.output;
    let folder = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let message = format!("there is no folder {} for the profile", folder.display());
        return Err(Problem::bad_input(message).help("make it, or choose another place with -o"));
    }
    if out.exists() && !args.overwrite {
        let message = format!("{} is already there", out.display());
        return Err(Problem::bad_input(message).help("replace it with --overwrite, or choose another name with -o"));
    }
    Ok(())
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
struct Job<'a> {
    args: &'a ProfileArgs,
    target: &'a Model,
    draft: &'a Model,
    interrupt: &'a AtomicBool,
}

impl Job<'_> {
    fn run<D: Device>(&self, device: &mut D, place: Place) -> Result<Profile> {
        let (args, target, draft) = (self.args, self.target, self.draft);
        let budget = if args.quick { BUDGET_S.0 } else { BUDGET_S.1 };
        let density = if args.quick { Density::Quick } else { Density::Full };
        let EngineLimits { max_model_len, max_num_seqs, max_num_batched_tokens } = args.engine;
        let limits = Limits { max_model_len, max_num_seqs, max_num_batched_tokens };
        let asked = Asked { limits, density, budget_s: args.time_budget.unwrap_or(budget), seed: args.seed };
        let setup = place.setup(device, target, draft, &asked);
        let side = Partial::path_for(&self.args.output);
        let (mut file, kept) = Partial::open(&side, &setup).map_err(side_file)?;
        let mut visits = kept.visits;
        let begun = (Instant::now(), CpuTime::now());
        let resumed = !visits.is_empty();
        if resumed {
            eprintln!("goes on after {} visits in {}", visits.len(), side.display());
        }
        if let Some(why) = kept.dropped {
            eprintln!("warning: {}: {why}: from there on it is measured again", side.display());
        }
        let room = capacity(&setup.target_room, &setup.draft_room);
        let mut pair = Pair::load(device, (&target.shape, &target.weights), Some((&draft.shape, &draft.weights)), room)
            .map_err(|e| Problem::failed(format!("the pair cannot be loaded: {e}")))?;
        let mut timer =
            Timer::new(device, &mut pair).map_err(|e| Problem::failed(format!("the pair cannot be run: {e}")))?;
        let mut passes = timer.on(device, &mut pair);
        let stops = setup.stops();
        let effort = (setup.effort(), Until::Spent);
        let bar = bar(visits.len());
        let keep = |at: usize, expected: usize, visit: &Visit| {
            bar.set_length(expected as u64);
            bar.set_position(at as u64 + 1);
            file.keep(visit)
        };
        let watch = work().interrupt.watch();
        let measured = measure(&mut passes, &stops, effort, &mut visits, self.interrupt, keep);
        drop(watch);
        bar.finish_and_clear();
        measured.map_err(|e| match e {
            MeasureError::Interrupted => {
                let message = format!("interrupted: {} visits are kept", visits.len());
                Problem::new(Exit::Interrupted, message).help("run the same command again to go on")
            }
            MeasureError::Keep(e) => side_file(e),
            failed @ MeasureError::Pass { .. } => Problem::failed(failed.to_string()),
        })?;
        let busy = begun.1.zip(CpuTime::now()).and_then(|(before, after)| before.until(&after));
        // The time of several commands together is unknown.
        let wall = if resumed { Duration::ZERO } else { begun.0.elapsed() };
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        setup
            .profile(&visits, wall, busy, now)
            .map_err(|e| Problem::failed(format!("nothing fits what was measured: {e}")))
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

fn bar(done: usize) -> ProgressBar {
    let to = std::io::stderr();
    let target = if to.is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} visits  {elapsed} (left: {eta})");
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(style.expect("the template is constant"));
    bar.with_position(done as u64)
}

/// Writes the profile. Until it exists, the side file keeps the measurements.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let help = "free some space or make the folder writable; the same command then writes what is already measured";
    Staged::write_all_to(path, bytes).map_err(|e| Problem::failed(e.to_string()).help(help))
}

/// A summary of the profile in a few lines.
fn summary(p: &Profile) -> String {
    let mut out = String::new();
    let (target, draft) = (&p.target.model, &p.draft.model);
    let device = format!("{}, {} threads", p.device.name, p.device.threads);
    let _ = writeln!(out, "profiled: {} with {} on {} ({device})", target.name, draft.name, p.device.kind);
    if let Some(speed) = &p.device.speed {
        let _ = writeln!(out, "speed   {speed}");
    }
    let _ = writeln!(out, "        alpha        gamma        delta        held-out error (linear / table), mean %");
    let _ = write!(out, "        ns/context   us/token     us/pass      ");
    for region in Region::ALL {
        let _ = write!(out, "{:<14}", region.name());
    }
    let _ = writeln!(out, "all");
    for role in Role::BOTH {
        let (m, c) = (p.of(role), p.belief(role));
        let (alpha, gamma, delta) = (c.alpha_s * 1e9, c.gamma_s * 1e6, c.delta_s * 1e6);
        let _ = write!(out, "{:<8}{alpha:<13.3}{gamma:<13.3}{delta:<13.2}", role.name());
        let errors = |linear: f64, table: f64| format!("{:.1} / {:.1}", linear * 100.0, table * 100.0);
        for region in Region::ALL {
            let both = m.held_out.linear.of(region).zip(m.held_out.table.of(region));
            let _ = write!(out, "{:<14}", both.map_or("-".to_owned(), |(l, t)| errors(l, t)));
        }
        let _ = writeln!(out, "{}", errors(m.held_out.linear.overall, m.held_out.table.overall));
    }
    let percent = |x: f64| format!("{:.1} %", x * 100.0);
    for role in Role::BOTH {
        let m = p.of(role);
        let (spread, repeat, n) = (percent(m.noise_cv), percent(m.repeatability), m.measured.len());
        let _ = writeln!(out, "{:<8}{n} shapes, spread {spread}, repeatability {repeat}", role.name());
    }
    let _ = writeln!(out, "drift   {}", percent(p.measuring.drift));
    out
}

fn plot(out: &Path, profile: &Profile) -> Result<()> {
    for figure in foretoken_run::profile_figures::figures(profile) {
        let path = out.with_extension(figure.file);
        write(&path, figure.svg.as_bytes())?;
    }
    Ok(())
}
