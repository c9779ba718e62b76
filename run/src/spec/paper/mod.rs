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

/// The `[paper]` table of an experiment: the claims of a paper that the experiment checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Title of the paper or document.
    pub title: String,
    /// The figure or table that the experiment repeats.
    pub figure: String,
    /// The claims of the paper that the experiment checks.
    pub claims: Vec<Claim>,
}

/// One claim of a paper, and how the claim is measured here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Name of the claim. No other claim of the experiment has it.
    pub id: String,
    /// The claim in our words.
    pub says: String,
    /// The section, table or sentence of the paper that makes the claim.
    #[serde(rename = "where")]
    pub place: String,
    /// What the paper states: a number, a range `[low, high]`, a list of policies, or `"figure only"`.
    #[serde(rename = "paper")]
    pub stated: Stated,
    /// The quantity of our run that is compared with what the paper states.
    pub measure: Measure,
    /// Why our value differs from the paper's by more than a tenth, or in direction; absent while the reason is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}
