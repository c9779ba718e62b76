//! What a paper says of an experiment, and what comes out here: the `[paper]` table of an experiment file.
//!
//! A claim names the sentence or table it stands in, the number there (or that there is none), and how the same quantity is
//! measured in the finished comparison. The module measures and compares; it must not run or tune anything.

mod check;
mod compared;
mod cost;
mod measure;
mod metric;
mod render;
mod replay;
mod stated;
mod windows;

pub use check::check;
pub use compared::PaperReport;
pub use measure::{At, Measure, choice, picks};
pub use render::{render, render_json};

use serde::{Deserialize, Serialize};
use stated::Stated;

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
