//! Reads an experiment and checks every value that serde cannot check. Nothing in this file runs an experiment.

use crate::spec::document::{Document, Path};
use crate::spec::experiment::{BeliefSpec, Experiment, Hardware, SloSpec};
use crate::spec::problem::{Problem, Result, nearest};
use crate::spec::schema;
use foretoken_policies::PolicySpec;
use foretoken_profiler::hardware::golden;
use foretoken_profiler::hardware::gpus::gpus;
use foretoken_profiler::hardware::models::catalog;
use foretoken_profiler::hardware::{LatencySpec, RooflineSpec};
use foretoken_sim::Pair;
use foretoken_sim::acceptance::Rates;
use std::collections::BTreeMap;

impl Experiment {
    pub fn read(document: &Document) -> Result<Experiment> {
        check_costs(document)?;
        let mut experiment: Experiment = document.read_knowing(schema::settings_of)?;
        fill_golden(document, &mut experiment.acceptance.source)?;
        experiment.check(document)?;
        Ok(experiment)
    }

    fn check(&self, doc: &Document) -> Result<()> {
        let problem_at = |path: &str, message: String| doc.problem_at(&Path::of(path), message);
        self.check_name(doc)?;
        self.check_seeds(doc)?;
        self.engine.check().map_err(|e| problem_at(&format!("engine.{}", e.key), e.to_string()))?;
        self.check_profile(doc)?;
        check_pair(doc, "hardware", self.hardware.costs())?;
        let memory_of = &self.hardware.target;
        check_memory(doc, "hardware.draft", &self.hardware.draft, memory_of)?;
        if let Some(other) = &self.belief.fitted_to {
            check_memory(doc, "belief.fitted_to.target", &other.target, memory_of)?;
            check_memory(doc, "belief.fitted_to.draft", &other.draft, memory_of)?;
        }
        variation(doc, "hardware.noise_cv", self.hardware.noise_cv)?;
        self.acceptance.check().map_err(|e| problem_at(&format!("acceptance.{}", e.key), e.to_string()))?;
        self.workload.check().map_err(|e| trace_problem(doc, &e))?;
        self.belief.check(doc)?;
        self.slo.check(doc)?;
        self.live.as_ref().map_or(Ok(()), |live| live.check(doc))?;
        self.validate.as_ref().map_or(Ok(()), |validate| validate.check(doc))?;
        self.observe.as_ref().map_or(Ok(()), |observe| observe.check(doc))?;
        self.capacity.as_ref().map_or(Ok(()), |capacity| capacity.check(doc))?;
        self.check_fleet(doc)?;
        self.check_policies(doc)
    }

    /// Refuses `truth` and `profile_noise` if no profile is given.
    fn check_profile(&self, doc: &Document) -> Result<()> {
        let Hardware { profile, truth, profile_noise, .. } = &self.hardware;
        for (key, given) in [("truth", truth.is_some()), ("profile_noise", *profile_noise)] {
            if given && profile.is_none() {
                let message = format!("hardware.{key} needs hardware.profile, which is not set");
                let problem = doc.problem_at(&Path::of(&format!("hardware.{key}")), message);
                return Err(problem.help("write hardware.profile = \"FILE.toml\", or leave it out"));
            }
        }
        Ok(())
    }

    /// Checks the `[fleet]` table. Refuses a fleet in an experiment with `[live]` or `[observe]`, because these
    /// tables are about a single engine.
    fn check_fleet(&self, doc: &Document) -> Result<()> {
        let sharing = self.hardware.target.machine().map_or(1, |machine| machine.data_parallel);
        let ranks = self.fleet.iter().filter(|fleet| fleet.lock_step).map(|fleet| fleet.replicas.number()).sum::<u32>();
        if sharing > 1 && sharing != ranks {
            let path = Path::of("hardware.target").key(self.hardware.target.name()).key("data_parallel");
            let message =
                format!("{sharing} data-parallel ranks share the experts, but {ranks} replicas run in lock step");
            let help = format!("write [fleet] with replicas = {sharing}, lock_step = true and router = \"vllm-dp\"");
            return Err(doc.problem_at(&path, message).help(help));
        }
        let Some(fleet) = &self.fleet else { return Ok(()) };
        fleet.check(doc)?;
        let problem_at = |path: &str, message: &str| doc.problem_at(&Path::of(path), message.to_owned());
        if fleet.lock_step && self.engine.release().sglang {
            let problem = problem_at("fleet.lock_step", "fleet.lock_step: SGLang's ranks have rules of their own");
            return Err(problem.help("they are not simulated: choose another engine.version, or leave lock_step out"));
        }
        if fleet.prompt_balance.is_some() && (!fleet.lock_step || self.engine.release().prefills_apart) {
            let problem = problem_at("fleet.prompt_balance", "fleet.prompt_balance: there are no ranks to balance");
            return Err(problem.help("write lock_step = true, with engine.version = \"vllm-0.32\" or newer"));
        }
        if self.live.is_some() || self.observe.is_some() {
            let problem = problem_at("fleet", "[fleet] has several engines, and [live] and [observe] are about one");
            return Err(problem.help("leave [fleet] out, or simulate without the other"));
        }
        Ok(())
    }

    fn check_name(&self, doc: &Document) -> Result<()> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(fine) {
            let problem = doc.problem_at(&Path::of("name"), format!("\"{}\" cannot name a folder", self.name));
            return Err(problem.help("use letters, digits, `-`, `_` and `.`"));
        }
        Ok(())
    }

    fn check_seeds(&self, doc: &Document) -> Result<()> {
        let problem_at = |message: String| doc.problem_at(&Path::of("seeds"), message);
        let mut sorted = self.seeds.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            _ if sorted.is_empty() => {
                Err(problem_at("no seeds: nothing would run".into()).help("write seeds = [1, 2, 3]"))
            }
            Some(pair) => {
                Err(problem_at(format!("seed {} is given twice", pair[0])).help("each seed is one replication"))
            }
            None => {
                let own = self.workload.seed.map(|seed| ("workload.seed", seed));
                let all = sorted.iter().map(|&seed| ("seeds", seed)).chain(own);
                all.into_iter().try_for_each(|(path, seed)| writable_seed(doc, path, seed))
            }
        }
    }

    fn check_policies(&self, doc: &Document) -> Result<()> {
        if self.policies.is_empty() {
            let problem = doc.problem_at(&Path::of("policies"), "the list of policies is empty");
            return Err(problem.help("write policies = [{ autoregressive = {} }, { fixed = { k = 3 } }]"));
        }
        let mut seen = BTreeMap::new();
        for (i, policy) in self.policies.iter().enumerate() {
            let path = format!("policies[{i}]");
            policy.check().map_err(|e| {
                doc.problem_at(&Path::of(&format!("{path}.{}.{}", policy.name(), e.key)), format!("{path}.{e}"))
            })?;
            self.check_draft_len(doc, policy, &path)?;
            if let Some(first) = seen.insert(policy.label(), i) {
                let message = format!("policies[{first}] and {path} are the same: both are `{}`", policy.label());
                return Err(doc
                    .problem_at(&Path::of(&path), message)
                    .help("remove one, or change one of its settings"));
            }
        }
        Ok(())
    }
}

impl Experiment {
    /// Refuses a policy whose settings ask for more draft tokens than the engine's limit `engine.max_draft_len`. The
    /// number is not lowered to the limit, because the policy would then be another one than the user asked for.
    fn check_draft_len(&self, doc: &Document, policy: &PolicySpec, path: &str) -> Result<()> {
        let Some((key, longest)) = policy.definition().asks_for() else { return Ok(()) };
        let key = format!("{}.{key}", policy.name());
        let most = self.engine.max_draft_len;
        if longest <= most {
            return Ok(());
        }
        let message = format!("{path}.{key}: {longest} draft tokens are more than engine.max_draft_len = {most}");
        let help = format!("raise engine.max_draft_len to {longest}, or lower {path}.{key}");
        Err(doc.problem_at(&Path::of(&format!("{path}.{key}")), message).help(help))
    }
}

/// Fills in the lengths of the published curve that `source` names.
fn fill_golden(doc: &Document, source: &mut Rates) -> Result<()> {
    let mut near = None;
    let filled = source.fill_golden(|name| match golden::curve(name) {
        Some(curve) => Ok(curve.lengths()),
        None => {
            near = nearest(name, golden::curves().iter().map(|c| c.name.as_str()));
            Err(format!("no curve of golden lengths is called \"{name}\""))
        }
    });
    filled.map_err(|e| {
        let problem = doc.problem_at(&Path::of(&format!("acceptance.{}", e.key)), e.to_string());
        let list = "`foretoken acceptance list` prints the curves";
        problem.help(near.map_or_else(|| list.to_owned(), |near| format!("did you mean `{near}`? {list}")))
    })
}

/// Refuses a seed that TOML's signed integers cannot hold, because the results folder has the experiment as TOML.
fn writable_seed(doc: &Document, path: &str, seed: u64) -> Result<()> {
    if i64::try_from(seed).is_ok() {
        return Ok(());
    }
    let problem = doc.problem_at(&Path::of(path), format!("{path}: {seed} is too large a seed"));
    Err(problem.help(format!("expected a whole number from 0 to {}", i64::MAX)))
}

impl BeliefSpec {
    fn check(&self, doc: &Document) -> Result<()> {
        if let Some(other) = &self.fitted_to {
            check_pair(doc, "belief.fitted_to", other.costs())?;
            for (name, given) in [("target", self.target.is_some()), ("draft", self.draft.is_some())] {
                if given {
                    let message =
                        format!("belief.{name} gives coefficients, and belief.fitted_to models to fit them to");
                    let problem = doc.problem_at(&Path::of(&format!("belief.{name}")), message);
                    return Err(problem.help("keep one of them"));
                }
            }
        }
        for (key, value) in [("target", self.scale.target), ("draft", self.scale.draft)] {
            if !(value > 0.0 && value.is_finite()) {
                let message = format!("belief.scale.{key}: {value} is not a factor above 0");
                return Err(doc.problem_at(&Path::of(&format!("belief.scale.{key}")), message).help(ABOVE_0));
            }
        }
        variation(doc, "belief.noise_cv", self.noise_cv)?;
        for (name, given) in [("target", self.target), ("draft", self.draft)] {
            let Some(c) = given else { continue };
            for (key, value) in [("alpha_s", c.alpha_s), ("gamma_s", c.gamma_s), ("delta_s", c.delta_s)] {
                not_negative(doc, &format!("belief.{name}.{key}"), value)?;
            }
        }
        Ok(())
    }
}

impl SloSpec {
    fn check(&self, doc: &Document) -> Result<()> {
        let bounds = [
            ("adaspec-scale", self.adaspec_scale),
            ("ttft_s", self.ttft_s),
            ("tpot_s", self.tpot_s),
            ("e2e_s", self.e2e_s),
        ];
        for (key, value) in bounds {
            if value.is_some_and(|v| !(v > 0.0 && v.is_finite())) {
                let message = format!("slo.{key}: {} is not a number above 0", value.unwrap_or_default());
                return Err(doc.problem_at(&Path::of(&format!("slo.{key}")), message).help(ABOVE_0));
            }
        }
        if self.reference.is_some() && self.adaspec_scale.is_none() {
            let message = "slo.reference is set, but slo.adaspec-scale is not";
            let problem = doc.problem_at(&Path::of("slo.reference"), message);
            return Err(problem.help("write adaspec-scale = 1.0, or leave it out"));
        }
        if self.adaspec_scale.is_some() && self.tpot_s.is_some() {
            let problem = doc.problem_at(&Path::of("slo.tpot_s"), "slo.tpot_s and slo.adaspec-scale both bound TPOT");
            return Err(problem.help("keep one of them"));
        }
        Ok(())
    }
}

/// Checks that `[hardware]` either names a profile or states the cost of both models' passes (`target` and `draft`).
fn check_costs(doc: &Document) -> Result<()> {
    let hardware = Path::of("hardware");
    let is_table = doc.get(&hardware).is_some_and(|node| node.get_ref().is_table());
    if !is_table || doc.get(&hardware.key("profile")).is_some() {
        return Ok(());
    }
    let missing = ["target", "draft"].into_iter().find(|model| doc.get(&hardware.key(model)).is_none());
    missing.map_or(Ok(()), |model| {
        let message = format!("missing field `{model}`: hardware.{model} says what a {model} pass costs");
        Err(doc
            .problem_at(&hardware, message)
            .help(format!("{}; or hardware.profile = \"FILE\" gives both", cost_help(model))))
    })
}

/// The help text on how to write the cost of a model's passes.
fn cost_help(model: &str) -> &'static str {
    match model {
        "draft" => DRAFT_COST,
        _ => {
            "write target = { roofline = { gpu = \"h100\", model = \"llama-3.1-8b\" } }, or a line: target = { linear = { alpha_s = 1e-8, gamma_s = 2e-5, delta_s = 6e-3 } }"
        }
    }
}

/// The help text on how to write the cost of a draft model, or of a draft head, for which there is no preset. The
/// head's numbers are taken from `experiments/papers/eagle3-walkthrough.toml`.
const DRAFT_COST: &str = "write draft = { roofline = { gpu = \"h100\", model = \"llama-3.2-1b\" } } for a draft model; an EAGLE or MTP head is given by a line, \
     such as draft = { linear = { alpha_s = 1.5e-9, gamma_s = 0.0, delta_s = 0.589e-3 } } for EAGLE-3 of Llama-3.1-8B on an H100 (seconds a token of context, \
     a token, a pass)";

const ABOVE_0: &str = "expected a finite number above 0";

/// Checks the latency models of both models, which the tables `path.target` and `path.draft` state.
fn check_pair(doc: &Document, path: &str, costs: Pair<&LatencySpec>) -> Result<()> {
    check_latency(doc, &format!("{path}.target"), costs.target)?;
    check_latency(doc, &format!("{path}.draft"), costs.draft)
}

fn check_latency(doc: &Document, path: &str, spec: &LatencySpec) -> Result<()> {
    let path = format!("{path}.{}", spec.name());
    spec.check().map_err(|e| {
        let problem = doc.problem_at(&Path::of(&format!("{path}.{}", e.key)), format!("{path}.{e}"));
        problem.help(preset_help(&path, spec, &e.key).unwrap_or_else(|| "expected a finite number, 0 or more".into()))
    })
}

/// Refuses settings about KV memory in costs other than the target's, because only the target's settings decide
/// how much memory KV gets. A value is allowed if it equals the default or the target's value.
fn check_memory(doc: &Document, path: &str, spec: &LatencySpec, target: &LatencySpec) -> Result<()> {
    let Some(own) = spec.machine() else { return Ok(()) };
    let default = RooflineSpec { gpu: own.gpu.clone(), model: own.model.clone(), ..RooflineSpec::new("", "") };
    let (of, target) = (target.name(), target.machine());
    let target = target.as_deref().unwrap_or(&default);
    let keys = [
        ("memory_utilization", own.memory_utilization, default.memory_utilization, target.memory_utilization),
        ("activation_bytes", own.activation_bytes, default.activation_bytes, target.activation_bytes),
    ];
    match keys.into_iter().find(|(_, own, default, target)| own != default && own != target) {
        Some((key, value, ..)) => {
            let at = format!("{path}.{}.{key}", spec.name());
            let message = format!(
                "{at}: {value} would do nothing: only the target's settings decide how much memory is left for KV"
            );
            Err(doc
                .problem_at(&Path::of(&at), message)
                .help(format!("leave it out here, and give hardware.target.{of}.{key}")))
        }
        None => Ok(()),
    }
}

/// The help text for an error at `key` of a roofline. For an unknown preset the text names the nearest preset, or says
/// how to give the numbers. For a known preset it says to choose another one, because the error is about a combination
/// of settings. For a number of the GPU (`gpu.…`) it says that the number must be above 0. `None` for other keys, and
/// for costs that name no model.
fn preset_help(path: &str, spec: &LatencySpec, key: &str) -> Option<String> {
    let roofline = spec.machine()?;
    if key == "package" {
        return Some("`foretoken hardware kernels` says where it looks for the package and what this has".into());
    }
    let known = match key {
        "gpu" => roofline.gpu.gpu().is_ok(),
        "model" => roofline.model.shape().is_ok(),
        _ => return key.starts_with("gpu.").then(|| ABOVE_0.to_owned()),
    };
    if known {
        // The preset exists, so the error is not about its name: the GPU, the model and the other settings cannot be
        // combined.
        return Some("choose another GPU or model, or change the settings that the error names".into());
    }
    let near = match key {
        "gpu" => nearest(&roofline.gpu.to_string(), gpus().iter().map(|g| g.name.as_str())),
        "model" => nearest(&roofline.model.to_string(), catalog().iter().map(|e| e.name.as_str())),
        _ => return None,
    };
    Some(match near {
        Some(near) => format!("did you mean `{near}`?"),
        None if key == "gpu" => {
            "`foretoken hardware list` prints the presets; another GPU is given by the numbers of its \
             datasheet: gpu = { memory_bytes = 24e9, bandwidth_bytes_s = 1e12, bf16_flops = 165e12 }"
                .into()
        }
        None if path.contains("draft") => format!(
            "`foretoken models list` prints the presets; another model is given by its config.json: \
             model = {{ config = \"FILE\" }}. Or {DRAFT_COST}"
        ),
        None => "`foretoken models list` prints the presets; another model is given by its config.json: \
             model = { config = \"FILE\" }"
            .into(),
    })
}

fn not_negative(doc: &Document, path: &str, value: f64) -> Result<()> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    let problem = doc.problem_at(&Path::of(path), format!("{path}: {value} is not a number of at least 0"));
    Err(problem.help("expected a finite number, 0 or more"))
}

/// Checks the coefficient of variation of a log-normal factor: it must be from 0 to 1,000. With a larger one nearly all
/// draws are close to 0, so a mean over draws would say nothing.
fn variation(doc: &Document, path: &str, value: f64) -> Result<()> {
    not_negative(doc, path, value)?;
    if value <= 1e3 {
        return Ok(());
    }
    let problem = doc.problem_at(&Path::of(path), format!("{path}: {value:e} is too large a coefficient of variation"));
    Err(problem.help("expected a number from 0 to 1000: 0.05 is a noise of 5 %"))
}

/// Converts an error of a workload or a trace to a [`Problem`]. The problem points at a place in the experiment if a
/// setting of the experiment caused the error.
pub fn trace_problem(doc: &Document, error: &foretoken_traces::TraceError) -> Box<Problem> {
    use foretoken_traces::TraceError;
    let problem = match error {
        TraceError::Spec { key, .. } => doc.problem_at(&Path::of(&format!("workload.{key}")), error.to_string()),
        _ => Problem::bad_input(error.to_string()),
    };
    match (error.hint(), error) {
        ("", TraceError::Spec { .. }) => problem.help(ABOVE_0),
        ("", _) => problem,
        (hint, _) => problem.help(hint),
    }
}

/// The error for a policy name that does not exist. The help text has the nearest existing name, if one is near, and
/// all names.
pub fn unknown_policy(name: &str, known: &[&str]) -> Box<Problem> {
    let problem = Problem::bad_input(format!("no policy is called `{name}`"));
    match nearest(name, known.iter().copied()) {
        Some(near) => problem.help(format!("did you mean `{near}`? All policies: {}", known.join(", "))),
        None => problem.help(format!("all policies: {}", known.join(", "))),
    }
}
