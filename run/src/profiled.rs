//! Reads the file of a profile, which an experiment names as `hardware.profile = "FILE.toml"`. A profile gives the true
//! costs of passes, and the linear cost model that policies get.
//!
//! The profile's values are put into the experiment's TOML before the settings are read. So the rest of the program
//! sees ordinary latency models and coefficients. These values are left out when the experiment is written beside its
//! results.

use crate::spec::document::{Document, Path};
use crate::spec::problem::{Problem, Result};
use foretoken_policies::PolicySpec;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_profiler::{Calibrated, Measurement, Profile, ProfileError, Range, Region, Role, Truth};
use foretoken_report::{Figure, Profiled, ProfiledFit, ProfiledPass, profile_figures};
use foretoken_sim::{Coefficients, ContextReads, HostLaw, LatencyModel, PassShape, Time};
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicU64, Ordering};

/// The keys of an experiment that a profile filled in, and facts about the profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filled {
    /// Paths of the experiment's keys that the profile filled in.
    pub keys: Vec<Path>,
    /// The largest passes that were timed for the profile, for (target model, draft model); `None` without a profile.
    pub ranges: Option<(Range, Range)>,
    /// A warning that the cost models in the profile fit the measured times badly; `None` if they fit well.
    pub warning: Option<String>,
    /// Why the profile may have other costs than were measured: the file was edited, or it has no seal. `None` if the
    /// seal matches.
    pub changed: Option<String>,
    /// The only draft lengths for which the profile can predict step times; `None` if it can predict the step times of
    /// all lengths.
    pub only: Option<Vec<u32>>,
    /// Were the profile's costs fitted to observed runs of a server (`foretoken calibrate`)? Then the experiment that
    /// names the profile describes this server.
    pub calibrated: bool,
}

const PROFILE: &str = "hardware.profile";

/// The path of the profile as the experiment gives it; `None` without a profile.
pub fn named(document: &Document) -> Option<String> {
    document.text_at(&Path::of(PROFILE))
}

/// Puts the costs of a profile into the experiment's TOML. `file` is the profile's path; `given` is this path as the
/// experiment gives it.
pub fn fill(document: &mut Document, given: &str, file: &FilePath) -> Result<Filled> {
    let at = Path::of(PROFILE);
    let text = crate::spec::text::read(file).map_err(|e| {
        let problem = document.problem_at(&at, format!("cannot read the profile: {e}"));
        problem.help("a relative path starts at the experiment's folder; `foretoken profile` makes a profile")
    })?;
    let truth = truth(document)?;
    let costs = costs(document, &file.display().to_string(), &text, truth)?;
    for key in ["target", "draft"] {
        let path = Path::of("hardware").key(key);
        if document.get(&path).is_some() {
            let problem =
                document.problem_at(&path, format!("hardware.{key} and hardware.profile both say what a pass costs"));
            return Err(problem.help("keep one of them"));
        }
    }
    let mut filled = Filled {
        keys: Vec::new(),
        ranges: Some(costs.ranges),
        warning: costs.distrust.as_ref().map(|why| format!("{given}: {why}")),
        changed: changed(given, &text),
        only: costs.only,
        calibrated: costs.calibrated,
    };
    let mut put = |document: &mut Document, path: Path, value: &toml::Value| {
        document.replace(&path, given, &value.to_string())?;
        filled.keys.push(path);
        Ok::<(), Box<Problem>>(())
    };
    let mut line_is_ours = false;
    for (role, (truth, belief_is)) in Role::BOTH.into_iter().zip(&costs.models) {
        put(document, Path::of("hardware").key(role.name()), &as_toml(truth)?)?;
        let belief = Path::of("belief").key(role.name());
        // Policies do not get the linear cost model of the profile if the experiment gives a linear cost model for the
        // same model (target or draft), or fits a linear cost model to another machine (`belief.fitted_to`).
        if document.get(&belief).is_none() && document.get(&Path::of("belief.fitted_to")).is_none() {
            put(document, belief, &as_toml(belief_is)?)?;
            line_is_ours |= role == Role::Target;
        }
    }
    // The linear cost of the target model in the profile was fitted with one way of counting context (once per request,
    // or once per verified position). The linear cost model that policies get must count context in the same way, even
    // if the true costs count it differently.
    let reads = Path::of("belief.context_reads");
    if line_is_ours && document.get(&reads).is_none() {
        put(document, reads, &as_toml(&costs.belief_reads)?)?;
    }
    let reads = Path::of("hardware.context_reads");
    let measured_for = as_toml(&costs.reads)?;
    match document.text_at(&reads) {
        None => put(document, reads, &measured_for)?,
        Some(given) if Some(given.as_str()) == measured_for.as_str() => {}
        Some(_) => {
            let message = format!("hardware.profile was measured for hardware.context_reads = {measured_for}");
            return Err(document.problem_at(&reads, message).help("leave it out: the profile gives it"));
        }
    }
    // A calibrated profile has the host's time between steps. A value that the experiment gives takes precedence.
    let overhead = Path::of("engine.step_overhead_s");
    if let Some(seconds) = costs.step_overhead_s.filter(|_| document.get(&overhead).is_none()) {
        put(document, overhead, &toml::Value::Float(seconds))?;
    }
    let host = Path::of("engine.host");
    if !costs.host.is_zero() && document.get(&host).is_none() {
        put(document, host, &as_toml(&costs.host)?)?;
    }
    if wants_noise(document)? {
        let path = Path::of("hardware.noise_cv");
        if document.get(&path).is_some() {
            let message = "hardware.noise_cv and hardware.profile_noise both give the noise of a pass";
            return Err(document.problem_at(&path, message).help("keep one of them"));
        }
        put(document, path, &toml::Value::Float(costs.noise_cv))?;
    }
    Ok(filled)
}

impl Filled {
    /// Refuses a policy whose step times the profile cannot predict. A profile that was fitted to observed runs with a
    /// single draft length has only the time of whole steps with this length, not the separate times of draft passes.
    /// So it cannot predict other lengths.
    pub fn check_policy(&self, document: &Document, index: usize, policy: &PolicySpec) -> Result<()> {
        let fixed = match policy {
            PolicySpec::Fixed(p) => Some(p.k),
            PolicySpec::Autoregressive(_) => Some(0),
            _ => None,
        };
        match &self.only {
            Some(only) if !fixed.is_some_and(|k| only.contains(&k)) => {
                let at = document.problem_at(
                    &Path::of(&format!("policies[{index}]")),
                    format!("{} cannot be predicted: {}", policy.label(), cannot_be_told_apart(only)),
                );
                Err(at.help(observe_next(only)))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the profile can predict the step times of every draft length, for commands that compare lengths.
    pub fn check_all_lengths(&self) -> Result<()> {
        match &self.only {
            None => Ok(()),
            Some(only) => {
                let message = format!("other draft lengths cannot be predicted: {}", cannot_be_told_apart(only));
                Err(Problem::bad_input(message).help(observe_next(only)))
            }
        }
    }
}

fn cannot_be_told_apart(only: &[u32]) -> String {
    let lengths: Vec<String> = only.iter().map(u32::to_string).collect();
    let at = lengths.join(", ");
    match only {
        [0] => "the profile is calibrated to runs without drafts, and what drafts cost is not known".to_owned(),
        _ => format!("the profile is calibrated at K = {at} alone, where drafts and verification cannot be told apart"),
    }
}

fn observe_next(only: &[u32]) -> String {
    let next = if only.contains(&0) { 3 } else { 0 };
    format!("observe K = {next} next, on the same server, and calibrate on all runs")
}

/// The costs of passes in a profile: measured pass by pass, or fitted to the step times of an observed server.
pub struct Costs {
    /// For target model and draft model: (true cost of a pass, coefficients of the linear cost model that policies
    /// get).
    pub models: [(LatencySpec, Coefficients); 2],
    /// Do the true costs count a verify pass's context once per request, or once per verified position?
    pub reads: ContextReads,
    /// Does the linear cost model that policies get count a verify pass's context once per request, or once per
    /// verified position?
    belief_reads: ContextReads,
    ranges: (Range, Range),
    /// Coefficient of variation of the random noise in the time of a target pass.
    pub noise_cv: f64,
    /// Host time between steps, seconds; `None` for a profile that has only times of single passes.
    pub step_overhead_s: Option<f64>,
    /// The part of a step's host time that depends on the requests and tokens of the step. It is added to the constant
    /// part.
    pub host: HostLaw,
    /// A reason not to trust the profile's costs. For a profile that was fitted to observed runs and has no such
    /// reason: its first warning. `None` if there is neither.
    pub distrust: Option<String>,
    /// If draft passes could not be separated from target passes: the observed draft lengths, which are the only
    /// lengths that can be predicted. `None` if all lengths can be predicted.
    only: Option<Vec<u32>>,
    /// Were the profile's costs fitted to observed runs of a server (`foretoken calibrate`)?
    calibrated: bool,
}

/// Reads the pass costs from the text of a profile. If the profile has times of single passes, the costs are its table
/// of pass times. Error messages call the profile `name`.
pub fn costs_of(name: &str, text: &str) -> Result<Costs> {
    costs(&Document::parse(name, text)?, name, text, Truth::Table)
}

/// Reads the costs of passes from the text of a profile. A profile with times of single passes has several latency
/// models, of which `truth` chooses one. A profile that was fitted to observed runs has only one.
fn costs(document: &Document, name: &str, text: &str, truth: Truth) -> Result<Costs> {
    let c = match read_either(name, text)? {
        Either::Calibrated(c) => c,
        Either::Measured(p) => {
            return Ok(Costs {
                models: Role::BOTH.map(|role| (p.truth(role, truth), p.belief(role))),
                reads: p.reads(Role::Target, truth),
                belief_reads: p.context_reads,
                ranges: (p.range(Role::Target, truth), p.range(Role::Draft, truth)),
                noise_cv: p.target.noise_cv,
                step_overhead_s: None,
                host: HostLaw::default(),
                distrust: p.distrust(),
                only: None,
                calibrated: false,
            });
        }
    };
    if truth != Truth::Table {
        let message =
            "hardware.truth chooses among the latency models of a measured profile; a calibrated profile has only one";
        return Err(document.problem_at(&Path::of("hardware.truth"), message.to_owned()).help("leave it out"));
    }
    Ok(Costs {
        models: [(c.target.cost, c.target.belief), (c.draft.cost, c.draft.belief)],
        reads: c.context_reads,
        belief_reads: c.context_reads,
        ranges: (c.target.range, c.draft.range),
        noise_cv: c.noise_cv,
        step_overhead_s: Some(c.step_overhead_s),
        host: c.host,
        only: (!c.separated).then_some(c.draft_lengths),
        calibrated: true,
        distrust: c.distrust.or_else(|| c.warnings.first().cloned()),
    })
}

/// A profile of one of two kinds: with passes that were timed one by one, or with costs that were fitted to a server's
/// runs.
pub enum Either {
    /// A profile made by `foretoken profile`, which times passes one by one.
    Measured(Box<Profile>),
    /// A profile made by `foretoken calibrate` from observed runs of a server.
    Calibrated(Box<Calibrated>),
}

/// Reads the text of a profile, which has either measured times of single passes or costs that were fitted to observed
/// runs. Error messages call the profile `name`.
pub fn read_either(name: &str, text: &str) -> Result<Either> {
    let profile = Document::parse(name, text)?;
    match Calibrated::is_one(&profile.read()?) {
        true => calibrated(name, &profile).map(|c| Either::Calibrated(Box::new(c))),
        false => measured(name, &profile).map(|p| Either::Measured(Box::new(p))),
    }
}

/// Reads the text of a profile whose costs were fitted to observed runs (`foretoken calibrate`). Error messages call
/// the profile `name`.
pub fn read_calibrated(name: &str, text: &str) -> Result<Calibrated> {
    calibrated(name, &Document::parse(name, text)?)
}

fn calibrated(name: &str, document: &Document) -> Result<Calibrated> {
    let calibrated: Calibrated = document.read()?;
    calibrated.check().map_err(|(key, why)| {
        document.problem_at(&Path::of(&key), format!("{name}: {key}: {why}")).help("`foretoken calibrate` makes one")
    })?;
    Ok(calibrated)
}

/// Reads the text of a profile with measured times of single passes (`foretoken profile`). Error messages call the
/// profile `name`.
pub fn read(name: &str, text: &str) -> Result<Profile> {
    measured(name, &Document::parse(name, text)?)
}

fn measured(name: &str, document: &Document) -> Result<Profile> {
    let wrong = |e: ProfileError| {
        let key = match &e {
            ProfileError::Value { key, .. } => Path::of(key),
            _ => Path::of("schema_version"),
        };
        let problem = document.problem_at(&key, format!("{name}: {e}"));
        problem.help("`foretoken profile` makes a profile; one that was edited may have lost something")
    };
    Profile::check_version(&document.read()?).map_err(wrong)?;
    let profile: Profile = document.read()?;
    profile.check().map_err(wrong)?;
    Ok(profile)
}

/// Why the text of a profile may have other costs than were measured; `None` if the seal matches. The sentence begins
/// with `name`.
pub fn changed(name: &str, text: &str) -> Option<String> {
    Profile::changed(text).map(|why| format!("{name}: {why}"))
}

/// Reads `hardware.truth`: which of a profile's latency models is the true one. The default is the profile's table of
/// pass times. The key is read before the rest of the experiment, because it decides which costs are filled in.
fn truth(document: &Document) -> Result<Truth> {
    let at = Path::of("hardware.truth");
    match (document.get(&at), document.text_at(&at).as_deref()) {
        (None, _) | (_, Some("table")) => Ok(Truth::Table),
        (_, Some("linear")) => Ok(Truth::Linear),
        (_, Some("staircase")) => Ok(Truth::Staircase),
        _ => {
            let problem = document.problem_at(&at, "hardware.truth: unknown latency model");
            Err(problem.help("valid here: \"table\", \"linear\", \"staircase\""))
        }
    }
}

/// Reads `hardware.profile_noise`: shall pass times vary as in the profile? A value that is not a boolean counts as
/// false here; it is refused when the experiment is read.
fn wants_noise(document: &Document) -> Result<bool> {
    let node = document.get(&Path::of("hardware.profile_noise"));
    Ok(matches!(node.map(toml::Spanned::get_ref), Some(toml::de::DeValue::Boolean(true))))
}

fn as_toml(value: &impl serde::Serialize) -> Result<toml::Value> {
    toml::Value::try_from(value).map_err(|e| Problem::failed(format!("the profile cannot be written as TOML: {e}")))
}

/// A latency model that also records the largest number of new tokens and the largest context of any pass of a run. It
/// is used to warn of passes that are larger than all passes that the profile has.
pub struct LargestPass<'a> {
    model: &'a dyn LatencyModel,
    batched: AtomicU64,
    context: AtomicU64,
}

impl<'a> LargestPass<'a> {
    /// Wraps the latency model `model`, to record the largest passes. No pass is recorded yet.
    pub fn new(model: &'a dyn LatencyModel) -> LargestPass<'a> {
        LargestPass { model, batched: AtomicU64::new(0), context: AtomicU64::new(0) }
    }

    /// A warning if a pass of the run had more new tokens or more context than the passes of the profile (`range`);
    /// `None` if no pass had.
    pub fn beyond(&self, role: Role, range: &Range) -> Option<String> {
        let (batched, context) = (self.batched.load(Ordering::Relaxed), self.context.load(Ordering::Relaxed));
        let over = [(batched, range.batched, "batched tokens"), (context, range.context, "tokens of context")]
            .into_iter()
            .filter(|(seen, measured, _)| seen > measured)
            .map(|(seen, measured, what)| format!("{seen} {what}, measured up to {measured}"))
            .collect::<Vec<_>>();
        (!over.is_empty()).then(|| {
            format!(
                "{} passes went beyond the profile ({}): their times are extrapolated",
                role.name(),
                over.join("; ")
            )
        })
    }
}

impl LatencyModel for LargestPass<'_> {
    fn pass(&self, shape: PassShape) -> Time {
        self.batched.fetch_max(shape.batched, Ordering::Relaxed);
        self.context.fetch_max(shape.context, Ordering::Relaxed);
        self.model.pass(shape)
    }

    fn pass_beside(&self, shape: PassShape, all: u64) -> Time {
        self.batched.fetch_max(shape.batched, Ordering::Relaxed);
        self.context.fetch_max(shape.context, Ordering::Relaxed);
        self.model.pass_beside(shape, all)
    }

    fn least(&self) -> Time {
        self.model.least()
    }

    fn context_pass(&self, shape: PassShape) -> Time {
        self.batched.fetch_max(shape.batched, Ordering::Relaxed);
        self.model.context_pass(shape)
    }
}

/// Figures of predicted against measured pass times and of relative errors, for four fits: the linear fit and the table
/// of pass times, each for the target and for the draft model.
pub fn figures(profile: &Profile) -> Vec<Figure> {
    let fits = [(Truth::Linear, "linear fit"), (Truth::Table, "table")];
    let fits_of = |role: Role| fits.map(|(truth, name)| fit(profile, role, truth, name));
    let shapes = profile.target.measured.len() + profile.draft.measured.len();
    profile_figures(&Profiled {
        title: format!("{} with {} on {}", profile.target.model.name, profile.draft.model.name, profile.device.name),
        source: format!(
            "profiled {}, means of {} passes over {shapes} shapes",
            profile.measured_at, profile.measuring.passes
        ),
        regions: Region::ALL.iter().map(|region| region.name()).collect(),
        fits: Role::BOTH.into_iter().flat_map(fits_of).collect(),
    })
}

fn fit(profile: &Profile, role: Role, truth: Truth, name: &str) -> ProfiledFit {
    let model = profile.truth(role, truth).build();
    let pass = |m: &Measurement| {
        let pass = m.shape.pass(profile.reads(role, truth));
        ProfiledPass {
            region: m.shape.region() as usize,
            batched: pass.batched,
            measured_s: m.seconds,
            predicted_s: model.pass(pass).as_s(),
        }
    };
    let passes = profile.of(role).measured.iter().map(pass).collect();
    ProfiledFit { title: format!("{}: {name}", role.name()), passes }
}
