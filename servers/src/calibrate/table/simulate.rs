//! Simulates the rows of a table of benchmark results, on a server that an experiment and fitted costs describe.

use super::cell::{Cell, CellLoad};
use super::law::{Law, inline};
use foretoken_policies::{Fixed, PolicySpec};
use foretoken_run::cells::play;
use foretoken_run::load::with_defaults;
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::Summary;
use foretoken_traces::generate::{FixedLengths, Poisson};
use foretoken_traces::{ArrivalSpec, LengthSpec, WorkloadSpec};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The experiment that describes the server on which a table of benchmark results was measured.
#[derive(Clone, Debug)]
pub struct Base {
    /// The name of the server's experiment in messages.
    pub name: String,
    /// The text of the server's experiment, in TOML.
    pub text: String,
    /// The folder to which the paths in the server's experiment are relative.
    pub folder: PathBuf,
    /// True if the user gave the experiment; false if it is the default experiment.
    pub given: bool,
}

/// The experiment that describes the server if the user gives none. The fitted costs and the table's rows replace most
/// of its values.
const UNDESCRIBED: &str = "\
name = \"table\"
seeds = [1, 2]
policies = [{ autoregressive = {} }]
[hardware]
target = { linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 1e-3 } }
draft = { linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.0 } }
[engine]
max_num_seqs = 1024
[workload]
arrivals = { closed-loop = 1 }
lengths = { fixed = { prompt = 1, output = 1 } }
requests = 1
[acceptance.source]
constant = { rate = 0.0 }
";

/// Number of simulated requests per client of a closed loop, if the table of benchmark results does not state a
/// number of requests.
const EACH: u32 = 12;
/// Least number of simulated requests of a closed loop, if the table of benchmark results does not state a number of
/// requests.
const AT_LEAST: u32 = 64;
/// Number of simulated requests of an open load, if the table of benchmark results does not state a number of
/// requests.
const OPEN: u32 = 500;
/// The acceptance rate of the last draft position is used for this number of further positions, so that larger draft
/// lengths than the table's can be simulated.
const DEEPER: u32 = 8;

impl Base {
    /// The default experiment, for a server that the user does not describe by an experiment.
    pub fn unknown() -> Base {
        Base { name: "a table".into(), text: UNDESCRIBED.into(), folder: PathBuf::new(), given: false }
    }

    pub fn plan(&self) -> Result<Plan> {
        let plan = Plan::of_text(&self.name, &self.text, &[], &self.folder)?;
        match plan.variants.len() {
            1 => Ok(plan),
            n => Err(Problem::bad_input(format!("{} has {n} variants, and a table is of one server", self.name))
                .help("give an experiment without sweeps")),
        }
    }
}

/// The results that a simulation predicts for a row of the table of benchmark results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Predicted output tokens per second of the whole server.
    pub tok_s: f64,
    /// Predicted mean time to the first token, seconds.
    pub ttft_s: f64,
    /// Predicted mean time per output token after the first, seconds.
    pub tpot_s: f64,
}

/// Simulates the rows of a table of benchmark results for one server.
#[derive(Debug)]
pub struct Server<'a> {
    pub base: &'a Base,
    /// Acceptance rates by draft position in a step: P(accepted | all earlier draft tokens of the step accepted).
    pub rates: &'a [f64],
    /// Number of KV blocks of the server. This field is needed because the experiment may derive the number from a
    /// GPU, and the fitted costs replace the experiment's hardware.
    pub num_gpu_blocks: u32,
    /// The distribution of prompt and output lengths that the experiment states.
    pub lengths: Option<LengthSpec>,
    /// Set by an interrupt (Ctrl-C): the simulation then ends with an error.
    pub interrupt: &'a AtomicBool,
}

impl Server<'_> {
    pub fn workload(&self, cell: &Cell) -> WorkloadSpec {
        workload(self.lengths.as_ref(), cell)
    }

    /// Simulates a row of the table with draft length `k` and the costs of `law`. The results are means over the seeds
    /// of the experiment; for throughput, the harmonic mean.
    pub fn predict(&self, cell: &Cell, k: u32, law: &Law) -> Result<Predicted> {
        let mut sets = law.sets()?;
        let policy = fixed(k);
        sets.push(format!("policies=[{}]", inline(&policy)?));
        sets.push(format!("workload={}", inline(&self.workload(cell))?));
        sets.push(format!("acceptance={{ source = {{ by-depth = {{ rates = {:?} }} }} }}", self.rates));
        sets.push(format!("engine.num_gpu_blocks={}", self.num_gpu_blocks));
        sets.push(format!("engine.max_draft_len={}", self.rates.len()));
        sets.extend(cell.max_num_seqs.map(|most| format!("engine.max_num_seqs={most}")));
        sets.push("output={ steps = false }".to_owned());
        let plan = Plan::of_text(&self.base.name, &self.base.text, &sets, &self.base.folder)?;
        let mut all: Vec<Summary> = Vec::new();
        for &seed in &plan.seeds {
            let setting = Setting::new(&plan.variants[0], seed)?;
            all.push(play(&setting, &policy, Some(setting.slo(None)), self.interrupt)?.stored.summary);
        }
        let mean = |value: &dyn Fn(&Summary) -> f64| all.iter().map(value).sum::<f64>() / all.len() as f64;
        Ok(Predicted {
            tok_s: 1.0 / mean(&|s| 1.0 / s.token_goodput_tok_s),
            ttft_s: mean(&|s| s.ttft.map_or(0.0, |q| q.mean)),
            tpot_s: mean(&|s| s.tpot.map_or(0.0, |q| q.mean)),
        })
    }
}

/// The policy with the fixed draft length `k`; plain decoding for 0.
pub fn fixed(k: u32) -> PolicySpec {
    match k {
        0 => with_defaults("autoregressive").expect("the registry has the baseline"),
        k => PolicySpec::Fixed(Fixed { k }),
    }
}

/// The workload for a row of the table, with the row's mean lengths. If the experiment's lengths `stated` are
/// log-normal, lengths vary. Otherwise all requests are equally long.
pub fn workload(stated: Option<&LengthSpec>, cell: &Cell) -> WorkloadSpec {
    let (arrivals, requests) = match cell.load {
        CellLoad::Clients(n) => (ArrivalSpec::ClosedLoop(n), (EACH * n).max(AT_LEAST)),
        CellLoad::Rate(rate) => (ArrivalSpec::Poisson(Poisson { rate }), OPEN),
    };
    let lengths = match stated {
        Some(LengthSpec::LogNormal(law)) => {
            let mut law = *law;
            (law.prompt.mean, law.output.mean) = (cell.input, cell.output);
            law.prompt.max = law.prompt.max.max(cell.input.ceil() as u32);
            law.output.max = law.output.max.max(cell.output.ceil() as u32);
            LengthSpec::LogNormal(law)
        }
        _ => LengthSpec::Fixed(FixedLengths {
            prompt: cell.input.round().max(1.0) as u32,
            output: cell.output.round().max(1.0) as u32,
        }),
    };
    WorkloadSpec {
        arrivals,
        lengths: Some(lengths),
        transform: vec![],
        duration_s: None,
        requests: Some(cell.requests.unwrap_or(requests)),
        seed: None,
        priorities: std::collections::BTreeMap::new(),
        sessions: None,
    }
}

/// The acceptance rates by draft position, continued with the last rate for [`DEEPER`] more positions. The result has
/// at most as many positions as the largest draft length that Foretoken simulates.
pub fn deep(rates: &[f64]) -> Vec<f64> {
    let last = rates.last().copied().unwrap_or(0.0);
    let most = (rates.len() as u32 + DEEPER).min(foretoken_sim::MAX_SPEC_LEN) as usize;
    rates.iter().copied().chain(std::iter::repeat(last)).take(most.max(1)).collect()
}
