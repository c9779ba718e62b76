//! What an experiment file says, typed: the tables and their keys. [`crate::read`] reads and checks them.

use crate::capacity::CapacitySpec;
use crate::live::LiveSpec;
use crate::observe::ObserveSpec;
use crate::paper::{At, Paper};
use crate::validate::ValidateSpec;
use foretoken_policies::PolicySpec;
use foretoken_profiler::Truth;
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::latency::LatencySpec;
use foretoken_sim::{Coefficients, ContextReads, Drafting, EngineConfig};
use foretoken_traces::WorkloadSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Top-level keys that are the same for every cell.
pub const UNSWEPT: [&str; 7] = ["name", "seeds", "sweep_order", "policies", "capacity", "output", "paper"];

/// One experiment without sweeps.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Names the results folder.
    pub name: String,
    /// One replication each.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// Paths of swept values, the one that varies slowest first; absent, and behind those that are named, as they stand in the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep_order: Vec<String>,
    /// The policies to compare, in the order of the table.
    pub policies: Vec<PolicySpec>,
    /// The true cost of forward passes.
    pub hardware: Hardware,
    /// The engine's settings.
    #[serde(default)]
    pub engine: EngineConfig,
    /// What arrives.
    pub workload: WorkloadSpec,
    /// What the draft gets right.
    pub acceptance: AcceptanceSpec,
    /// What the policies believe the passes cost.
    #[serde(default)]
    pub belief: BeliefSpec,
    /// What requests are promised.
    #[serde(default)]
    pub slo: SloSpec,
    /// What runs it, when it is run on a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveSpec>,
    /// How it is validated, and what counts as good enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate: Option<ValidateSpec>,
    /// What is asked of a real server, when one is observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<ObserveSpec>,
    /// How much load is to be carried within `slo`, when that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacitySpec>,
    /// What is written.
    #[serde(default)]
    pub output: Output,
    /// What a paper says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
}

/// The true cost of forward passes.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// A measured profile that gives `target`, `draft`, `context_reads` and the belief, its `context_reads` too (`profiled.rs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<PathBuf>,
    /// Which of the profile's descriptions of a pass is the truth; absent: its table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<Truth>,
    /// Is `noise_cv` the profile's?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profile_noise: bool,
    /// Time of a target pass.
    pub target: LatencySpec,
    /// Time of a draft pass.
    pub draft: LatencySpec,
    /// Does a verify pass read a request's context once, or once a position?
    #[serde(default)]
    pub context_reads: ContextReads,
    /// Does the draft run one pass a token, or one for all (prompt lookup, Medusa heads)?
    #[serde(default)]
    pub drafting: Drafting,
    /// Coefficient of variation of the log-normal noise of a pass; 0 is none.
    #[serde(default)]
    pub noise_cv: f64,
}

/// What the policies believe the passes cost, and how it is wrong. What is absent is the least-squares fit to the truth.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BeliefSpec {
    /// α, γ, δ of a target pass.
    pub target: Option<Coefficients>,
    /// α, γ, δ of a draft pass.
    pub draft: Option<Coefficients>,
    /// The models they were fitted to, when that was another machine or an earlier state of this one: a stale belief.
    pub fitted_to: Option<FittedTo>,
    /// How they think a verify pass reads context; absent: as a profile's line was fitted, or as it does.
    pub context_reads: Option<ContextReads>,
    /// Factors on the believed times.
    pub scale: Scale,
    /// Coefficient of variation of the log-normal error of each believed coefficient and table entry, drawn once a seed.
    pub noise_cv: f64,
    /// What policies with a cost table fill it from.
    pub tables: Tables,
    /// Steps after which a policy learns what a step brought; 0 is at its end.
    pub staleness_steps: u32,
}

impl Default for BeliefSpec {
    fn default() -> Self {
        BeliefSpec {
            target: None,
            draft: None,
            fitted_to: None,
            context_reads: None,
            scale: Scale::default(),
            noise_cv: 0.0,
            tables: Tables::default(),
            staleness_steps: 0,
        }
    }
}

/// The true models of another machine.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedTo {
    /// Time of a target pass.
    pub target: LatencySpec,
    /// Time of a draft pass.
    pub draft: LatencySpec,
}

/// Factors on the believed times; 1 is none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Scale {
    /// On the target's.
    pub target: f64,
    /// On the draft's.
    pub draft: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Scale { target: 1.0, draft: 1.0 }
    }
}

/// What policies with a cost table fill it from, once, before serving starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tables {
    /// Passes timed on the machine, as engines do when they start.
    #[default]
    Profiled,
    /// The linear belief.
    Linear,
}

/// What requests are promised. Absent bounds are no bounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SloSpec {
    /// TPOT bound = this × P90 TPOT of the autoregressive run on the same draws (AdaSpec, section 6.1), at the load that
    /// `reference` names.
    #[serde(rename = "adaspec-scale")]
    pub adaspec_scale: Option<f64>,
    /// Whose P90 TPOT that is where loads are swept; absent: `"lowest-load"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// Time to first token, seconds.
    pub ttft_s: Option<f64>,
    /// Time per output token, seconds.
    pub tpot_s: Option<f64>,
    /// End-to-end latency, seconds.
    pub e2e_s: Option<f64>,
}

/// The autoregressive run that a bound is scaled from. A load is a swept number below `workload.arrivals`, a `rate-scale`, or what a
/// `thin` keeps; of other swept settings each has a bound of its own, unless `at` says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// The one at the lowest swept load: one bound, which all loads are held to.
    LowestLoad,
    /// Each load's own, as the paper has it: the bound moves with the load, and at scale 1 autoregressive attains 90 % at every load
    /// by definition.
    EachLoad,
    /// The one at these values of swept settings, by path; a table is picked by its place in the sweep, from 0.
    At(#[schemars(with = "BTreeMap<String, serde_json::Value>")] At),
}

/// What is written beside the tables that always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Output {
    /// `steps.parquet`: one row a step.
    pub steps: bool,
    /// SVG figures.
    pub figures: bool,
}

impl Default for Output {
    fn default() -> Self {
        Output { steps: false, figures: true }
    }
}

fn one_seed() -> Vec<u64> {
    vec![1]
}
