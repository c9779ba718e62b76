//! `foretoken validate`: an experiment on a device and in the simulator, and how far apart they are.

use super::print;
use super::profile::measured;
use crate::cli::{DeviceName, EngineLimits, Format, ProfileArgs, ValidateArgs, WeightsFrom};
use foretoken_live::serve::{Machine, Models, check, open, prompts};
use foretoken_live::validate::{Compared, Drift, Measuring, Runs, Tapes, Validation, World, page, render};
use foretoken_policies::PolicySpec;
use foretoken_profiler::{Partial, Profile};
use foretoken_run::cells::{EXPERIMENT, Folder, Manifest, Mode, Speed, digest};
use foretoken_run::cells::{RUNS_JSON, TAPES};
use foretoken_run::plan::{Measured, Plan};
use foretoken_run::setting::Setting;
use foretoken_run::{interrupt, profiled};
use foretoken_spec::live::{LiveSpec, WeightSource, required, with_device};
use foretoken_spec::problem::{Exit, Problem, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The profile that predicts, made before the runs.
const PROFILE: &str = "profile.toml";
/// The one made after them.
const PROFILE_AFTER: &str = "profile-after.toml";
/// What was found: for programs, for people, and to look at.
const OUTCOME: [&str; 3] = ["validation.json", "validation.txt", "validation.html"];

/// Runs the command.
pub fn run(args: &ValidateArgs) -> Result<()> {
    let path = args.path.as_deref().expect("clap asks for it where nothing was observed");
    match path.is_dir() {
        true => compare_only(args, path),
        false => live_and_compare(args, path),
    }
}

/// Compares what a folder holds.
fn compare_only(args: &ValidateArgs, path: &Path) -> Result<()> {
    if !args.sets.is_empty() || args.device.is_some() {
        let message = format!("{} was run already: --set and --device change nothing of it", path.display());
        return Err(Problem::bad_input(message).help("leave them out, or give the experiment's file to run it anew"));
    }
    let runs = Runs::of(path)?;
    let manifest = Manifest::read(path)?;
    runs.check(path, &manifest)?;
    let mut plan = Plan::load(&path.join("experiment.toml"), &[])?;
    plan.baseline_first();
    let profile = args.profile.as_deref().map(read_profile).transpose()?;
    let to = args.output.clone().unwrap_or_else(|| path.to_path_buf());
    std::fs::create_dir_all(&to).map_err(|e| {
        Problem::failed(format!("cannot make the folder {}: {e}", to.display())).help("choose another with -o")
    })?;
    let given = args.profile.as_ref().or(plan.variants[0].experiment.hardware.profile.as_ref());
    let costs = match given {
        Some(path) => format!("profiled: {}", path.display()),
        None => "the experiment's [hardware], not profiled".to_owned(),
    };
    let mut caveats = changed(path, &manifest, &plan)?;
    let (profile, why) = profile.map_or((None, None), |given| (Some(given.profile), given.changed));
    caveats.extend(why.map(changed_profile));
    let tapes = Tapes { folder: path, manifest: &manifest, intact: args.intact };
    let compared = Compared { plan: &plan, tapes, runs: &runs, profile: profile.as_ref(), costs, caveats };
    let validation = keep(&compared, &Folder::at(to))?;
    show(args, &validation)?;
    verdict(&validation)
}

/// In what the experiment of a folder is not the one that was run.
fn changed(folder: &Path, manifest: &Manifest, plan: &Plan) -> Result<Vec<String>> {
    let mut all = Vec::new();
    if let Some(was) = manifest.files.get(EXPERIMENT) {
        let path = folder.join(EXPERIMENT);
        let is = digest(&path).map_err(|e| Problem::failed(format!("cannot read {}: {e}", path.display())))?;
        if is != *was {
            let how = format!("its blake3 is {is}, in the manifest {was}");
            all.push(format!("CHANGED: {EXPERIMENT} was edited or damaged since the runs: {how}"));
        }
    }
    let of_the_runs = |digest: &String| manifest.inputs.values().any(|was| was == digest);
    let others = plan.inputs.iter().filter(|(_, digest)| !of_the_runs(digest));
    all.extend(others.map(|(name, _)| format!("CHANGED: {name} is not the file that the runs were made with")));
    all.extend(plan.variants.iter().find_map(|v| v.filled.changed.clone()).map(changed_profile));
    Ok(all)
}

fn changed_profile(why: String) -> String {
    format!("CHANGED: the profile {why}")
}

/// Runs an experiment on a device, and compares.
fn live_and_compare(args: &ValidateArgs, path: &Path) -> Result<()> {
    if args.intact {
        let problem = Problem::bad_input("--intact is for recordings that are there: an experiment is run anew");
        return Err(problem.help("leave it out, or give the folder of the recordings"));
    }
    let mut plan = Plan::load(path, &args.sets)?;
    let live = with_device(
        required(plan.variants[0].experiment.live.as_ref(), &plan.name)?,
        args.device.as_deref(),
        args.instructions,
    );
    one_setting(&plan)?;
    plan.baseline_first();
    plan.measured = Some(Measured::Live);
    let models = Models::find(&live)?;
    let variant = &plan.variants[0];
    let setting = Setting::new(variant, plan.seeds[0])?;
    let room = check(&plan, variant, &setting, &live, &models)?;
    let limits = limits(&setting);
    let given = args.profile.as_deref().or(variant.experiment.hardware.profile.as_deref());
    let given = given.map(read_profile).transpose()?;
    let (watch, interrupt) = (interrupt::watch(), interrupt::flag());
    let usual = || PathBuf::from("results").join(format!("validate-{}-{}", plan.name, &plan.digest()[..8]));
    let to = args.output.clone().unwrap_or_else(usual);
    let mode = if args.overwrite { Mode::Overwrite } else { Mode::Fresh };
    let (folder, _) = Folder::open(to, &plan, mode)?;
    let begun = Instant::now();
    let spec = variant.experiment.validate.clone().unwrap_or_default();
    let (before, text) = match given {
        Some(Given { profile, text, .. }) => (profile, text),
        None => {
            eprintln!("profiling for {} s", spec.profile_s);
            let profile = profile(&live, limits, &folder, PROFILE, spec.profile_s, false, &interrupt)
                .inspect_err(|_| folder.abandon())?;
            let text = profile.to_toml();
            (profile, text)
        }
    };
    let mut machine = open(&live, &models, room).inspect_err(|_| folder.abandon())?;
    // Byte for byte: what was edited since it was measured stays recognisable.
    folder.write(PROFILE, text.as_bytes())?;
    let mut plan = Plan::load_with_profile(path, &args.sets, &folder.path().join(PROFILE))?;
    plan.baseline_first();
    plan.measured = Some(Measured::Live);
    folder.replan(&plan)?;
    let mut runs = serve(&plan, &live, &models, &mut *machine, &folder, &interrupt)?;
    // Kept before anything else can fail: what ran need not run again to be compared.
    keep_runs(&folder, &runs)?;
    eprintln!("profiling again for {} s", spec.drift_s);
    let after = profile(&live, limits, &folder, PROFILE_AFTER, spec.drift_s, true, &interrupt)?;
    runs.drift = Some(Drift::between(&before, &after));
    keep_runs(&folder, &runs)?;
    interrupt::keeps("all runs are kept", "foretoken validate DIR compares them");
    drop(watch);
    let costs = format!("profiled: {PROFILE}, of {}", before.measured_at);
    let mut manifest = Manifest::read(folder.path())?;
    // Nothing was killed: that the folder is complete is written when the comparison is.
    manifest.complete = true;
    let tapes = Tapes { folder: folder.path(), manifest: &manifest, intact: false };
    let caveats = changed(folder.path(), &manifest, &plan)?;
    let validation = keep(&Compared { plan: &plan, tapes, runs: &runs, profile: None, costs, caveats }, &folder)?;
    let speed = Speed { cells: runs.entries.len() as u64, wall_s: begun.elapsed().as_secs_f64(), ..Speed::default() };
    folder.complete(&plan, &speed)?;
    show(args, &validation)?;
    eprintln!("results: {} ({:.0} s)", folder.path().display(), speed.wall_s);
    verdict(&validation)
}

fn keep_runs(folder: &Folder, runs: &Runs) -> Result<()> {
    folder.write(RUNS_JSON, runs.to_json().as_bytes())
}

/// Runs every policy at every load.
fn serve(
    plan: &Plan,
    live: &LiveSpec,
    models: &Models,
    machine: &mut dyn Machine,
    folder: &Folder,
    interrupt: &AtomicBool,
) -> Result<Runs> {
    std::fs::create_dir_all(folder.path().join(TAPES))
        .map_err(|e| Problem::failed(format!("cannot make the folder {TAPES}: {e}")))?;
    let spec = plan.variants[0].experiment.validate.clone().unwrap_or_default();
    let policies: Vec<PolicySpec> = plan.policies.iter().map(|p| p.spec.clone()).collect();
    let world = || world(plan, live, models);
    Measuring { machine, live, spec: &spec, policies: &policies, world: &world, folder, interrupt }.run()
}

/// Several settings would be several validations.
fn one_setting(plan: &Plan) -> Result<()> {
    let (settings, seeds) = (plan.variants.len(), plan.seeds.len());
    if (settings, seeds) == (1, 1) {
        return Ok(());
    }
    Err(Problem::bad_input(format!(
        "{}: {settings} settings and {seeds} seeds, and one is validated at a time",
        plan.name
    ))
    .help("choose one: --set 'seeds=[1]', and a single value for what is swept"))
}

/// A setting with the prompts of its requests.
fn world(plan: &Plan, live: &LiveSpec, models: &Models) -> Result<World> {
    let seed = plan.seeds[0];
    let mut setting = Setting::new(&plan.variants[0], seed)?;
    let all = prompts(&live.prompts, &mut setting.workload, seed, models)?;
    Ok((setting, all))
}

/// A profile that was made before.
struct Given {
    profile: Profile,
    text: String,
    /// Why it may not be what was measured.
    changed: Option<String>,
}

fn read_profile(path: &Path) -> Result<Given> {
    let text = foretoken_spec::text::read(path).map_err(|e| {
        Problem::bad_input(format!("cannot read the profile: {e}")).help("`foretoken profile` makes a profile")
    })?;
    let name = path.display().to_string();
    let (profile, changed) = (profiled::read(&name, &text)?, profiled::changed(&name, &text));
    Ok(Given { profile, text, changed })
}

/// The largest passes of an experiment: nothing else need be measured to predict it.
fn limits(setting: &Setting) -> EngineLimits {
    let (engine, workload) = (setting.engine(true), &setting.workload);
    let lengths = workload.prompt_len.iter().zip(&workload.output_len).map(|(p, o)| p.saturating_add(*o));
    // A round drafts beyond the end of what is asked.
    let longest = lengths.max().unwrap_or(0).saturating_add(engine.max_draft_len + 1);
    EngineLimits {
        max_model_len: Some(longest.min(engine.max_model_len)),
        max_num_seqs: Some(engine.max_num_seqs),
        max_num_batched_tokens: Some(engine.max_num_batched_tokens),
    }
}

/// Measures the pair as it will serve.
fn profile(
    live: &LiveSpec,
    engine: EngineLimits,
    folder: &Folder,
    name: &str,
    seconds: f64,
    quick: bool,
    interrupt: &AtomicBool,
) -> Result<Profile> {
    let device: DeviceName =
        live.device.parse().map_err(|why: String| Problem::bad_input(format!("live.device: {why}")))?;
    let output = folder.path().join(name);
    let args = ProfileArgs {
        target: live.target.clone(),
        draft: live.draft.clone(),
        device,
        weights: (live.weights == WeightSource::Random).then_some(WeightsFrom::Random),
        threads: live.threads.and_then(|n| u16::try_from(n).ok()),
        instructions: live.instructions,
        output: output.clone(),
        engine,
        quick,
        time_budget: Some(seconds),
        seed: 1,
        plot: false,
        overwrite: true,
        format: Format::Table,
    };
    let profile = measured(&args, interrupt);
    // One that was interrupted is not gone on with: it would be of another time.
    let _ = std::fs::remove_file(Partial::path_for(&output));
    let profile = profile?;
    profile.warnings.iter().for_each(|w| eprintln!("warning: {name}: {w}"));
    folder.write(name, profile.to_toml().as_bytes())?;
    Ok(profile)
}

/// Compares, and writes what was found.
fn keep(compared: &Compared, to: &Folder) -> Result<Validation> {
    let (validation, runs) = compared.validation()?;
    let json = serde_json::to_string_pretty(&validation).expect("plain data always serialises");
    to.write(OUTCOME[0], (json + "\n").as_bytes())?;
    to.write(OUTCOME[1], render(&validation).as_bytes())?;
    to.write(OUTCOME[2], page(&validation, runs).html().as_bytes())?;
    to.enter(&OUTCOME)?;
    Ok(validation)
}

fn show(args: &ValidateArgs, validation: &Validation) -> Result<()> {
    match args.format {
        Format::Table => print(&render(validation)),
        Format::Json => print(&(serde_json::to_string_pretty(validation).expect("plain data") + "\n")),
    }
}

/// The exit code.
fn verdict(validation: &Validation) -> Result<()> {
    let broken: Vec<&str> = validation.checks.iter().filter(|c| !c.kept).map(|c| c.what.as_str()).collect();
    let Some(first) = broken.first() else { return Ok(()) };
    let limited = validation.caveats.first().map_or(String::new(), |caveat| format!("{caveat}. "));
    let (n, of) = (broken.len(), validation.checks.len());
    let message = format!("{limited}{n} of {of} bounds are broken; the first: {first}");
    Err(Problem::new(Exit::Negative, message).help(match validation.steady() {
        true => "validation.txt says by how much and in which kind of pass",
        false => "the machine was not steady: its own changes are among the errors. Run it again on a quiet machine",
    }))
}
