//! Makes a [`Plan`] from an experiment file and `--set` arguments.

use crate::kernel_times;
use crate::locate::locate;
use crate::model_config::read_configs;
use crate::plan::{Derived, Entrant, Plan, Variant, path_from, put_order};
use crate::profiled::{self, Filled};
use crate::spec::document::{Choice, Document, Path, Picked};
use crate::spec::experiment::{Experiment, UNSWEPT};
use crate::spec::problem::{Problem, Result};
use crate::spec::read::trace_problem;
use crate::spec::text;
use crate::{arena, bound, golden, papers, questions};
use foretoken_policies::{PolicySpec, from_sglang_json};
use foretoken_traces::{TraceError, TraceSpec};
use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};

impl Plan {
    /// Reads an experiment file and applies the overrides `sets`, each `path=value`.
    pub fn load(file: &FilePath, sets: &[String]) -> Result<Plan> {
        Plan::of(read_document(file, sets)?, file.parent().unwrap_or(FilePath::new("")))
    }

    /// Reads an experiment from a text and applies the overrides `sets`. Error messages call the text `name`. Relative
    /// paths in the text start at `folder`.
    pub fn of_text(name: &str, text: &str, sets: &[String], folder: &FilePath) -> Result<Plan> {
        Plan::of(parse_document(name, text, sets)?, folder)
    }

    /// The plan of an experiment, given as TOML (`document`), for `foretoken observe`. Relative paths in the TOML start
    /// at `folder`. If `[hardware]` or `[acceptance]` is missing, fills in costs of zero or acceptance 0, because a
    /// server's costs and acceptance are not known.
    pub fn to_observe(mut document: Document, folder: &FilePath) -> Result<Plan> {
        let nothing = "{ linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.0 } }";
        let unknown = [
            ("hardware", format!("{{ target = {nothing}, draft = {nothing} }}")),
            ("acceptance", "{ source = { constant = { rate = 0.0 } } }".to_owned()),
        ];
        for (key, value) in unknown {
            if document.get(&Path::of(key)).is_none() {
                document.replace(&Path::of(key), "what is not known of a server", &value)?;
            }
        }
        let mut plan = Plan::of(document, folder)?;
        plan.observed()?;
        Ok(plan)
    }

    /// The plan with the oracle `oracle-goodput`, which knows which draft tokens are right. The regret of a policy is
    /// computed with this oracle's mean E2E. Adds this oracle if the plan does not have it.
    pub fn with_regret(self) -> Result<Plan> {
        if self.policies.iter().any(|e| matches!(e.spec, PolicySpec::OracleGoodput(_))) {
            return Ok(self);
        }
        let mut document = self.document;
        document.append(&Path::of("policies"), "--regret", "{ oracle-goodput = {} }")?;
        Plan::of(document, &self.folder)
    }

    /// The plan of the same experiment with the pass costs of the file `profile`. The experiment's own pass costs are
    /// removed.
    pub fn with_profile(self, profile: &FilePath) -> Result<Plan> {
        let mut document = self.document;
        let folder = if self.folder.as_os_str().is_empty() { FilePath::new(".") } else { self.folder.as_path() };
        for key in ["target", "draft", "context_reads"] {
            document.remove(&Path::of("hardware").key(key));
        }
        let given = toml::Value::String(path_from(folder, profile)).to_string();
        document.replace(&Path::of("hardware.profile"), "the profile", &given)?;
        Plan::of(document, folder)
    }

    /// Makes the plan of an experiment, given as TOML (`document`). Relative paths in the TOML start at `folder`.
    pub fn of(document: Document, folder: &FilePath) -> Result<Plan> {
        Plan::build(document, folder, true, BTreeMap::new())
    }

    /// Makes the plan of a results folder from the folder's `experiment.toml`. Does not read traces, truth tables and
    /// text files, so they may be missing. The hardware profile is read. Pass times of measured kernels are taken from
    /// the folder, so their package may be missing.
    pub fn of_results(folder: &FilePath) -> Result<Plan> {
        let file = folder.join("experiment.toml");
        let text = fs_err::read_to_string(&file).map_err(|e| {
            Problem::bad_input(format!("cannot read what was run: {e}")).help("the folder is not whole: run it again")
        })?;
        kernel_times::restore(folder)?;
        Plan::build(Document::parse(&file.display().to_string(), &text)?, folder, false, BTreeMap::new())
    }

    /// The plan of only variant number `variant` of this plan, after `change` has changed the variant's TOML. Leaves
    /// out the tables `paper`, `question` and `arena`, because they are about all variants.
    pub fn altered(&self, variant: usize, change: impl FnOnce(&mut Document) -> Result<()>) -> Result<Plan> {
        let mut document = self.variants[variant].document();
        let filled = &self.variants[variant].filled;
        filled
            .keys
            .iter()
            .chain(&["paper", "question", "arena", "sweep_order"].map(Path::of))
            .for_each(|path| document.remove(path));
        change(&mut document)?;
        Plan::build(document, &self.folder, true, self.inputs.clone())
    }

    /// Makes the plan of an experiment, given as TOML (`document`). `with_files`: resolve paths and compute the digests
    /// of input files? `inputs` maps the paths of input files to the digests that are known already.
    fn build(
        mut document: Document,
        folder: &FilePath,
        with_files: bool,
        mut inputs: BTreeMap<String, String>,
    ) -> Result<Plan> {
        arena::fill(&mut document)?;
        read_policy_files(&mut document, folder)?;
        let mut config_warnings = read_configs(&mut document, folder)?;
        golden::fill(&mut document)?;
        let whole = document.clone();
        let sweeps = document.sweeps(&["policies"])?;
        let mut variants = Vec::new();
        let mut resolved = None;
        let mut relative = BTreeMap::new();
        for variant in document.variants("policies", &UNSWEPT)? {
            let notes = &mut config_warnings;
            let mut files = Files { folder, with_files, inputs: &mut inputs, relative: &mut relative, notes };
            let (variant, experiment) = files.variant(variant.picked, variant.choices)?;
            if resolved.is_none() {
                resolved = Some(resolve(&experiment, variant.derived, &variant.filled, &sweeps)?);
            }
            config_warnings.extend(kernel_times::notes(&experiment, variant.derived));
            variants.push(variant);
        }
        let first = &variants.first().expect("a document has at least one variant").experiment;
        let (mut policies, mut baseline) = entrants(&first.policies);
        for variant in &variants {
            for (i, policy) in first.policies.iter().enumerate() {
                variant.filled.check_policy(&whole, i, policy)?;
            }
            if variant.filled.only.as_ref().is_some_and(|only| !only.contains(&0)) {
                // The profile, a file of pass costs, cannot predict the step times of autoregressive decoding. So no
                // autoregressive baseline is added.
                policies.retain(|p| !p.implied);
                baseline = 0;
                if variant.experiment.slo.adaspec_scale.is_some() {
                    let at = whole.problem_at(
                        &Path::of("slo"),
                        "slo.adaspec-scale is scaled from an autoregressive run, and the profile cannot predict one",
                    );
                    return Err(at.help("give the bound itself: slo.tpot_s"));
                }
            }
        }
        let plan = Plan {
            name: first.name.clone(),
            seeds: first.seeds.clone(),
            policies,
            baseline,
            measured: None,
            folder: folder.to_path_buf(),
            document: whole,
            resolved: resolved.expect("the first variant was resolved"),
            relative,
            inputs,
            config_warnings,
            variants,
        };
        papers::check(&plan)?;
        questions::check(&plan)?;
        bound::check(&plan)?;
        arena::check(&plan)?;
        Ok(plan)
    }
}

/// Reads the variants of an experiment's document, and collects the files to which they refer.
struct Files<'a> {
    /// The folder at which relative paths in the experiment start.
    folder: &'a FilePath,
    /// Are relative paths resolved, and digests of the experiment's input files computed?
    with_files: bool,
    inputs: &'a mut BTreeMap<String, String>,
    relative: &'a mut BTreeMap<String, PathBuf>,
    notes: &'a mut Vec<String>,
}

impl Files<'_> {
    /// Makes the variant of an experiment's TOML in which no sweeps are left. Also returns the experiment with the
    /// paths as they are in the file.
    fn variant(&mut self, mut picked: Picked, choices: Vec<Choice>) -> Result<(Variant, Experiment)> {
        let mut filled = Filled::default();
        let asked = picked.document();
        let mut document = asked.clone();
        if let Some(given) = profiled::named(&document) {
            let full = locate(&document, &given)?;
            let path = self.folder.join(&full);
            filled = profiled::fill(&mut document, &given, &path)?;
            picked = document.clone().into();
            self.inputs.insert(given.clone(), digest_file(&document, &given, &path)?);
            if full.is_relative() {
                self.relative.insert(given, path);
            }
        }
        let mut experiment = Experiment::read(&document)?;
        sglang_defaults(&document, &mut experiment);
        let as_given = experiment.clone();
        let derived = Derived::of(&document, &experiment);
        for model in experiment.live.iter_mut().flat_map(|live| live.folders_mut()).filter(|_| self.with_files) {
            let given = std::mem::take(model);
            let full = locate(&document, &given)?;
            let path = self.folder.join(&full);
            *model = path.display().to_string();
            if full.is_relative() {
                self.relative.insert(given, path);
            }
        }
        for path in paths(&mut experiment).filter(|_| self.with_files) {
            let given = path.display().to_string();
            let full = locate(&document, &given)?;
            *path = self.folder.join(&full);
            if full.is_relative() {
                self.relative.insert(given.clone(), path.clone());
            }
            if !self.inputs.contains_key(&given) {
                self.inputs.insert(given.clone(), digest_file(&document, &given, path)?);
            }
        }
        if self.with_files {
            self.notes.extend(golden::read_profile(&document, &mut experiment)?);
        }
        let kinds = self.kinds(&asked, &experiment)?;
        Ok((Variant { choices, experiment, picked, derived, filled, kinds }, as_given))
    }

    /// For each kind of replica with an engine or hardware of its own: the experiment with this engine and hardware.
    /// The key is the kind's index in the experiment's `fleet.replicas`.
    fn kinds(&mut self, asked: &Document, experiment: &Experiment) -> Result<BTreeMap<usize, Variant>> {
        let kinds = experiment.fleet.iter().flat_map(|fleet| fleet.replicas.kinds()).enumerate();
        let mut variants = BTreeMap::new();
        for (i, kind) in kinds.filter(|(_, kind)| kind.differs()) {
            let mut document = asked.clone();
            for key in ["fleet", "paper", "question", "capacity"] {
                document.remove(&Path::of(key));
            }
            for (table, settings) in [("engine", kind.engine), ("hardware", kind.hardware)] {
                document.overlay(&Path::of(table), &format!("fleet.replicas[{i}].{table}"), &settings)?;
            }
            variants.insert(i, self.variant(document.into(), Vec::new())?.0);
        }
        Ok(variants)
    }
}

/// Reads an experiment file and applies the overrides `sets`. Does not check the settings.
pub fn read_document(file: &FilePath, sets: &[String]) -> Result<Document> {
    let text = text::read(file).map_err(|e| Problem::bad_input(format!("cannot read the experiment: {e}")))?;
    parse_document(&file.display().to_string(), &text, sets)
}

/// Reads an experiment from a text and applies the overrides `sets`. Does not check the settings. Error messages call
/// the text `name`.
pub fn parse_document(name: &str, text: &str, sets: &[String]) -> Result<Document> {
    let mut document = Document::parse(name, text)?;
    sets.iter().try_for_each(|argument| document.set(argument))?;
    Ok(document)
}

/// The paths of the files that an experiment names: traces, prompts, tables. Leaves out the files of models and the
/// profile.
fn paths(experiment: &mut Experiment) -> impl Iterator<Item = &mut PathBuf> {
    let Experiment { workload, acceptance, live, observe, .. } = experiment;
    let texts = [
        live.as_mut().and_then(|live| live.prompts.path_mut()),
        observe.as_mut().and_then(|observe| observe.prompts.path_mut()),
    ];
    workload.paths_mut().into_iter().chain(texts.into_iter().flatten()).chain(acceptance.source.path_mut())
}

/// Replaces each policy `{ sglang-json = "FILE" }` by the policy that FILE, a settings file of SGLang, describes.
fn read_policy_files(document: &mut Document, folder: &FilePath) -> Result<()> {
    for i in 0.. {
        let at = Path::of(&format!("policies[{i}]"));
        if document.get(&at).is_none() {
            return Ok(());
        }
        let Some(given) = document.text_at(&at.key(SGLANG_JSON)) else { continue };
        let path = folder.join(locate(document, &given)?);
        let wrong = |message: String| document.problem_at(&at, message);
        let text = text::read(&path).map_err(|e| wrong(format!("cannot read SGLang's settings: {e}")))?;
        let spec = from_sglang_json(&text).map_err(|e| wrong(format!("{}: {e}", path.display())))?;
        let toml = toml::Value::try_from(&spec).map_err(|e| wrong(format!("{}: {e}", path.display())))?.to_string();
        document.replace(&at, &given, &toml)?;
    }
    Ok(())
}

/// The key of a policy that is read from an `adaptive_spec.json` of SGLang.
const SGLANG_JSON: &str = "sglang-json";

/// Fills in what SGLang takes where vLLM has another default: pages of one token, and 48 running requests with a
/// drafter.
fn sglang_defaults(document: &Document, experiment: &mut Experiment) {
    let absent = |key: &str| document.get(&Path::of("engine").key(key)).is_none();
    let engine = &mut experiment.engine;
    if !engine.release().sglang {
        return;
    }
    if absent("block_size") {
        engine.block_size = 1;
    }
    if absent("max_num_seqs") {
        engine.max_num_seqs = 2048;
        engine.sglang.speculative_max_running_requests.get_or_insert(48);
    }
}

impl Derived {
    fn of(document: &Document, experiment: &Experiment) -> Derived {
        let absent = |key: &str| document.get(&Path::of("engine").key(key)).is_none();
        let target_known = experiment.hardware.target.memory().is_some();
        let both_known = target_known && experiment.hardware.draft.memory().is_some();
        Derived {
            num_gpu_blocks: target_known && absent("num_gpu_blocks"),
            state_blocks: target_known && absent("state_blocks"),
            request_blocks: target_known && absent("request_blocks"),
            windows: target_known
                && !experiment.engine.release().prefills_apart
                && !experiment.engine.release().sglang
                && absent("sliding_window")
                && absent("window_groups"),
            draft_kv: both_known && absent("draft_kv"),
            frontend_s: experiment.hardware.target.frontend_s().is_some() && absent("frontend_s"),
        }
    }
}

/// The policies to compare, and the index of the autoregressive baseline in them. If the experiment's policies `asked`
/// do not include the baseline, adds it in front.
fn entrants(asked: &[PolicySpec]) -> (Vec<Entrant>, usize) {
    let mut entrants: Vec<Entrant> = asked.iter().map(|spec| Entrant { spec: spec.clone(), implied: false }).collect();
    match asked.iter().position(is_autoregressive) {
        Some(at) => (entrants, at),
        None => {
            entrants.insert(0, Entrant { spec: baseline(), implied: true });
            (entrants, 0)
        }
    }
}

/// The experiment as TOML, with every default written out and the sweeps as in the file. Leaves out settings that were
/// derived from the hardware or filled in from a profile.
fn resolve(
    experiment: &Experiment,
    derived: Derived,
    filled: &Filled,
    sweeps: &[(Path, toml::Value)],
) -> Result<toml::Value> {
    let mut value = toml::Value::try_from(experiment)
        .map_err(|e| Problem::failed(format!("the experiment cannot be written as TOML: {e}")))?;
    if let Some(engine) = value.get_mut("engine").and_then(toml::Value::as_table_mut) {
        if derived.num_gpu_blocks {
            engine.remove("num_gpu_blocks");
        }
        let keys = [
            ("draft_kv", derived.draft_kv),
            ("state_blocks", derived.state_blocks),
            ("request_blocks", derived.request_blocks),
            ("sliding_window", derived.windows),
            ("window_groups", derived.windows),
            ("frontend_s", derived.frontend_s),
        ];
        keys.into_iter().filter(|(_, derived)| *derived).for_each(|(key, _)| _ = engine.remove(key));
    }
    filled.keys.iter().for_each(|path| path.remove(&mut value));
    for (path, sweep) in sweeps {
        path.put(&mut value, sweep.clone());
    }
    put_order(&mut value, sweeps);
    Ok(value)
}

fn digest_file(document: &Document, given: &str, path: &FilePath) -> Result<String> {
    // If the file cannot be opened, the error of the trace reader is returned, because its message says what to do.
    let unreadable = || match foretoken_traces::read(&TraceSpec::new(path), None) {
        Err(e @ TraceError::File { .. }) => {
            let problem = trace_problem(document, &e);
            document.point(problem, document.span_of_string(given))
        }
        _ => Problem::bad_input(format!("{}: cannot be read", path.display())),
    };
    let mut hasher = blake3::Hasher::new();
    let file = foretoken_traces::raw(path).map_err(|_| match path.exists() {
        true => unreadable(),
        false => unreadable().for_a_missing_file(),
    })?;
    hasher.update_reader(file).map_err(|_| unreadable())?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Is the policy plain (autoregressive) decoding, which has no drafter?
pub(crate) fn is_autoregressive(policy: &PolicySpec) -> bool {
    policy.name() == "autoregressive"
}

fn baseline() -> PolicySpec {
    with_defaults("autoregressive").expect("the registry has the baseline")
}

/// The policy called `name` with its default settings; `None` if there is no such policy.
pub fn with_defaults(name: &str) -> Option<PolicySpec> {
    PolicySpec::all().into_iter().find(|policy| policy.name() == name)
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
