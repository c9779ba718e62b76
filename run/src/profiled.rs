//! `hardware.profile = "FILE.toml"`: the true costs, and the policies' belief about them, from a profile.
//!
//! The profile's values are put into the document before the experiment is read, so that the rest of the program sees
//! ordinary latency models and coefficients. They are taken out again when the experiment is written beside its
//! results.

use foretoken_hardware::LatencySpec;
use foretoken_policies::PolicySpec;
use foretoken_profiler::{Calibrated, Profile, ProfileError, Range, Role, Truth};
use foretoken_sim::{Coefficients, ContextReads, HostLaw, LatencyModel, PassShape, Time};
use foretoken_spec::document::{Document, Path};
use foretoken_spec::problem::{Problem, Result};
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicU64, Ordering};

/// The keys of an experiment that a profile filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filled {
    /// Paths of the values that the profile filled in.
    pub keys: Vec<Path>,
    /// The largest passes that were measured, for (target, draft); `None` without a profile.
    pub ranges: Option<(Range, Range)>,
    /// A warning to users of the profile.
    pub warning: Option<String>,
    /// Why the profile may not be what was measured: it was edited, or it has no seal.
    pub changed: Option<String>,
    /// The only draft lengths that the profile can predict; `None` if it can predict all.
    pub only: Option<Vec<u32>>,
    /// Is the profile calibrated to observed runs? Then the experiment that names it describes a server.
    pub calibrated: bool,
}

const PROFILE: &str = "hardware.profile";

/// The path of the profile as the experiment gives it; `None` without a profile.
pub fn named(document: &Document) -> Option<String> {
    document.text_at(&Path::of(PROFILE))
}

/// Puts the values of the profile in `file`, which the experiment calls `given`, into the document.
///
/// # Errors
/// The file cannot be read or is no profile, `hardware.truth` names no latency model or one that the profile does not
/// have, the experiment gives costs or noise that the profile gives too, or it counts context otherwise than the
/// profile.
pub fn fill(document: &mut Document, given: &str, file: &FilePath) -> Result<Filled> {
    let at = Path::of(PROFILE);
    let text = foretoken_spec::text::read(file).map_err(|e| {
        let problem = document.problem_at(&at, format!("cannot read the profile: {e}"));
        problem.help("a relative path starts at the experiment's folder; `foretoken profile` makes a profile")
    })?;
    let truth = truth(document)?;
    let costs = costs(document, &file.display().to_string(), &text, truth)?;
    for key in ["target", "draft"] {
        let own = Path::of("hardware").key(key);
        if document.get(&own).is_some() {
            let problem =
                document.problem_at(&own, format!("hardware.{key} and hardware.profile both say what a pass costs"));
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
        // A belief that the experiment gives, or that is fitted to another machine, stays.
        if document.get(&belief).is_none() && document.get(&Path::of("belief.fitted_to")).is_none() {
            put(document, belief, &as_toml(belief_is)?)?;
            line_is_ours |= role == Role::Target;
        }
    }
    // The target's linear belief must count context as its fit did, even if the true costs count it otherwise.
    let reads = Path::of("belief.context_reads");
    if line_is_ours && document.get(&reads).is_none() {
        put(document, reads, &as_toml(&costs.belief_reads)?)?;
    }
    let reads = Path::of("hardware.context_reads");
    let own = as_toml(&costs.reads)?;
    match document.text_at(&reads) {
        None => put(document, reads, &own)?,
        Some(given) if Some(given.as_str()) == own.as_str() => {}
        Some(_) => {
            let message = format!("hardware.profile was measured for hardware.context_reads = {own}");
            return Err(document.problem_at(&reads, message).help("leave it out: the profile gives it"));
        }
    }
    // A calibrated profile has the host's time between steps; the experiment may override it.
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
    /// Refuses a policy that the profile cannot predict. A calibration to runs of one draft length has the time of
    /// whole steps of that length. It does not have the separate times of draft passes, which would cost nothing at
    /// another length.
    ///
    /// # Errors
    /// The policy drafts another length, or chooses among several.
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

    /// Refuses a question about several draft lengths if the profile knows one length only.
    ///
    /// # Errors
    /// The profile knows one length only.
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

/// The contents of a profile, measured or calibrated.
pub struct Costs {
    /// For target and draft: the true cost of a pass, and the policies' belief about it.
    pub models: [(LatencySpec, Coefficients); 2],
    /// How the true cost counts the context of a verify pass.
    pub reads: ContextReads,
    /// How the belief counts the context of a verify pass.
    belief_reads: ContextReads,
    ranges: (Range, Range),
    /// Coefficient of variation of the time of a target pass.
    pub noise_cv: f64,
    /// Host time between steps, seconds; `None` if the profile does not know it.
    pub step_overhead_s: Option<f64>,
    /// Host time by requests and tokens.
    pub host: HostLaw,
    /// Why the profile should not be trusted; `None` if it is good.
    pub distrust: Option<String>,
    /// The only draft lengths that can be predicted, if the cost of a draft pass could not be separated from the
    /// target's: the observed ones. `None` if all can.
    only: Option<Vec<u32>>,
    /// Is the profile calibrated to observed runs?
    calibrated: bool,
}

/// The costs in a profile's text; of a measured profile, its table. Errors call the profile `name`.
///
/// # Errors
/// It is no profile.
pub fn costs_of(name: &str, text: &str) -> Result<Costs> {
    costs(&Document::parse(name, text)?, name, text, Truth::Table)
}

/// The costs in a profile's text. `truth` chooses among the latency models of a measured profile.
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

/// A profile of either kind: passes that were timed one by one, or costs fitted to a server's runs.
pub enum Either {
    /// Made by `foretoken profile`, which times passes.
    Measured(Box<Profile>),
    /// Made by `foretoken calibrate` from observed runs.
    Calibrated(Box<Calibrated>),
}

/// Reads a profile's text of either kind. Errors call the profile `name`.
///
/// # Errors
/// The text is a profile of neither kind.
pub fn read_either(name: &str, text: &str) -> Result<Either> {
    let profile = Document::parse(name, text)?;
    match Calibrated::is_one(&profile.read()?) {
        true => calibrated(name, &profile).map(|c| Either::Calibrated(Box::new(c))),
        false => measured(name, &profile).map(|p| Either::Measured(Box::new(p))),
    }
}

/// Reads a calibrated profile's text. Errors call the profile `name`.
///
/// # Errors
/// The text is not TOML, a key is missing or unknown, or a value is out of range.
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

/// Reads a measured profile's text. Errors call the profile `name`.
///
/// # Errors
/// The text is not TOML, its schema version is another, a key is missing or unknown, or a value is out of range.
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

/// Why the text of a profile may not be what was measured; `None` if its seal is whole. The text begins with `name`.
pub fn changed(name: &str, text: &str) -> Option<String> {
    Profile::changed(text).map(|why| format!("{name}: {why}"))
}

/// Reads `hardware.truth`, before the rest of the experiment, because it decides which costs are filled in.
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

/// Reads `hardware.profile_noise`. A value that is no boolean counts as false here and is refused when the experiment
/// is read.
fn wants_noise(document: &Document) -> Result<bool> {
    let node = document.get(&Path::of("hardware.profile_noise"));
    Ok(matches!(node.map(toml::Spanned::get_ref), Some(toml::de::DeValue::Boolean(true))))
}

fn as_toml(value: &impl serde::Serialize) -> Result<toml::Value> {
    toml::Value::try_from(value).map_err(|e| Problem::failed(format!("the profile cannot be written as TOML: {e}")))
}

/// A latency model that remembers its largest pass.
pub struct Watched<'a> {
    model: &'a dyn LatencyModel,
    batched: AtomicU64,
    context: AtomicU64,
}

impl<'a> Watched<'a> {
    /// Wraps a model; no pass is recorded yet.
    pub fn new(model: &'a dyn LatencyModel) -> Watched<'a> {
        Watched { model, batched: AtomicU64::new(0), context: AtomicU64::new(0) }
    }

    /// A warning if passes were larger than the measured `range`; `None` if none was.
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

impl LatencyModel for Watched<'_> {
    fn pass(&self, shape: PassShape) -> Time {
        self.batched.fetch_max(shape.batched, Ordering::Relaxed);
        self.context.fetch_max(shape.context, Ordering::Relaxed);
        self.model.pass(shape)
    }
}
