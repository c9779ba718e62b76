//! What a paper says of an experiment: the `[paper]` table of an experiment file.
//!
//! A claim names the sentence or table that it stands in, the number there (or that there is none), and how the same
//! quantity is measured in the finished comparison.

mod measure;
mod metric;
mod stated;

pub use measure::{
    At, BeliefLength, Best, Change, Crossing, Estimate, Gain, ImpliedLength, Keep, Measure, Turns, Value, Windows,
};
pub use metric::Metric;
pub use stated::{Stated, number};

use serde::{Deserialize, Serialize};

/// The `[paper]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The document.
    pub title: String,
    /// The figure or table.
    pub figure: String,
    /// The statements, one by one.
    pub claims: Vec<Claim>,
}

/// One statement, and how it is measured here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Name of the claim within its experiment.
    pub id: String,
    /// The statement in our words.
    pub says: String,
    /// Section, table or sentence it stands in.
    #[serde(rename = "where")]
    pub place: String,
    /// The number that the paper states.
    #[serde(rename = "paper")]
    pub stated: Stated,
    /// The quantity that is compared with it.
    pub measure: Measure,
    /// Why ours differs by more than a tenth, or in direction; absent while the reason is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}
