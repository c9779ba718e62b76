//! What is asked: whose settings, what is to be made best, and of which experiment.

use crate::kept::Known;
use foretoken_run::plan::Plan;
use foretoken_sim::Summary;
use foretoken_spec::problem::{Problem, Result};
use serde::Serialize;
use std::path::PathBuf;

/// Whose settings are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// vLLM: fixed lengths and a table by batch size, both of which it takes.
    #[default]
    Vllm,
    /// SGLang: fixed lengths and its own adaptive policy.
    Sglang,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The experiment: as `calibrate` wrote it, or any other on one setting.
    pub file: PathBuf,
    /// Values that are replaced in it.
    pub sets: Vec<String>,
    /// Whose settings are asked for.
    pub engine: Engine,
    /// What is to be made best.
    pub objective: Objective,
    /// Longest draft that is tried.
    pub longest: u32,
    /// What the server drafts now.
    pub now: u32,
    /// vLLM's method, such as `draft_model`, for the file to start it with.
    pub method: Option<String>,
    /// The draft model, likewise.
    pub model: Option<String>,
    /// What the calibration knows; `None`: there is none, and the experiment is taken at its word.
    pub known: Option<Known>,
}

impl Question {
    /// The experiment with more values replaced.
    pub fn plan(&self, more: &[String]) -> Result<Plan> {
        let longest = format!("engine.max_draft_len={}", self.longest);
        let sets: Vec<String> = self.sets.iter().chain([&longest]).chain(more).cloned().collect();
        let mut plan = Plan::load(&self.file, &sets)?;
        // Steps are for looking at; nobody looks at these.
        plan.variants.iter_mut().for_each(|v| v.experiment.output.steps = false);
        match plan.variants.len() {
            1 => Ok(plan),
            n => Err(Problem::bad_input(format!("{} sweeps {n} settings: advice is for one", self.file.display()))
                .help("choose one with --set")),
        }
    }
}

impl Question {
    /// The experiment with the requests that the objective is about.
    pub fn at_its_load(&self) -> Result<Plan> {
        let plan = self.plan(&[])?;
        match self.objective.of {
            Goal::Throughput => {
                let most = plan.variants[0].experiment.engine.max_num_seqs;
                self.plan(&[format!("workload.arrivals={{ closed-loop = {most} }}")])
            }
            _ => Ok(plan),
        }
    }
}

/// What is to be made best.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Objective {
    /// The number.
    pub of: Goal,
    /// What counts at all: runs whose 99th percentile of TPOT is within this, seconds.
    pub p99_tpot_s: Option<f64>,
}

/// The number that is to be made best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The least mean end-to-end latency.
    MeanE2e,
    /// The most output tokens a second, with as many requests at once as the engine runs.
    Throughput,
    /// The largest share of requests that keep the experiment's bounds.
    Slo,
}

impl Objective {
    /// Cost of a run, the less the better; `None` where it does not count.
    pub fn cost(self, s: &Summary) -> Option<f64> {
        if let Some(limit) = self.p99_tpot_s {
            s.tpot.filter(|q| q.p99 <= limit)?;
        }
        match self.of {
            Goal::MeanE2e => s.e2e.map(|q| q.mean),
            Goal::Throughput => (s.token_goodput_tok_s > 0.0).then(|| 1.0 / s.token_goodput_tok_s),
            // So that a share of one is not a cost of nothing, which no gain could be over.
            Goal::Slo => s.slo_attainment.map(|share| 1.0 - share + 1e-3),
        }
    }

    /// What its cost is, in words.
    pub fn in_words(self) -> String {
        let of = match self.of {
            Goal::MeanE2e => "mean E2E",
            Goal::Throughput => "time a token at full load",
            Goal::Slo => "share of requests beyond their bounds",
        };
        self.p99_tpot_s.map_or(of.to_owned(), |s| format!("{of} with p99 TPOT within {:.1} ms", 1e3 * s))
    }
}
