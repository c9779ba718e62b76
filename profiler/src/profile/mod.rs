//! The profile file: what was measured on which machine, the fits to it, and how far they can be trusted.

mod file;
mod model;
#[cfg(test)]
mod tests;
mod truth;

pub use file::{ProfileError, SCHEMA_VERSION};
pub use model::{ByRegion, Errors, LinearFit, Measurement, ModelInfo, ModelProfile, OlsFit, Range};
pub use truth::Truth;

use crate::shapes::Role;
use foretoken_sim::latency::LatencySpec;
use foretoken_sim::{Coefficients, ContextReads};
use serde::{Deserialize, Serialize};

/// A profile of a pair of models on one machine. Written once, by whoever measured; everybody else reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Version of this format.
    pub schema_version: u32,
    /// Version of Foretoken that measured.
    pub foretoken: String,
    /// When the measuring ended, RFC 3339, UTC.
    pub measured_at: String,
    /// Is the linear fit of both models within its bound for decode and verify passes?
    pub trusted: bool,
    /// What whoever uses it should know, most serious first.
    pub warnings: Vec<String>,
    /// How the target's alpha counts the context of a verify pass, by which of the two readings fits better. The draft's alpha
    /// and the tables count it once.
    pub context_reads: ContextReads,
    /// The machine.
    pub device: DeviceInfo,
    /// How it was measured, and how steady the machine was.
    pub measuring: Measuring,
    /// The target.
    pub target: ModelProfile,
    /// The draft.
    pub draft: ModelProfile,
}

/// What the passes ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceInfo {
    /// `cpu`, or `cuda:N`.
    pub kind: String,
    /// Name of the processor or GPU.
    pub name: String,
    /// Instruction sets that matter, or compute capability.
    pub features: Vec<String>,
    /// Cores the process may use.
    pub cores: u32,
    /// Threads the passes ran on; for a GPU 1.
    pub threads: u32,
    /// What the kernels use of it, and how fast that is; of a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<String>,
    /// GPU driver and libraries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// How it was measured, and how steady the machine was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measuring {
    /// Decides the order of shapes and when each is held out.
    pub seed: u64,
    /// Passes timed, both models.
    pub passes: u64,
    /// Wall time it took, seconds; 0.0 where it was put together from interrupted parts.
    pub wall_s: f64,
    /// Largest relative change of the anchor pass over the time of measuring, of both models.
    pub drift: f64,
    /// Share of the machine's CPU time that other processes took, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_cpu: Option<f64>,
    /// Share of the machine's CPU time that its hypervisor gave to others, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_cpu: Option<f64>,
}

impl Profile {
    /// One of the two models.
    pub fn of(&self, role: Role) -> &ModelProfile {
        match role {
            Role::Target => &self.target,
            Role::Draft => &self.draft,
        }
    }

    /// The latency model of a pass.
    pub fn truth(&self, role: Role, truth: Truth) -> LatencySpec {
        self.of(role).truth(truth)
    }

    /// How such a description of a model counts the context of a pass with several new tokens a request.
    pub fn reads(&self, role: Role, truth: Truth) -> ContextReads {
        match (role, truth) {
            (Role::Target, Truth::Linear | Truth::Staircase) => self.context_reads,
            _ => ContextReads::Once,
        }
    }

    /// The largest pass that was measured, as such a description counts it.
    pub fn range(&self, role: Role, truth: Truth) -> Range {
        let (model, reads) = (self.of(role), self.reads(role, truth));
        let context = model.measured.iter().map(|m| m.shape.pass(reads).context).max();
        Range { context: context.unwrap_or(0), ..model.range }
    }

    /// What policies believe of a pass.
    pub fn belief(&self, role: Role) -> Coefficients {
        self.of(role).linear.coefficients()
    }

    /// Why it is not trusted, or nothing.
    pub fn distrust(&self) -> Option<String> {
        (!self.trusted).then(|| match self.warnings.first() {
            Some(first) => format!("the profile is not trusted: {first}"),
            None => "the profile is not trusted".to_owned(),
        })
    }
}
