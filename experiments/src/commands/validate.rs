//! `foretoken validate`: runs an experiment on a device and in the simulator, and compares the two.

use super::print;
use crate::cli::{Format, ValidateArgs};
use foretoken_calibrate::live::not_of_its_own;
use foretoken_live::profiling::{Asked, Limits};
use foretoken_live::serve::{Models, Timed, check, open_timed, prompts};
use foretoken_live::validate::{
    Compared, Measuring, PassCosts, Runs, Slices, Tapes, Validation, first_slice, page, render,
};
use foretoken_policies::PolicySpec;
use foretoken_profiler::{Density, Profile, Role, Truth, Until};
use foretoken_run::cells::{EXPERIMENT, Folder, Manifest, Mode, Speed, digest};
use foretoken_run::cells::{RUNS_JSON, TAPES};
use foretoken_run::interrupt;
use foretoken_run::plan::{Measured, Plan};
use foretoken_run::profiled::{self, Either};
use foretoken_run::setting::Setting;
use foretoken_spec::live::{LiveSpec, required, with_device};
use foretoken_spec::problem::{Exit, Problem, Result};
use foretoken_spec::validate::ValidateSpec;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

/// File of the profile that predicts.
const PROFILE: &str = "profile.toml";
/// File of the profile's first slice, which policies believed in the live runs. Only where the validation made the
/// profile.
const BELIEF: &str = "belief.toml";
/// Seed of the order of a profile's visits.
const PROFILE_SEED: u64 = 1;
/// The source of a measured profile's costs, in a word.
const PROFILED: &str = "profiled";
/// Files of the outcome: JSON, text, page.
const OUTCOME: [&str; 3] = ["validation.json", "validation.txt", "validation.html"];

/// Runs the command.
pub fn run(args: &ValidateArgs) -> Result<()> {
    let path = args.path.as_deref().expect("clap asks for it where nothing was observed");
    match path.is_dir() {
        true => compare_only(args, path),
        false => live_and_compare(args, path),
    }
}

/// Compares the runs of an existing folder.
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
    // A finished validation has the whole profile, which continues the first slice.
    let whole = Some(path.join(PROFILE)).filter(|whole| whole.exists() && path.join(BELIEF).exists());
    let given = args.profile.clone().or(whole);
    let profile = given.as_deref().map(read_profile).transpose()?;
    if let (Some(path), Some(profile)) = (&given, &profile) {
        not_of_its_own(path, &profile.fitted_to, &manifest.files)?;
    }
    let to = args.output.clone().unwrap_or_else(|| path.to_path_buf());
    std::fs::create_dir_all(&to).map_err(|e| {
        Problem::failed(format!("cannot make the folder {}: {e}", to.display())).help("choose another with -o")
    })?;
    let given = given.as_ref().or(plan.variants[0].experiment.hardware.profile.as_ref());
    let costs = match given {
        Some(path) => format!("{}: {}", profile.as_ref().map_or(PROFILED, |p| p.word), path.display()),
        None => "the experiment's [hardware], not profiled".to_owned(),
    };
    let mut caveats = changed(path, &manifest, &plan)?;
    let (profile, why) = profile.map_or((None, None), |given| (Some(given.costs), given.changed));
    caveats.extend(why.map(changed_profile));
    let tapes = Tapes { folder: path, manifest: &manifest, intact: args.intact };
    let compared = Compared { plan: &plan, tapes, runs: &runs, profile: profile.as_ref(), costs, caveats };
    let validation = keep(&compared, &Folder::at(to))?;
    show(args, &validation)?;
    verdict(&validation)
}

/// The ways in which the folder's experiment differs from the one that was run.
fn changed(folder: &Path, manifest: &Manifest, plan: &Plan) -> Result<Vec<String>> {
    let mut all = Vec::new();
    // A profile that was given is among the inputs below.
    let own_profile = folder.join(BELIEF).exists().then_some(PROFILE);
    for name in [Some(EXPERIMENT), own_profile].into_iter().flatten() {
        let Some(was) = manifest.files.get(name) else { continue };
        let path = folder.join(name);
        let is = digest(&path).map_err(|e| Problem::failed(format!("cannot read {}: {e}", path.display())))?;
        if is != *was {
            let how = format!("its blake3 is {is}, in the manifest {was}");
            all.push(format!("CHANGED: {name} was edited or damaged since the runs: {how}"));
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

/// Runs an experiment on a device and compares.
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
    let given = args.profile.as_deref().or(variant.experiment.hardware.profile.as_deref());
    let given = given.map(read_profile).transpose()?;
    let (watch, interrupt) = (interrupt::watch(), interrupt::flag());
    let to = args.output.clone().unwrap_or_else(|| plan.usual_folder("validate-"));
    let mode = if args.overwrite { Mode::Overwrite } else { Mode::Fresh };
    let (folder, _) = Folder::open(to, &plan, mode)?;
    let begun = Instant::now();
    let spec = variant.experiment.validate.clone().unwrap_or_default();
    let asked = asked(&setting, &spec);
    let mut machine = open_timed(&live, &models, room, &asked).inspect_err(|_| folder.abandon())?;
    let mut slices = given.is_none().then(|| Slices::new(machine.setup().clone()));
    let (name, text) = match (&given, &mut slices) {
        // Written byte for byte, so that an edited profile stays recognisable.
        (Some(given), _) => (PROFILE, given.text.clone()),
        (None, Some(slices)) => {
            let first = Until::Share(first_slice(&spec));
            eprintln!(
                "profiling for {} s, {:.0} s of it before the runs",
                spec.profile_s,
                spec.profile_s * first_slice(&spec)
            );
            slices.go_on(&mut *machine, first, &interrupt).inspect_err(|_| folder.abandon())?;
            (BELIEF, slices.profile(now())?.to_toml())
        }
        (None, None) => unreachable!("a profile is given or measured"),
    };
    folder.write(name, text.as_bytes())?;
    let mut plan = Plan::load_with_profile(path, &args.sets, &folder.path().join(name))?;
    plan.baseline_first();
    plan.measured = Some(Measured::Live);
    folder.replan(&plan)?;
    let runs = serve(&plan, &live, &models, &mut *machine, slices.as_mut(), &folder, &interrupt)?;
    folder.write(RUNS_JSON, runs.to_json().as_bytes())?;
    let whole = slices.map(|slices| slices.profile(now())).transpose()?;
    if let Some(whole) = &whole {
        whole.warnings.iter().for_each(|w| eprintln!("warning: {PROFILE}: {w}"));
        folder.write(PROFILE, whole.to_toml().as_bytes())?;
        folder.enter(&[PROFILE])?;
    }
    interrupt::keeps("all runs are kept", "foretoken validate DIR compares them");
    drop(watch);
    let made = || given.as_ref().map(|g| (g.word, g.made.clone())).expect("a profile is given or measured");
    let (word, made) = whole.as_ref().map_or_else(made, |whole| (PROFILED, made_when(whole)));
    let costs = format!("{word}: {PROFILE}, {made}");
    let mut manifest = Manifest::read(folder.path())?;
    // The runs are complete; the manifest says so once the comparison is written.
    manifest.complete = true;
    let tapes = Tapes { folder: folder.path(), manifest: &manifest, intact: false };
    let caveats = changed(folder.path(), &manifest, &plan)?;
    let predicting = whole.as_ref().map(pass_costs);
    let compared = Compared { plan: &plan, tapes, runs: &runs, profile: predicting.as_ref(), costs, caveats };
    let validation = keep(&compared, &folder)?;
    let speed = Speed { cells: runs.entries.len() as u64, wall_s: begun.elapsed().as_secs_f64(), ..Speed::default() };
    folder.complete(&plan, &speed)?;
    show(args, &validation)?;
    eprintln!("results: {} ({:.0} s)", folder.path().display(), speed.wall_s);
    verdict(&validation)
}

/// Runs every policy at every load.
fn serve(
    plan: &Plan,
    live: &LiveSpec,
    models: &Models,
    machine: &mut dyn Timed,
    slices: Option<&mut Slices>,
    folder: &Folder,
    interrupt: &AtomicBool,
) -> Result<Runs> {
    std::fs::create_dir_all(folder.path().join(TAPES))
        .map_err(|e| Problem::failed(format!("cannot make the folder {TAPES}: {e}")))?;
    let spec = plan.variants[0].experiment.validate.clone().unwrap_or_default();
    let policies: Vec<PolicySpec> = plan.policies.iter().map(|p| p.spec.clone()).collect();
    let seed = plan.seeds[0];
    let mut setting = Setting::new(&plan.variants[0], seed)?;
    let prompts = prompts(&live.prompts, &mut setting.workload, seed, models)?;
    let spec = &spec;
    Measuring { machine, live, spec, policies: &policies, setting, prompts, slices, folder, interrupt }.run()
}

/// Refuses several settings: each would be a validation of its own.
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

/// A profile that was made before: measured, or calibrated.
struct Given {
    costs: PassCosts,
    text: String,
    /// Its source: profiled or calibrated.
    word: &'static str,
    /// When it was measured, or what it was fitted to, and on which device.
    made: String,
    /// Digests of the recordings that it was fitted to and may not predict.
    fitted_to: Vec<String>,
    /// A warning if its seal is broken.
    changed: Option<String>,
}

fn read_profile(path: &Path) -> Result<Given> {
    let text = foretoken_spec::text::read(path).map_err(|e| {
        Problem::bad_input(format!("cannot read the profile: {e}")).help("`foretoken profile` makes a profile")
    })?;
    let name = path.display().to_string();
    let changed = profiled::changed(&name, &text);
    let (costs, word, made, fitted_to) = match profiled::read_either(&name, &text)? {
        Either::Measured(p) => (pass_costs(&p), PROFILED, made_when(&p), vec![]),
        Either::Calibrated(c) => {
            let costs =
                PassCosts { target: c.target.cost, draft: c.draft.cost, reads: c.context_reads, probes: c.probes };
            (costs, "calibrated", format!("to runs on {}", c.server), c.fitted_to)
        }
    };
    Ok(Given { costs, text, word, made, fitted_to, changed })
}

fn pass_costs(profile: &Profile) -> PassCosts {
    let truth = Truth::default();
    PassCosts {
        target: profile.truth(Role::Target, truth),
        draft: profile.truth(Role::Draft, truth),
        reads: profile.reads(Role::Target, truth),
        probes: vec![],
    }
}

fn made_when(profile: &Profile) -> String {
    let device = &profile.device;
    let on = device.speed.as_ref().map_or(String::new(), |speed| format!(": {}, {speed}", device.name));
    format!("of {}{on}", profile.measured_at)
}

/// The ranges that a profile must cover to predict the experiment.
fn asked(setting: &Setting, spec: &ValidateSpec) -> Asked {
    let (engine, workload) = (setting.engine(true), &setting.workload);
    let lengths = workload.prompt_len.iter().zip(&workload.output_len).map(|(p, o)| p.saturating_add(*o));
    // A round drafts beyond the end of the output.
    let longest = lengths.max().unwrap_or(0).saturating_add(engine.max_draft_len + 1);
    let limits = Limits {
        max_model_len: Some(longest.min(engine.max_model_len)),
        max_num_seqs: Some(engine.max_num_seqs),
        max_num_batched_tokens: Some(engine.max_num_batched_tokens),
    };
    Asked { limits, density: Density::Full, budget_s: spec.profile_s, seed: PROFILE_SEED }
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Compares, and writes the outcome.
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

/// Exits with 3 where the verdict is negative.
fn verdict(validation: &Validation) -> Result<()> {
    if !validation.decided() {
        let message = format!(
            "nothing is decided: in none of the {} pieces the machine was steady, by the rule that was stated before",
            validation.counted.1
        );
        return Err(Problem::new(Exit::Negative, message).help(
            "leave the machine alone and run it again, in more pieces (validate.pieces) if it is shared; \
             validate.tolerance.steady says how much of a change counts as none, for those who know what they allow",
        ));
    }
    let broken: Vec<&str> = validation.checks.iter().filter(|c| !c.kept).map(|c| c.what.as_str()).collect();
    let Some(first) = broken.first() else { return Ok(()) };
    let limited = validation.caveats.first().map_or(String::new(), |caveat| format!("{caveat}. "));
    let (n, of) = (broken.len(), validation.checks.len());
    let message = format!("{limited}{n} of {of} bounds are broken; the first: {first}");
    Err(Problem::new(Exit::Negative, message)
        .help("validation.txt says by how much, in which kind of pass, and how far live runs are from each other"))
}
