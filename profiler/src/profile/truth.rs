//! The choice of a truth.

use serde::{Deserialize, Serialize};

/// Which of a profile's descriptions of a pass an experiment takes for the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Truth {
    /// The measured table, read between its sizes.
    #[default]
    Table,
    /// α, γ, δ.
    Linear,
    /// The measured sizes as those of padded graphs.
    Staircase,
}
