//! Runs a whole validation: profiles a device, makes the live runs, compares them with simulations, and writes the
//! results. It can also compare the live runs of an existing folder.

use super::compare_runs::{Compared, PassCosts};
use super::measure::check_one_setting;
use super::piece::{Measuring, first_slice};
use super::profile_slices::Slices;
use super::read_tapes::Tapes;
use super::runs::Runs;
use crate::profiling::{Asked, Limits};
use crate::serve::{Models, Timed, check, open_timed, prompts};
use foretoken_policies::PolicySpec;
use foretoken_profiler::{Density, Profile, Role, Truth, Until};
use foretoken_run::cells::{EXPERIMENT, Folder, Manifest, Mode, RUNS_JSON, Speed, TAPES, digest, make_folder};
use foretoken_run::plan::{Measured, Plan};
use foretoken_run::profiled::{self, Either};
use foretoken_run::setting::Setting;
use foretoken_run::spec::live::{LiveSpec, required, with_device};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::validate::ValidateSpec;
use foretoken_run::work::Work;
use foretoken_servers::calibrate::live::not_of_its_own;
use foretoken_servers::compare::live_runs::{Validation, page, render};
use foretoken_sim::Pair;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// File name of the profile whose costs predict the runs.
pub const PROFILE: &str = "profile.toml";
/// File name of the profile by which policies decided in the live runs: the first slice (the part measured before the
/// runs) of the profile. The file exists only if the validation measured the profile itself.
pub const BELIEF: &str = "belief.toml";
/// File names of the comparison: as JSON, as text, and as an HTML page.
pub const OUTCOME: [&str; 3] = ["validation.json", "validation.txt", "validation.html"];
/// Seed that decides the order in which the profile's pass shapes are measured, and the folds of the cross-validation
/// of the fits.
const PROFILE_SEED: u64 = 1;
/// The word by which reports name pass costs that come from a measured profile.
const PROFILED: &str = "profiled";

/// Which experiment to validate (to compare live runs with simulations), and how.
pub struct Request<'a> {
    pub experiment: &'a Path,
    /// Changes of the experiment's settings, each as `key=value`.
    pub sets: &'a [String],
    /// The device that makes the live runs; `None`: the device that the experiment names.
    pub device: Option<&'a str>,
    /// The CPU's vector instructions. `None`: the experiment's, and if it names none, the best that the CPU has.
    pub instructions: Option<foretoken_run::spec::live::Instructions>,
    /// The profile whose costs predict the runs. `None`: the experiment's profile; if it has none, the validation
    /// measures one.
    pub profile: Option<&'a Path>,
    /// The results folder; `None`: a new folder with the usual name.
    pub output: Option<PathBuf>,
    /// Whether to replace the contents of an existing results folder.
    pub overwrite: bool,
    /// Handle through which Ctrl-C stops the validation. The message after an interrupt says which results are stored.
    pub work: &'a Work,
    /// Returns the current time as RFC 3339 text, which the profile states as its time of measurement.
    pub now: fn() -> String,
}

pub struct Outcome {
    pub validation: Validation,
    pub folder: PathBuf,
    /// Wall time of the whole validation, seconds.
    pub wall_s: f64,
}

pub fn run_and_compare(request: Request) -> Result<Outcome> {
    let begun = Instant::now();
    let mut plan = load_plan(request.experiment, request.sets)?;
    let variant = &plan.variants[0];
    let live = required(variant.experiment.live.as_ref(), &plan.name)?;
    let live = with_device(live, request.device, request.instructions);
    check_one_setting(&plan)?;
    let models = Models::find(&live)?;
    let setting = Setting::new(variant, plan.seeds[0])?;
    let room = check(&plan, variant, &setting, &live, &models)?;
    let given = request.profile.or(variant.experiment.hardware.profile.as_deref());
    let given = given.map(GivenProfile::read).transpose()?;
    let spec = variant.experiment.validate.clone().unwrap_or_default();
    let asked = profile_settings(&setting, &spec);
    let (watch, interrupt) = (request.work.interrupt.watch(), request.work.interrupt.flag());
    let to = request.output.unwrap_or_else(|| plan.usual_folder("validate-"));
    let mode = if request.overwrite { Mode::Overwrite } else { Mode::Fresh };
    let (folder, _) = Folder::open(to, &plan, mode)?;
    let mut machine = open_timed(&live, &models, room, &asked).inspect_err(|_| folder.abandon())?;
    let mut profiling = Profiling { given, slices: None, spec: &spec, now: request.now };
    let name = profiling.write_belief(&mut *machine, &folder, interrupt).inspect_err(|_| folder.abandon())?;
    plan = Plan::load(request.experiment, request.sets)?.with_profile(&folder.path().join(name))?;
    prepare(&mut plan);
    folder.replan(&plan)?;
    let runs = serve(&plan, &live, &models, &mut *machine, profiling.slices.as_mut(), &folder, interrupt)?;
    folder.write(RUNS_JSON, runs.to_json().as_bytes())?;
    let predicting = profiling.finish(&folder)?;
    request.work.interrupt.keeps("all runs are kept", "foretoken validate DIR compares them");
    drop(watch);
    let mut manifest = Manifest::read(folder.path())?;
    // The live runs are complete. The file of the manifest says so only after the comparison is written.
    manifest.complete = true;
    let tapes = Tapes { folder: folder.path(), manifest: &manifest, intact: false };
    let caveats = changes(folder.path(), &manifest, &plan)?;
    let Predicting { costs, words } = predicting;
    let compared = Compared { plan: &plan, tapes, runs: &runs, profile: costs.as_ref(), costs: words, caveats };
    let validation = write_outcome(&compared, &folder)?;
    let speed = Speed { cells: runs.entries.len() as u64, wall_s: begun.elapsed().as_secs_f64(), ..Speed::default() };
    folder.complete(&plan, &speed)?;
    Ok(Outcome { validation, folder: folder.path().to_path_buf(), wall_s: speed.wall_s })
}

/// What to compare: the live runs of an existing folder with simulations.
pub struct Comparing<'a> {
    pub folder: &'a Path,
    /// The profile whose costs predict the runs. `None`: the profile that the folder's validation measured, else the
    /// experiment's.
    pub profile: Option<PathBuf>,
    /// The folder to which the comparison is written; `None`: the folder with the live runs.
    pub output: Option<PathBuf>,
    /// True: damaged tapes are read up to the damage. False: a damaged tape is an error.
    pub intact: bool,
}

/// Compares the live runs of an existing folder with simulations, and writes the comparison. It runs nothing on a
/// device.
pub fn compare_folder(comparing: Comparing) -> Result<Validation> {
    let path = comparing.folder;
    let runs = Runs::of(path)?;
    let manifest = Manifest::read(path)?;
    runs.check(path, &manifest)?;
    let mut plan = Plan::load(&path.join("experiment.toml"), &[])?;
    plan.baseline_first();
    // A folder has both profile files if its validation measured the profile itself. The costs in `PROFILE` are then
    // fitted to the whole measurement, and the costs in `BELIEF` only to its first part.
    let whole = Some(path.join(PROFILE)).filter(|whole| whole.exists() && path.join(BELIEF).exists());
    let given = comparing.profile.or(whole);
    let profile = given.as_deref().map(GivenProfile::read).transpose()?;
    if let (Some(path), Some(profile)) = (&given, &profile) {
        not_of_its_own(path, &profile.fitted_to, &manifest.files)?;
    }
    let to = comparing.output.unwrap_or_else(|| path.to_path_buf());
    make_folder(&to).map_err(|e| e.help("choose another with -o"))?;
    let given = given.as_ref().or(plan.variants[0].experiment.hardware.profile.as_ref());
    let costs = match given {
        Some(path) => format!("{}: {}", profile.as_ref().map_or(PROFILED, |p| p.word), path.display()),
        None => "the experiment's [hardware], not profiled".to_owned(),
    };
    let mut caveats = changes(path, &manifest, &plan)?;
    let (profile, changed) = profile.map_or((None, None), |given| (Some(given.costs), given.changed));
    caveats.extend(changed.map(changed_profile));
    let tapes = Tapes { folder: path, manifest: &manifest, intact: comparing.intact };
    let compared = Compared { plan: &plan, tapes, runs: &runs, profile: profile.as_ref(), costs, caveats };
    write_outcome(&compared, &Folder::at(to))
}

/// Loads an experiment's plan and prepares it for live runs.
fn load_plan(experiment: &Path, sets: &[String]) -> Result<Plan> {
    let mut plan = Plan::load(experiment, sets)?;
    prepare(&mut plan);
    Ok(plan)
}

fn prepare(plan: &mut Plan) {
    plan.baseline_first();
    plan.measured = Some(Measured::Live);
}

/// The profile of a validation while the live runs are made. Either the user gives it, or it is measured in parts
/// (slices) between the runs.
struct Profiling<'a> {
    given: Option<GivenProfile>,
    /// The measured profile. `None` if a profile is given, and before its first part is measured.
    slices: Option<Slices>,
    spec: &'a ValidateSpec,
    now: fn() -> String,
}

/// The costs that predict the pass times of the runs, and their origin.
struct Predicting {
    /// The fitted pass costs that predict the runs. `None` if a profile was given, because the experiment then already
    /// has the profile's costs.
    costs: Option<PassCosts>,
    /// Where the pass costs that predict the runs come from, as text.
    words: String,
}

impl Profiling<'_> {
    /// Writes the file with the profile by whose costs the policies decide, and returns the file's name. If a profile
    /// is given, the file is a copy of the given profile. Otherwise this function measures the first part (slice) of
    /// the profile, and the file has the costs fitted to this part.
    fn write_belief(
        &mut self,
        machine: &mut dyn Timed,
        folder: &Folder,
        interrupt: &AtomicBool,
    ) -> Result<&'static str> {
        let (name, text) = match &self.given {
            // The text is copied unchanged, so that the seal of an edited profile stays wrong.
            Some(given) => (PROFILE, given.text.clone()),
            None => {
                let (share, whole_s) = (first_slice(self.spec), self.spec.profile_s);
                eprintln!("profiling for {whole_s} s, {:.0} s of it before the runs", whole_s * share);
                let mut slices = Slices::new(machine.setup().clone());
                slices.go_on(machine, Until::Share(share), interrupt)?;
                let text = slices.profile((self.now)())?.to_toml();
                self.slices = Some(slices);
                (BELIEF, text)
            }
        };
        folder.write(name, text.as_bytes())?;
        Ok(name)
    }

    /// If the profile was measured, writes the whole profile. Returns the costs that predict the runs.
    fn finish(self, folder: &Folder) -> Result<Predicting> {
        let Some(slices) = self.slices else {
            let given = self.given.expect("a profile is given or measured");
            return Ok(Predicting { costs: None, words: format!("{}: {PROFILE}, {}", given.word, given.made) });
        };
        let whole = slices.profile((self.now)())?;
        whole.warnings.iter().for_each(|w| eprintln!("warning: {PROFILE}: {w}"));
        folder.write(PROFILE, whole.to_toml().as_bytes())?;
        folder.enter(&[PROFILE])?;
        let words = format!("{PROFILED}: {PROFILE}, {}", made_when(&whole));
        Ok(Predicting { costs: Some(pass_costs(&whole)), words })
    }
}

/// Makes the live runs: every policy at every load.
fn serve(
    plan: &Plan,
    live: &LiveSpec,
    models: &Models,
    machine: &mut dyn Timed,
    slices: Option<&mut Slices>,
    folder: &Folder,
    interrupt: &AtomicBool,
) -> Result<Runs> {
    make_folder(&folder.path().join(TAPES))?;
    let spec = plan.variants[0].experiment.validate.clone().unwrap_or_default();
    let policies: Vec<PolicySpec> = plan.policies.iter().map(|p| p.spec.clone()).collect();
    let seed = plan.seeds[0];
    let mut setting = Setting::new(&plan.variants[0], seed)?;
    let prompts = prompts(&live.prompts, &mut setting.workload, seed, models)?;
    let spec = &spec;
    Measuring { machine, live, spec, policies: &policies, setting, prompts, slices, folder, interrupt }.run()
}

/// Sentences about files that changed since the live runs: the experiment, the profile, and other files that the
/// experiment reads.
fn changes(folder: &Path, manifest: &Manifest, plan: &Plan) -> Result<Vec<String>> {
    let mut changes = Vec::new();
    // A profile that the user gave is one of the files that the experiment reads. These files are compared below.
    let own_profile = folder.join(BELIEF).exists().then_some(PROFILE);
    for name in [Some(EXPERIMENT), own_profile].into_iter().flatten() {
        let Some(was) = manifest.files.get(name) else { continue };
        let path = folder.join(name);
        let is = digest(&path).map_err(|e| Problem::failed(format!("cannot read {}: {e}", path.display())))?;
        if is != *was {
            let how = format!("its blake3 is {is}, in the manifest {was}");
            changes.push(format!("CHANGED: {name} was edited or damaged since the runs: {how}"));
        }
    }
    let of_the_runs = |digest: &String| manifest.inputs.values().any(|was| was == digest);
    let others = plan.inputs.iter().filter(|(_, digest)| !of_the_runs(digest));
    changes.extend(others.map(|(name, _)| format!("CHANGED: {name} is not the file that the runs were made with")));
    changes.extend(plan.variants.iter().find_map(|v| v.filled.changed.clone()).map(changed_profile));
    Ok(changes)
}

fn changed_profile(why: String) -> String {
    format!("CHANGED: the profile {why}")
}

/// A profile that the user or the experiment gives. It is measured or calibrated.
pub struct GivenProfile {
    costs: PassCosts,
    text: String,
    /// How the profile's costs were found: `profiled` (passes were timed) or `calibrated` (fitted to runs).
    word: &'static str,
    /// A text that says when the profile was measured, or to which device's runs it was fitted.
    made: String,
    /// Digests of the tapes to which the profile was fitted. The profile must not predict the runs of these tapes.
    fitted_to: Vec<String>,
    /// A warning if the seal of the profile's file (a checksum at its end) is wrong, which means that the file was
    /// edited.
    changed: Option<String>,
}

impl GivenProfile {
    fn read(path: &Path) -> Result<GivenProfile> {
        let text = foretoken_run::spec::text::read(path).map_err(|e| {
            Problem::bad_input(format!("cannot read the profile: {e}")).help("`foretoken profile` makes a profile")
        })?;
        let name = path.display().to_string();
        let changed = profiled::changed(&name, &text);
        let given = match profiled::read_either(&name, &text)? {
            Either::Measured(p) => GivenProfile {
                costs: pass_costs(&p),
                text,
                word: PROFILED,
                made: made_when(&p),
                fitted_to: vec![],
                changed,
            },
            Either::Calibrated(c) => GivenProfile {
                costs: PassCosts {
                    models: Pair { target: c.target.cost, draft: c.draft.cost },
                    reads: c.context_reads,
                    probes: c.probes,
                },
                text,
                word: "calibrated",
                made: format!("to runs on {}", c.server),
                fitted_to: c.fitted_to,
                changed,
            },
        };
        Ok(given)
    }
}

fn pass_costs(profile: &Profile) -> PassCosts {
    let truth = Truth::default();
    PassCosts {
        models: Pair { target: profile.truth(Role::Target, truth), draft: profile.truth(Role::Draft, truth) },
        reads: profile.reads(Role::Target, truth),
        probes: vec![],
    }
}

fn made_when(profile: &Profile) -> String {
    let device = &profile.device;
    let on = device.speed.as_ref().map_or(String::new(), |speed| format!(": {}, {speed}", device.name));
    format!("of {}{on}", profile.measured_at)
}

/// The settings of a profile that covers all passes of the experiment.
fn profile_settings(setting: &Setting, spec: &ValidateSpec) -> Asked {
    let (engine, workload) = (setting.engine(true), &setting.workload);
    let lengths = workload.prompt_len.iter().zip(&workload.output_len).map(|(p, o)| p.saturating_add(*o));
    // A request's last draft tokens may lie beyond the end of its output, hence the added draft length.
    let longest = lengths.max().unwrap_or(0).saturating_add(engine.max_draft_len + 1);
    let limits = Limits {
        max_model_len: Some(longest.min(engine.max_model_len)),
        max_num_seqs: Some(engine.max_num_seqs),
        max_num_batched_tokens: Some(engine.max_num_batched_tokens),
    };
    Asked { limits, density: Density::Full, budget_s: spec.profile_s, seed: PROFILE_SEED }
}

/// Makes the comparison, and writes it as JSON, text and HTML page to the folder `to`.
fn write_outcome(compared: &Compared, to: &Folder) -> Result<Validation> {
    let (validation, runs) = compared.validation()?;
    to.write(OUTCOME[0], validation.to_json().as_bytes())?;
    to.write(OUTCOME[1], render(&validation).as_bytes())?;
    to.write(OUTCOME[2], page(&validation, runs).html().as_bytes())?;
    to.enter(&OUTCOME)?;
    Ok(validation)
}
