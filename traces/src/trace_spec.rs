//! The description of a trace file: its path, and what to do where the data leave a choice.
//!
//! Every choice that changes the load is an option. Where data would be lost silently, the default is to refuse the
//! file.

use crate::format::TraceFormat;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A trace file and how to read it. A key that belongs to another format is an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    /// Path of the file: plain, gzip or zstd.
    pub path: PathBuf,
    /// Format of the file. Default: detected from the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<TraceFormat>,
    /// What to do if a row's timestamp is earlier than that of the row before. Default: error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsorted: Option<Unsorted>,
    /// What to do with rows of 0 prompt or output tokens (default: error; BurstGPT's failed rows have their own key).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_tokens: Option<ZeroTokens>,
    /// BurstGPT only: what to do with rows of 0 response tokens (default: drop).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_rows: Option<FailedRows>,
    /// BurstGPT only: what to do with equal whole-second times (default: keep).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ties: Option<Ties>,
    /// BurstGPT only: keep only rows of this `Model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// BurstGPT only: keep only rows of this `Log Type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_type: Option<String>,
    /// Spec-Bench only: whether to use the first turn of each question (as AdaSpec does) or all turns. Default: first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
    /// Spec-Bench CSV only: path of the JSON-lines file with the recorded acceptance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<PathBuf>,
    /// Format `columns` only: the names of the columns in a CSV log of any other tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// Drop rows with more prompt tokens than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_prompt_len: Option<u32>,
    /// Drop rows with more output tokens than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_len: Option<u32>,
    /// Drop rows with more prompt and output tokens together than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_total_len: Option<u32>,
    /// For a trace under `lengths` only: the order in which rows are used. Default: the file's order; after the last
    /// row the first one follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

impl TraceSpec {
    /// The file at `path` with every option at its default.
    pub fn new(path: impl Into<PathBuf>) -> TraceSpec {
        TraceSpec { path: path.into(), ..TraceSpec::default() }
    }
}

/// The names of the columns in the header of a CSV log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// Column of arrival times: numbers, or `YYYY-MM-DD HH:MM:SS[.fff]` with `T` or a space and with or without a zone
    /// (then UTC). The earliest time becomes 0. A trace under `lengths` does not need this column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<String>,
    /// Column of prompt tokens.
    pub prompt: String,
    /// Column of output tokens.
    pub output: String,
    /// Column of the requests' categories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Column of the requests' priorities, whole numbers, for `engine.scheduling_policy = "priority"`. The lowest
    /// number is served first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Unit of arrival times that are numbers (default: s).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<TimeUnit>,
}

/// The unit of times that are numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimeUnit {
    /// Seconds.
    #[default]
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

impl TimeUnit {
    /// The exponent n for this unit, which is 10^n picoseconds.
    pub(crate) fn places(self) -> usize {
        match self {
            TimeUnit::S => 12,
            TimeUnit::Ms => 9,
            TimeUnit::Us => 6,
            TimeUnit::Ns => 3,
        }
    }
}

/// What to do if a row's timestamp is earlier than that of the row before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unsorted {
    /// Refuse the file.
    #[default]
    Error,
    /// Sort by time; equal times keep the file's order.
    Sort,
}

/// What to do with rows of 0 prompt or output tokens, which no engine can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroTokens {
    /// Refuse the file.
    #[default]
    Error,
    /// Leave these rows out and count them.
    Drop,
    /// Raise 0 to 1.
    RaiseToOne,
}

/// What to do with BurstGPT rows of 0 response tokens: requests that failed at the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailedRows {
    /// Leave these rows out and count them.
    #[default]
    Drop,
    /// Keep these rows with an output of 1 token, the one that the prefill gives, so that their prompts still load the
    /// server. Rows that have no prompt either (0/0) are left out and counted.
    KeepAsPromptOnly,
    /// Refuse the file.
    Error,
}

/// What to do with requests of the same second if the trace has times in whole seconds only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ties {
    /// They all arrive at the start of the second.
    #[default]
    Keep,
    /// They are spread evenly over their second, as the transformation `spread` does with `tick_s = 1`.
    Spread,
}

/// Which turns of multi-turn questions to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Turns {
    /// Only turn 0.
    #[default]
    First,
    /// All turns, each as a separate request.
    All,
}

/// The order in which a length source's rows are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sample {
    /// The order of the file; after the last row the first one follows.
    #[default]
    InOrder,
    /// A random order; every row is used once before any is used again.
    Shuffle,
}
