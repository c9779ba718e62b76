//! What a paper says of an experiment: the `[paper]` table of an experiment file.
//!
//! A claim names the sentence or table it stands in, the number there (or that there is none), and how the same quantity is
//! measured in the finished comparison.

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
    /// Its figure or table.
    pub figure: String,
    /// What it says there, one by one.
    pub claims: Vec<Claim>,
}

/// One statement and how it is looked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Names it within its experiment.
    pub id: String,
    /// The statement in our words.
    pub says: String,
    /// Section, table or sentence it stands in.
    #[serde(rename = "where")]
    pub place: String,
    /// The number there.
    #[serde(rename = "paper")]
    pub stated: Stated,
    /// What is compared with it.
    pub measure: Measure,
    /// Why ours differs by more than a tenth, or in direction; absent while nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}
