//! The description of a trace file: where it is, and what to do where the data leave a choice.
//!
//! Every choice that changes the load is explicit. Where data would be lost silently, the default is to refuse the
//! file.

use crate::format::TraceFormat;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A trace file and how to read it. Options of other formats are errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    /// The file: plain, gzip or zstd.
    pub path: PathBuf,
    /// Format of the file; detected from the header if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<TraceFormat>,
    /// What to do with timestamps that go back (default: error).
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
    /// Spec-Bench only: use first turns (as AdaSpec does) or all (default: first).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
    /// Spec-Bench CSV only: the JSON-lines file with the recorded acceptance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<PathBuf>,
    /// Format `columns` only: the names of the columns in a CSV log of any other tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// Drop rows with longer prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_prompt_len: Option<u32>,
    /// Drop rows with longer outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_len: Option<u32>,
    /// Drop rows with longer prompt + output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_total_len: Option<u32>,
    /// As a length source only: the order in which rows are used (default: in order, from the top again at the end).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

impl TraceSpec {
    /// The file at `path` with every option at its default.
    pub fn new(path: impl Into<PathBuf>) -> TraceSpec {
        TraceSpec { path: path.into(), ..TraceSpec::default() }
    }
}

/// The columns of a CSV log by their names in its header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// Column of arrival times: numbers, or `YYYY-MM-DD HH:MM:SS[.fff]` with `T` or a space, and a zone or none (UTC).
    /// They count from the earliest. A source of lengths needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<String>,
    /// Column of prompt tokens.
    pub prompt: String,
    /// Column of output tokens.
    pub output: String,
    /// Column of the requests' categories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
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
    /// The exponent n of the unit, which is 10^n picoseconds.
    pub(crate) fn places(self) -> usize {
        match self {
            TimeUnit::S => 12,
            TimeUnit::Ms => 9,
            TimeUnit::Us => 6,
            TimeUnit::Ns => 3,
        }
    }
}

/// What to do with timestamps that go back.
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
    /// Keep the load of their prompt: output length 1, the token that the prefill itself gives. Rows without a prompt
    /// too (0/0) are left out and counted.
    KeepAsPromptOnly,
    /// Refuse the file.
    Error,
}

/// What to do with requests in the same second if the trace has whole seconds only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ties {
    /// They arrive together.
    #[default]
    Keep,
    /// They are spread evenly over their second, as with [`crate::Transform::Spread`] and a tick of 1 s.
    Spread,
}

/// Which turns of multi-turn questions to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Turns {
    /// Only turn 0.
    #[default]
    First,
    /// Every turn as a request of its own.
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
