//! The `[paper]` table of an experiment file: claims of a paper that the experiment checks.
//!
//! A claim has its place in the paper, the number that the paper states (or a note that there is none), and how this
//! quantity is measured in the finished comparison.

mod measure;
mod metric;
mod stated;

pub use measure::{
    At, BeliefLength, Best, Change, Crossing, Estimate, Gain, ImpliedLength, Increase, Keep, Keeps, Measure, Turns,
    Value, Windows,
};
pub use metric::Metric;
pub use stated::{Stated, number};

use serde::{Deserialize, Serialize};

/// The `[paper]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Title of the paper or document.
    pub title: String,
    /// The figure or table that the experiment repeats.
    pub figure: String,
    /// The claims, one by one.
    pub claims: Vec<Claim>,
}

/// One claim, and how it is measured here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Name of the claim within its experiment.
    pub id: String,
    /// The claim in our words.
    pub says: String,
    /// The section, table or sentence of the paper that states it.
    #[serde(rename = "where")]
    pub place: String,
    /// The number that the paper states.
    #[serde(rename = "paper")]
    pub stated: Stated,
    /// The quantity that is compared with it.
    pub measure: Measure,
    /// Why our value differs by more than a tenth, or in direction; absent while the reason is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}
