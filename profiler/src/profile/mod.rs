//! The profile file: which machine was measured, the measured pass times, the costs fitted to them, and how far the
//! fits can be trusted.

mod file;
mod model;
#[cfg(test)]
mod tests;

pub use file::{ProfileError, SCHEMA_VERSION};
pub use model::Truth;
pub use model::{ByRegion, Errors, LinearFit, Measurement, ModelInfo, ModelProfile, OlsFit, Range};

use crate::hardware::LatencySpec;
use crate::shapes::Role;
use foretoken_sim::{Coefficients, ContextReads};
use serde::{Deserialize, Serialize};

/// A profile of a target and a draft model on one machine. `foretoken profile` writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub schema_version: u32,
    /// Version of the Foretoken that measured the profile.
    pub foretoken: String,
    /// When the measurement ended, RFC 3339, UTC.
    pub measured_at: String,
    /// True if the linear fits of the target and the draft model are within their error bound on held-out shapes
    /// (shapes to which they were not fitted), for decode passes and for verification passes.
    pub trusted: bool,
    /// Warnings for the user of the profile, most serious first.
    pub warnings: Vec<String>,
    /// How the target's α counts the context of a verification pass: once per request, or once per new token. The
    /// profile has the count whose linear fit has the smaller error. The draft model's α and the fitted tables of both
    /// models count context once per request.
    pub context_reads: ContextReads,
    /// The machine that was measured.
    pub device: DeviceInfo,
    /// How the passes were measured, and how steady the machine was.
    pub measuring: Measuring,
    /// The target model: its measured pass times and the costs fitted to them.
    pub target: ModelProfile,
    /// The draft model: its measured pass times and the costs fitted to them.
    pub draft: ModelProfile,
}

/// The device that ran the passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceInfo {
    /// Kind of device: `cpu`, or `cuda:N`.
    pub kind: String,
    /// Name of the processor or GPU.
    pub name: String,
    /// On a CPU: the instruction sets that the kernels use. On a GPU: the compute capability.
    pub features: Vec<String>,
    /// Number of CPU cores that the process may use.
    pub cores: u32,
    /// Number of threads that ran the passes; 1 for a GPU.
    pub threads: u32,
    /// For a CPU: the vector instructions that the kernels use, and the measured speed of a core, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<String>,
    /// Versions of the GPU's driver and libraries; absent for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// How the passes were measured, and how steady the machine was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measuring {
    /// Seed that decides the order in which shapes are measured, and the fold of each shape.
    pub seed: u64,
    /// Number of timed passes of the target and the draft model together.
    pub passes: u64,
    /// Wall time of the measurement, seconds. 0.0 if the measurement was resumed after an interruption.
    pub wall_s: f64,
    /// Relative change of an anchor's time from the beginning to the end of the measurement (0.05: 5 % slower). An
    /// anchor is a shape that is timed again and again. Of the target's and the draft model's anchor, the larger change
    /// counts.
    pub drift: f64,
    /// Share of the machine's CPU time that other processes used, if the system reports it. If the measurement was
    /// resumed, only the time since it was resumed counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_cpu: Option<f64>,
    /// Share of the machine's CPU time that its hypervisor gave to other virtual machines, if the system reports it. If
    /// the measurement was resumed, only the time since it was resumed counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_cpu: Option<f64>,
}

impl Profile {
    /// Returns the measured pass times and fitted costs of the model `role` (target or draft).
    pub fn of(&self, role: Role) -> &ModelProfile {
        match role {
            Role::Target => &self.target,
            Role::Draft => &self.draft,
        }
    }

    /// Returns a latency model that gives the pass times of the model `role`. `truth` chooses the fitted table of pass
    /// times, the linear fit, or the staircase.
    pub fn truth(&self, role: Role, truth: Truth) -> LatencySpec {
        self.of(role).truth(truth)
    }

    /// Returns how the latency model `truth` counts the context of a pass with several new tokens per request: once per
    /// request, or once per new token.
    pub fn reads(&self, role: Role, truth: Truth) -> ContextReads {
        match (role, truth) {
            (Role::Target, Truth::Linear | Truth::Staircase) => self.context_reads,
            _ => ContextReads::Once,
        }
    }

    /// Returns the largest sizes (requests, new tokens, context, query-key pairs) over all measured passes of the model
    /// `role`. Context is counted as the latency model `truth` counts it.
    pub fn range(&self, role: Role, truth: Truth) -> Range {
        let (model, reads) = (self.of(role), self.reads(role, truth));
        let context = model.measured.iter().map(|m| m.shape.pass(reads).context).max();
        Range { context: context.unwrap_or(0), ..model.range }
    }

    /// Returns the linear costs α, γ, δ that policies assume for the passes of the model `role`.
    pub fn belief(&self, role: Role) -> Coefficients {
        self.of(role).linear.coefficients()
    }

    /// Returns a message that says why the profile is not trusted; `None` if it is trusted.
    pub fn distrust(&self) -> Option<String> {
        (!self.trusted).then(|| match self.warnings.first() {
            Some(first) => format!("the profile is not trusted: {first}"),
            None => "the profile is not trusted".to_owned(),
        })
    }
}
