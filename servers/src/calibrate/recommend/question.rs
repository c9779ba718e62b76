//! A question to `recommend`: the engine, the number to optimise, and the experiment.

use super::now::Now;
use crate::calibrate::kept::Known;
use crate::calibrate::loads::{ObservedLoad, SeenRun};
use foretoken_run::plan::{Plan, Variant};
use foretoken_run::spec::document::Path;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::workload::refuse_sessions;
use foretoken_sim::{Summary, Workload};
use foretoken_traces::{ArrivalSpec, LengthSpec, WorkloadSpec};
use serde::Serialize;
use std::path::{Path as FilePath, PathBuf};

/// The serving engine for which settings are recommended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// vLLM: candidates are fixed draft lengths and a table of lengths by batch size.
    #[default]
    Vllm,
    /// SGLang: candidates are fixed draft lengths and its own adaptive policy.
    Sglang,
}

/// A question to `foretoken recommend`: which policy is best for a server, an experiment and a number to optimise.
#[derive(Clone, Debug)]
pub struct Question {
    /// The experiment's file: written by `calibrate`, or any experiment without sweeps.
    pub file: PathBuf,
    /// The text of `file`, in TOML.
    pub text: String,
    /// Replaced values of the experiment, as `key=value` (the option `--set`).
    pub sets: Vec<String>,
    pub engine: Engine,
    /// The number that the recommendation optimises, such as mean E2E, with the limit on TPOT if there is one.
    pub objective: Objective,
    /// The longest draft length that is simulated as a candidate.
    pub longest: u32,
    /// The policy that the server runs now, and how this is known.
    pub now: Now,
    /// The draft method, such as `draft_model`, that the file for vLLM (`speculative_config.json`) names.
    pub method: Option<String>,
    /// The draft model that the file for vLLM (`speculative_config.json`) names.
    pub model: Option<String>,
    /// The calibration that the question is about; `None` if the question is about an experiment without a calibration.
    pub known: Option<Known>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AskedLoad {
    /// The load that the experiment's `[workload]` states.
    Own,
    Observed(Box<ObservedLoad>),
    /// A closed loop whose number of clients is the number of requests that the engine runs at once (`max_num_seqs`).
    Full,
}

impl Question {
    /// The loads for which a recommendation is given. If the goal is throughput: one closed loop with as many clients
    /// as the engine runs requests at once. Otherwise: the observed loads. If there are none, or if `sets` replaces a
    /// key of the workload: the load of the experiment.
    pub fn loads(&self) -> Vec<AskedLoad> {
        let sets_load = self.sets.iter().any(|set| set.trim_start().starts_with("workload"));
        let observed = self.known.as_ref().map_or(&[][..], |known| &known.loads);
        match self.objective.of {
            Goal::Throughput => vec![AskedLoad::Full],
            _ if sets_load || observed.is_empty() => vec![AskedLoad::Own],
            _ => observed.iter().cloned().map(|load| AskedLoad::Observed(Box::new(load))).collect(),
        }
    }

    /// The plan of the question's experiment, with the values that `sets` replaces.
    pub fn experiment(&self) -> Result<Plan> {
        let folder = self.file.parent().unwrap_or(FilePath::new(""));
        Plan::of_text(&self.file.display().to_string(), &self.text, &self.sets, folder)
    }

    /// The plan of the question's experiment at the given load. The policies become plain decoding, and
    /// `engine.max_draft_len` becomes `longest`. An observed load replaces the workload. For [`AskedLoad::Full`], a
    /// closed loop of `max_num_seqs` clients replaces the arrivals. Steps are not recorded.
    pub fn plan(&self, load: &AskedLoad) -> Result<Plan> {
        let plan = self.experiment()?;
        one_setting(&plan, &self.file)?;
        if matches!(load, AskedLoad::Own | AskedLoad::Full) {
            refuse_sessions(&plan.variants[0], "advice is given for requests that do not wait for each other")?;
        }
        let mut plan = plan.altered(0, |document| {
            document.replace(&Path::of("policies"), "what is compared", "[{ autoregressive = {} }]")?;
            let longest = self.longest.to_string();
            document.replace(&Path::of("engine.max_draft_len"), "--longest", &longest)?;
            match load {
                AskedLoad::Observed(seen) => {
                    document.replace(&Path::of("workload"), &seen.name, &inline(&seen.workload)?)
                }
                AskedLoad::Own | AskedLoad::Full => Ok(()),
            }
        })?;
        let variant = &mut plan.variants[0];
        // The steps of the candidate policies' runs are not shown, so they need not be recorded.
        variant.experiment.output.steps = false;
        if *load == AskedLoad::Full {
            let requests = foretoken_run::setting::Setting::new(variant, plan.seeds[0])?.workload;
            fill(variant, &requests);
        }
        Ok(plan)
    }
}

impl AskedLoad {
    pub fn runs(&self) -> &[SeenRun] {
        match self {
            AskedLoad::Observed(load) => &load.runs,
            AskedLoad::Own | AskedLoad::Full => &[],
        }
    }
}

/// A workload as an inline table of TOML.
fn inline(workload: &WorkloadSpec) -> Result<String> {
    let value = toml::Value::try_from(workload);
    value.map(|v| v.to_string()).map_err(|e| Problem::failed(format!("the workload cannot be written: {e}")))
}

/// Fewest requests that each client sends in a closed loop that fills the engine. With fewer requests, the time in
/// which the batch fills and drains would be a large part of the run.
const ROUNDS: usize = 8;

/// Replaces the arrivals of `variant` (the experiment at one combination of swept values) with a closed loop of
/// `max_num_seqs` clients. `requests` are the variant's requests. The closed loop sends at least as many requests as
/// `requests` has, and at least [`ROUNDS`] requests per client.
pub fn fill(variant: &mut Variant, requests: &Workload) {
    let clients = variant.experiment.engine.max_num_seqs;
    without_instants(&mut variant.experiment.workload);
    let workload = &mut variant.experiment.workload;
    workload.arrivals = ArrivalSpec::ClosedLoop(clients);
    workload.requests = Some(requests.len().max(ROUNDS * clients as usize) as u32);
}

/// Removes arrival times, transformations of arrivals and the duration from a workload. If the workload is a trace, its
/// requests keep their lengths.
pub fn without_instants(workload: &mut WorkloadSpec) {
    if let (None, ArrivalSpec::Trace(trace)) = (&workload.lengths, &workload.arrivals) {
        workload.lengths = Some(LengthSpec::Trace(trace.clone()));
    }
    workload.transform.clear();
    workload.duration_s = None;
}

/// Checks that the plan sweeps no value, so that its engine and hardware have one setting.
fn one_setting(plan: &Plan, file: &std::path::Path) -> Result<()> {
    if plan.variants.len() == 1 {
        return Ok(());
    }
    let values = |at: usize| {
        let mut all: Vec<&str> = Vec::new();
        for choice in plan.variants.iter().map(|v| &v.choices[at]) {
            if !all.contains(&choice.value.as_str()) {
                all.push(&choice.value);
            }
        }
        all
    };
    let keys = &plan.variants[0].choices;
    let swept: Vec<String> =
        keys.iter().enumerate().map(|(at, key)| format!("{} ({})", key.path, values(at).join(", "))).collect();
    let sets: Vec<String> = keys.iter().map(|key| format!("--set '{}={}'", key.path, key.value)).collect();
    let what = format!("{} sweeps {}: advice is for one setting", file.display(), swept.join(" and "));
    Err(Problem::bad_input(what).help(format!("choose a value of each, for example {}", sets.join(" "))))
}

/// The number that a recommendation optimises, such as mean E2E, with the limit on TPOT if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Objective {
    /// Which number of a run is optimised.
    pub of: Goal,
    /// The largest allowed 99th percentile of TPOT, seconds; `None` without a limit.
    pub p99_tpot_s: Option<f64>,
}

/// A number of a run that a recommendation can optimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Optimise for the least mean end-to-end latency.
    MeanE2e,
    /// Optimise for the most output tokens per second, with a full engine.
    Throughput,
    /// Optimise for the largest share of requests that keep the experiment's latency bounds.
    Slo,
}

impl Objective {
    /// The cost of a run by this objective, such as its mean E2E; the best candidate policy has the least cost. `None`
    /// if the run breaks the limit on TPOT, or if it has no such number, for example because no request finished.
    pub fn cost(self, s: &Summary) -> Option<f64> {
        if let Some(limit) = self.p99_tpot_s {
            s.tpot.filter(|q| q.p99 <= limit)?;
        }
        match self.of {
            Goal::MeanE2e => s.e2e.map(|q| q.mean),
            Goal::Throughput => (s.token_goodput_tok_s > 0.0).then(|| 1.0 / s.token_goodput_tok_s),
            // A small number is added, so that the cost stays above 0, because gains are relative to costs.
            Goal::Slo => s.slo_attainment.map(|share| 1.0 - share + 1e-3),
        }
    }

    /// What a candidate with a lower cost is, for texts such as `1.97× as fast`.
    pub fn as_fast(self) -> &'static str {
        match self.of {
            Goal::MeanE2e | Goal::Throughput => "as fast",
            Goal::Slo => "as good",
        }
    }

    /// The name of the number that the objective minimises, such as `mean E2E`, with the limit on TPOT if there is
    /// one.
    pub fn in_words(self) -> String {
        let of = match self.of {
            Goal::MeanE2e => "mean E2E",
            Goal::Throughput => "time a token at full load",
            Goal::Slo => "share of requests beyond their bounds",
        };
        self.p99_tpot_s.map_or(of.to_owned(), |s| format!("{of} with p99 TPOT within {:.1} ms", 1e3 * s))
    }
}
