//! The choice of the latency model of a profile that a simulation uses.

use serde::{Deserialize, Serialize};

/// Which latency model of a profile gives the true pass times of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Truth {
    /// The measured times, interpolated between the measured sizes.
    #[default]
    Table,
    /// The linear fit to the measured times, with coefficients α, γ and δ.
    Linear,
    /// A staircase: the measured sizes count as captured CUDA-graph sizes, and a pass is padded to the next larger one.
    Staircase,
}
