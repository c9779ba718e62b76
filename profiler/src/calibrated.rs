//! The costs of a pair as somebody's server has them: fitted to what the server was seen to do, not to passes that were timed one by one.

use crate::profile::Range;
use crate::shapes::{Kind, Role, Shape};
use foretoken_intact::seal::{self, Syntax};
use foretoken_sim::latency::LatencySpec;
use foretoken_sim::{Coefficients, ContextReads};
use serde::{Deserialize, Serialize};

/// The version of the format that is written, and the only one that is read.
pub const CALIBRATED_VERSION: u32 = 1;

/// A calibrated profile. Written once, by `foretoken calibrate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrated {
    /// Version of this format, and what tells it from a measured profile.
    pub calibrated_version: u32,
    /// Version of Foretoken that fitted.
    pub foretoken: String,
    /// The server, in words.
    pub server: String,
    /// What whoever uses it should know, most serious first.
    pub warnings: Vec<String>,
    /// Host time between the steps of a busy server, seconds: `engine.step_overhead_s`.
    pub step_overhead_s: f64,
    /// Coefficient of variation of a step around the fit.
    pub noise_cv: f64,
    /// Draft lengths that were observed.
    pub draft_lengths: Vec<u32>,
    /// Are draft passes told apart from verification? Only where plain decoding was observed, too.
    pub separated: bool,
    /// How verification reads context. The fit counts it once.
    pub context_reads: ContextReads,
    /// How fast the machine was: fixed passes and what they took, on average over the runs. Empty where nothing was probed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbedPass>,
    /// The recordings of live runs that it was fitted to, by their blake3: it says nothing of how well those are predicted. Empty for a
    /// server that was observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fitted_to: Vec<String>,
    /// A target pass.
    pub target: CalibratedModel,
    /// A draft pass.
    pub draft: CalibratedModel,
}

/// A fixed pass and what it took. In the file an array: `[model, kind, requests, new tokens, context, seconds]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct ProbedPass {
    /// Whose.
    pub role: Role,
    /// Which.
    pub shape: Shape,
    /// What it took, seconds.
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

/// One model's part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibratedModel {
    /// What its passes cost.
    pub cost: LatencySpec,
    /// The line for beliefs.
    pub belief: Coefficients,
    /// What was observed reaches so far.
    pub range: Range,
}

const HEAD: &str = "\
# What the passes of a server cost, fitted to observed runs by `foretoken calibrate`. Keys that end in _s are seconds. Use it as
# hardware.profile = \"THIS FILE\".
";

impl Calibrated {
    /// Is it the table of a calibrated profile, and not of a measured one?
    pub fn is_one(table: &toml::Table) -> bool {
        table.contains_key("calibrated_version")
    }

    /// The text of the file, with a seal on its last line.
    pub fn to_toml(&self) -> String {
        let text = toml::to_string(self).expect("plain data always serialises");
        seal::seal(Syntax::Toml, &(HEAD.to_owned() + &text))
    }

    /// Checks every value that serde cannot.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn check(&self) -> Result<(), (String, String)> {
        if self.calibrated_version != CALIBRATED_VERSION {
            let why =
                format!("{}, and this Foretoken reads {CALIBRATED_VERSION}: calibrate again", self.calibrated_version);
            return Err(("calibrated_version".into(), why));
        }
        for (name, model) in [("target", &self.target), ("draft", &self.draft)] {
            model.cost.check().map_err(|e| (format!("{name}.cost.{}", e.key), e.why))?;
        }
        if let Some(probe) = self.probes.iter().find(|p| !(p.seconds > 0.0 && p.seconds.is_finite())) {
            return Err(("probes".into(), format!("{} is not a time above 0", probe.seconds)));
        }
        let values = [("step_overhead_s", self.step_overhead_s), ("noise_cv", self.noise_cv)];
        match values.into_iter().find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
            Some((key, x)) => Err((key.into(), format!("{x} is not a finite number of at least 0"))),
            None => Ok(()),
        }
    }
}
