//! The file of a calibrated profile. It has the costs of passes of a target and a draft model, fitted to the steps of
//! an observed server or to the passes of live runs. A measured profile, in contrast, is fitted to passes that were
//! timed one by one.

use crate::hardware::LatencySpec;
use crate::profile::Range;
use crate::shapes::{Kind, Role, Shape};
use foretoken_sim::{Coefficients, ContextReads, HostLaw};
use foretoken_traces::intact::seal::{self, Syntax};
use serde::{Deserialize, Serialize};

/// The version of the format of calibrated profiles. Only this version is written and read.
pub const CALIBRATED_VERSION: u32 = 1;

/// A calibrated profile: pass costs that were fitted to the steps of an observed server or to the passes of live runs.
/// `foretoken calibrate` writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrated {
    /// Version of the file's format. The key marks the file as a calibrated profile, because a measured profile does
    /// not have it.
    pub calibrated_version: u32,
    /// Version of the Foretoken that made the fit.
    pub foretoken: String,
    /// A description, for readers, of the server or of the live runs to which the costs were fitted.
    pub server: String,
    /// Why the fitted costs cannot be trusted, or why it could not be judged whether they can. Absent if they were
    /// judged and can be trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distrust: Option<String>,
    /// Warnings about the fitted costs for the user of the profile, most serious first.
    pub warnings: Vec<String>,
    /// Host time between two steps of a busy server, seconds. It becomes the setting `engine.step_overhead_s`.
    pub step_overhead_s: f64,
    /// Host time of a step (scheduler, Python, launches) as a function of the step's requests and tokens, seconds. It
    /// becomes the setting `engine.host`.
    #[serde(default, skip_serializing_if = "HostLaw::is_zero")]
    pub host: HostLaw,
    /// Coefficient of variation of the measured step times relative to the fitted times. Simulations add noise of this
    /// size.
    pub noise_cv: f64,
    /// The draft lengths (draft tokens per request and step) that the observed runs used.
    pub draft_lengths: Vec<u32>,
    /// True if draft passes and target passes have separate costs. If false, `target` has the costs of both together,
    /// and only runs with the `draft_lengths` can be predicted.
    pub separated: bool,
    /// How a verification pass counts context. A calibrated profile always counts it once per request.
    pub context_reads: ContextReads,
    /// Passes of fixed shapes (probes) that show how fast the machine was, with their mean times over the runs. Empty
    /// if no pass was probed in the runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbedPass>,
    /// The blake3 hashes of the recordings of live runs to which the costs were fitted. That the costs predict these
    /// recordings well says nothing about other runs. Empty for an observed server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fitted_to: Vec<String>,
    /// The target model: the costs fitted to its passes, and the largest sizes of these passes.
    pub target: CalibratedModel,
    /// The draft model: the costs fitted to its passes, and the largest sizes of these passes.
    pub draft: CalibratedModel,
}

/// A pass of fixed shape (a probe) that a run times now and then to see the machine's speed, with its usual time. In
/// the file it is an array: `[model, kind, requests, new tokens, context, seconds]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct ProbedPass {
    /// The model (target or draft) that runs the pass.
    pub role: Role,
    pub shape: Shape,
    /// Mean time of the pass over the runs in which it was timed, seconds.
    pub seconds: f64,
}

type Row = (Role, Kind, u32, u32, u32, f64);

impl From<Row> for ProbedPass {
    fn from((role, kind, requests, new, context, seconds): Row) -> Self {
        ProbedPass { role, shape: Shape { kind, requests, new, context }, seconds }
    }
}

impl From<ProbedPass> for Row {
    fn from(p: ProbedPass) -> Self {
        let s = p.shape;
        (p.role, s.kind, s.requests, s.new, s.context, p.seconds)
    }
}

/// The costs fitted to the passes of one model (target or draft), and the largest sizes of these passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibratedModel {
    /// The latency model that gives the true pass times in a simulation.
    pub cost: LatencySpec,
    /// The linear cost of a pass that policies assume when they decide: α per token of context, γ per batched token, δ
    /// per pass, in seconds.
    pub belief: Coefficients,
    /// The largest sizes (requests, tokens, context, query-key pairs) over all observed passes of the model.
    pub range: Range,
}

const HEAD: &str = "\
# What the passes of a server cost, fitted to observed runs by `foretoken calibrate`. Keys that end in _s are seconds. Use it as
# hardware.profile = \"THIS FILE\".
";

impl Calibrated {
    /// True if the TOML table `table` is a calibrated profile and not a measured profile.
    pub fn is_one(table: &toml::Table) -> bool {
        table.contains_key("calibrated_version")
    }

    /// Returns the TOML text of the profile's file. Its last line is a seal, a checksum over the text before it.
    pub fn to_toml(&self) -> String {
        let text = toml::to_string(self).expect("plain data always serialises");
        seal::seal(Syntax::Toml, &(HEAD.to_owned() + &text))
    }

    /// Checks the version of the format, the costs of both models (`cost` and `belief`), the times of the probed
    /// passes, the host times and the noise.
    pub fn check(&self) -> Result<(), (String, String)> {
        if self.calibrated_version != CALIBRATED_VERSION {
            let why =
                format!("{}, and this Foretoken reads {CALIBRATED_VERSION}: calibrate again", self.calibrated_version);
            return Err(("calibrated_version".into(), why));
        }
        for (name, model) in [("target", &self.target), ("draft", &self.draft)] {
            model.cost.check().map_err(|e| (format!("{name}.cost.{}", e.key), e.why))?;
            let belief = LatencySpec::Linear(model.belief);
            belief.check().map_err(|e| (format!("{name}.belief.{}", e.key), e.why))?;
        }
        if let Some(probe) = self.probes.iter().find(|p| !(p.seconds > 0.0 && p.seconds.is_finite())) {
            return Err(("probes".into(), format!("{} is not a time above 0", probe.seconds)));
        }
        self.host.check().map_err(|(key, why)| (key.to_owned(), why))?;
        let values = [("step_overhead_s", self.step_overhead_s), ("noise_cv", self.noise_cv)];
        match values.into_iter().find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
            Some((key, x)) => Err((key.into(), format!("{x} is not a finite number of at least 0"))),
            None => Ok(()),
        }
    }
}
