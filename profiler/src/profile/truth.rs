//! Which latency model of a profile a simulation uses.

use serde::{Deserialize, Serialize};

/// Which description of a pass in the profile an experiment uses as the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Truth {
    /// The measured table, interpolated between its sizes.
    #[default]
    Table,
    /// The linear fit α, γ, δ.
    Linear,
    /// The measured sizes as sizes of captured graphs, to which passes are padded.
    Staircase,
}
