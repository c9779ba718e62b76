//! The contents of an experiment file as types: the tables and their keys. [`crate::read`] reads and checks them.

use crate::arena::Arena;
use crate::capacity::CapacitySpec;
use crate::fleet::FleetSpec;
use crate::live::LiveSpec;
use crate::observe::ObserveSpec;
use crate::paper::{At, Paper};
use crate::question::Question;
use crate::validate::ValidateSpec;
use foretoken_hardware::LatencySpec;
use foretoken_policies::PolicySpec;
use foretoken_profiler::Truth;
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::{Coefficients, ContextReads, Drafting, EngineConfig, Pair};
use foretoken_traces::WorkloadSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Top-level keys that cannot be swept, because all runs of an experiment share their values.
pub const UNSWEPT: [&str; 9] =
    ["name", "seeds", "sweep_order", "policies", "capacity", "output", "paper", "question", "arena"];

/// One experiment without sweeps.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of the experiment; the results folder is named after it.
    pub name: String,
    /// Seeds of all random draws and of generated load; each seed is one replication.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// Paths of swept values, the one that varies slowest first. Sweeps that are not listed follow in the order of
    /// the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep_order: Vec<String>,
    /// The policies to compare, in the order of the table. A scenario of the arena that names none takes all.
    #[serde(default)]
    pub policies: Vec<PolicySpec>,
    /// The true cost of forward passes.
    pub hardware: Hardware,
    /// The engine's settings.
    #[serde(default)]
    pub engine: EngineConfig,
    /// Several replicas behind a router; absent: one engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetSpec>,
    /// The requests: when they arrive, and their lengths.
    pub workload: WorkloadSpec,
    /// Which drafts are right.
    pub acceptance: AcceptanceSpec,
    /// The policies' belief about the cost of passes.
    #[serde(default)]
    pub belief: BeliefSpec,
    /// Latency bounds of requests.
    #[serde(default)]
    pub slo: SloSpec,
    /// The device that runs the experiment, for `foretoken live` and `validate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveSpec>,
    /// How `foretoken validate` runs, and which errors it accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate: Option<ValidateSpec>,
    /// How `foretoken observe` sends requests to a real server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<ObserveSpec>,
    /// How `foretoken capacity` searches for the highest rate within `slo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacitySpec>,
    /// Which optional files are written.
    #[serde(default)]
    pub output: Output,
    /// Claims of a paper that the run is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
    /// A question that was asked in public; the run answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// A scenario of the arena, in which all policies meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arena: Option<Arena>,
}

/// The true cost of forward passes.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// A measured profile: it gives `target`, `draft`, `context_reads`, and the belief with its own `context_reads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<PathBuf>,
    /// Which of the profile's latency models gives the true costs; absent: its table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<Truth>,
    /// Is `noise_cv` taken from the profile?
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

impl Hardware {
    /// The true costs of passes.
    pub fn costs(&self) -> Pair<&LatencySpec> {
        Pair { target: &self.target, draft: &self.draft }
    }
}

/// The policies' belief about the cost of passes, and errors in it. An absent value is the least-squares fit to the
/// true cost.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BeliefSpec {
    /// α, γ, δ of a target pass.
    pub target: Option<Coefficients>,
    /// α, γ, δ of a draft pass.
    pub draft: Option<Coefficients>,
    /// A stale belief: the models that it was fitted to, of another machine or an earlier state of this one.
    pub fitted_to: Option<FittedTo>,
    /// How policies think a verify pass reads context; absent: as the profile's linear fit counts it, or else as the
    /// true pass does.
    pub context_reads: Option<ContextReads>,
    /// Factors on the believed times.
    pub scale: Scale,
    /// Coefficient of variation of the log-normal error of each believed coefficient and table entry, drawn once a
    /// seed.
    pub noise_cv: f64,
    /// Where policies with a cost table get its entries.
    pub tables: Tables,
    /// Number of steps by which a policy learns the outcome of a step late; 0: at the step's end.
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

/// The latency models to which a stale belief was fitted. They describe another machine, or an earlier state of this
/// one.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedTo {
    /// Time of a target pass.
    pub target: LatencySpec,
    /// Time of a draft pass.
    pub draft: LatencySpec,
}

impl FittedTo {
    /// The costs of passes to which the belief was fitted.
    pub fn costs(&self) -> Pair<&LatencySpec> {
        Pair { target: &self.target, draft: &self.draft }
    }
}

/// Factors on the believed times; 1 is none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Scale {
    /// Factor on the target's times.
    pub target: f64,
    /// Factor on the draft's times.
    pub draft: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Scale { target: 1.0, draft: 1.0 }
    }
}

/// Where policies with a cost table get its entries, once, before serving starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tables {
    /// Passes timed on the machine, as engines do when they start.
    #[default]
    Profiled,
    /// Times computed from the linear belief.
    Linear,
}

/// Latency bounds of requests. An absent bound is not checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SloSpec {
    /// TPOT bound as a multiple of the autoregressive run's P90 TPOT on the same draws (AdaSpec, section 6.1).
    /// `reference` names the load of that run.
    #[serde(rename = "adaspec-scale")]
    pub adaspec_scale: Option<f64>,
    /// The load whose autoregressive run gives the bound, where loads are swept; absent: `"lowest-load"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// Bound on the time to first token, seconds.
    pub ttft_s: Option<f64>,
    /// Bound on the time per output token after the first, seconds.
    pub tpot_s: Option<f64>,
    /// Bound on the end-to-end latency, seconds.
    pub e2e_s: Option<f64>,
}

/// The autoregressive run that a bound is scaled from. Swept numbers below `workload.arrivals`, `rate-scale` and
/// `thin` are loads. Each value of other swept settings has its own bound, unless `at` says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// The run at the lowest swept load: all loads are held to one bound.
    LowestLoad,
    /// Each load's own run, as in the paper. The bound moves with the load, and at scale 1 autoregressive attains 90
    /// % at every load by definition.
    EachLoad,
    /// The run at these values of swept settings, by path. A table is picked by its place in the sweep, from 0.
    At(#[schemars(with = "BTreeMap<String, serde_json::Value>")] At),
}

/// Which optional files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Output {
    /// `steps.parquet`: one row per step.
    pub steps: bool,
    /// The figures, one SVG file each.
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
