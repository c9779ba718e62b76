//! The contents of an experiment file as types: the tables and their keys. [`crate::spec::read`] reads and checks them.

use crate::spec::arena::Arena;
use crate::spec::capacity::CapacitySpec;
use crate::spec::fleet::FleetSpec;
use crate::spec::live::LiveSpec;
use crate::spec::observe::ObserveSpec;
use crate::spec::paper::{At, Paper};
use crate::spec::question::Question;
use crate::spec::validate::ValidateSpec;
use foretoken_policies::PolicySpec;
use foretoken_profiler::Truth;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::{Coefficients, ContextReads, Drafting, EngineConfig, Pair};
use foretoken_traces::WorkloadSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Top-level keys that cannot be swept, because all runs of an experiment share their values.
pub const UNSWEPT: [&str; 9] =
    ["name", "seeds", "sweep_order", "policies", "capacity", "output", "paper", "question", "arena"];

/// One experiment without sweeps: one combination of swept values.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of the experiment: letters, digits, `-`, `_` and `.`. The results folder has this name.
    pub name: String,
    /// Seeds of the random draws, at least one. Every policy runs once with each seed. Absent: one run with seed 1.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// Paths of swept settings. The first one varies slowest. Swept settings that are not listed vary faster, in the
    /// order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep_order: Vec<String>,
    /// The policies to compare; results list them in this order. If a scenario of the arena (an experiment in which all
    /// policies are compared) lists none, it runs all policies.
    #[serde(default)]
    pub policies: Vec<PolicySpec>,
    /// The true times of forward passes.
    pub hardware: Hardware,
    /// The settings of the serving engine: scheduler, KV cache, drafter and host times.
    #[serde(default)]
    pub engine: EngineConfig,
    /// Several replicas (engines) behind a router; absent: one engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetSpec>,
    /// The requests: when they arrive, and their lengths.
    pub workload: WorkloadSpec,
    /// What decides which draft tokens the target accepts in a simulated run, such as stated acceptance rates or a
    /// recording.
    pub acceptance: AcceptanceSpec,
    /// What policies believe about the times of passes (the linear cost model that they get), and how late they learn
    /// the outcome of a step.
    #[serde(default)]
    pub belief: BeliefSpec,
    /// Latency bounds of requests; absent: no bounds.
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
    /// How `foretoken capacity` searches for the highest rate of requests at which a stated share of them keeps the
    /// bounds of `slo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacitySpec>,
    /// Which optional files a run writes.
    #[serde(default)]
    pub output: Output,
    /// Claims of a paper with which the results of the run are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
    /// A question that was asked in public. The run answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// Makes the experiment a scenario of the arena (a set of experiments in which all policies are compared).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arena: Option<Arena>,
}

/// The true times of forward passes. They come from a profile, or `target` and `draft` say how they are computed.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Path of a profile: measured or calibrated pass times. It gives `target` and `draft`, which must then be left
    /// out, and `context_reads`. It also gives the linear cost model that policies get (their belief), unless
    /// `[belief]` gives another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<PathBuf>,
    /// Which of the profile's latency models gives the true pass times; absent: `table`. Needs `profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<Truth>,
    /// Whether the profile gives `noise_cv` (the noise on pass times), which must then be left out. Needs `profile`.
    /// Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profile_noise: bool,
    /// How the time of a target pass is computed. Left out if there is a `profile`.
    pub target: LatencySpec,
    /// How the time of a draft pass is computed. Left out if there is a `profile`.
    pub draft: LatencySpec,
    /// How often a verify pass reads a request's context: once, or once for each position that it verifies. Absent: as
    /// the profile says, or else once.
    #[serde(default)]
    pub context_reads: ContextReads,
    /// Whether the drafter runs one pass for each draft token of a request in a step, or one pass for all of them
    /// (prompt lookup, Medusa heads).
    #[serde(default)]
    pub drafting: Drafting,
    /// Coefficient of variation (standard deviation / mean) of the log-normal noise on the time of each pass, 0 to
    /// 1000; 0 for no noise.
    #[serde(default)]
    pub noise_cv: f64,
}

impl Hardware {
    /// Returns the true costs of the target model's and the draft model's passes.
    pub fn costs(&self) -> Pair<&LatencySpec> {
        Pair { target: &self.target, draft: &self.draft }
    }
}

/// What policies believe about the times of passes (the costs with which they decide), how wrong this belief is, and
/// how late policies learn outcomes. Coefficients that are given nowhere are fitted to the true times by least squares.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BeliefSpec {
    /// Believed coefficients of the time of a target pass: α (seconds per context token), γ (per new token), δ (per
    /// pass). Absent: the profile's, or else a least-squares fit to the true times.
    pub target: Option<Coefficients>,
    /// Believed coefficients of the time of a draft pass: α (seconds per context token), γ (per new token), δ (per
    /// pass). Absent: the profile's, or else a least-squares fit to the true times.
    pub draft: Option<Coefficients>,
    /// For a stale belief: the latency models to which the believed coefficients are fitted. They describe another
    /// machine, or an earlier state of this one. Absent: the belief is about this machine.
    pub fitted_to: Option<FittedTo>,
    /// How often a verify pass reads a request's context, as policies believe. Absent: as the profile's linear fit
    /// counts it, or else as in `hardware.context_reads`.
    pub context_reads: Option<ContextReads>,
    /// Factors on the believed pass times, above 0. With 1 the belief is not changed.
    pub scale: Scale,
    /// Coefficient of variation of the log-normal error of each believed coefficient and of each entry of a cost table,
    /// 0 to 1000; 0 for no error. The errors are drawn once for each seed.
    pub noise_cv: f64,
    /// Where policies that use a cost table (pass times by number of tokens) get its entries.
    pub tables: Tables,
    /// Number of steps after the end of a step until a policy learns the step's outcome; 0: the policy learns it at the
    /// end of the step.
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

/// The latency models to which a stale belief (the pass costs that policies assume) was fitted. They describe another
/// machine, or an earlier state of this one.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedTo {
    /// How the time of a target pass is computed on the machine to which a stale belief was fitted.
    pub target: LatencySpec,
    /// How the time of a draft pass is computed on the machine to which a stale belief was fitted.
    pub draft: LatencySpec,
}

impl FittedTo {
    /// Returns the costs of the target model's and the draft model's passes to which the belief was fitted.
    pub fn costs(&self) -> Pair<&LatencySpec> {
        Pair { target: &self.target, draft: &self.draft }
    }
}

/// Factors on the pass times that policies assume. A factor of 1 changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Scale {
    /// Factor on the times of target passes that policies assume, above 0.
    pub target: f64,
    /// Factor on the times of draft passes that policies assume, above 0.
    pub draft: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Scale { target: 1.0, draft: 1.0 }
    }
}

/// Where policies with a cost table (pass times by number of tokens) get its entries, once, before serving starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tables {
    /// Passes timed on the simulated machine (or on the machine of `belief.fitted_to`), as engines time passes when
    /// they start.
    #[default]
    Profiled,
    /// Times computed from the linear belief: the α, γ and δ with which policies estimate a pass.
    Linear,
}

/// Latency bounds of requests. A bound that is absent is not checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SloSpec {
    /// The TPOT bound as a multiple of the 90th percentile of TPOT in the autoregressive run on the same requests
    /// (AdaSpec, section 6.1), above 0. `reference` chooses the load of that run. An experiment has
    /// `adaspec-scale` or `tpot_s`, not both.
    #[serde(rename = "adaspec-scale")]
    pub adaspec_scale: Option<f64>,
    /// If loads are swept: the load whose autoregressive run gives the TPOT bound of `adaspec-scale`. Absent:
    /// `"lowest-load"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// Longest time to first token that a request may have, seconds; absent: no bound.
    pub ttft_s: Option<f64>,
    /// Longest time per output token after the first that a request may have, seconds; absent: no bound.
    pub tpot_s: Option<f64>,
    /// Longest end-to-end latency that a request may have, seconds; absent: no bound.
    pub e2e_s: Option<f64>,
}

/// The autoregressive run from which the TPOT bound of `adaspec-scale` is scaled. A load is a swept number below
/// `workload.arrivals`, or of the transforms `rate-scale` and `thin`. For other swept settings, each value has its own
/// bound, unless `at` names one value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// The autoregressive run at the lowest swept load gives one bound for all loads.
    LowestLoad,
    /// At each load, the autoregressive run at this load gives the bound, as in the AdaSpec paper. The bound then
    /// changes with the load. At scale 1, autoregressive decoding keeps the bound for 90 % of the requests at every
    /// load, by definition.
    EachLoad,
    /// The autoregressive run at stated swept values gives the bound. `at` lists them by the path of the setting. If a
    /// swept value is a table, its index in the sweep, from 0, stands for it.
    At(#[schemars(with = "BTreeMap<String, serde_json::Value>")] At),
}

/// Which optional files a run writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Output {
    /// Whether `steps.parquet` is written: a table with one row for each step. Default: false.
    pub steps: bool,
    /// Whether the figures are written, one SVG file each. Default: true.
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
