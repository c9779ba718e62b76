//! The description of a trace file: where it is and what to do where the data leave a choice.
//!
//! Every choice that changes the load is explicit, and the default of whatever loses data silently is to refuse.

use crate::format::TraceFormat;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A trace file and how to read it. Options of other formats are errors, not ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    /// The file: plain, gzip or zstd.
    pub path: PathBuf,
    /// Its format; judged by the header when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<TraceFormat>,
    /// What to do with timestamps that go back (default: error).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsorted: Option<Unsorted>,
    /// What to do with rows of 0 prompt or output tokens (default: error; BurstGPT's failed rows have their own key).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_tokens: Option<ZeroTokens>,
    /// BurstGPT only: rows with 0 response tokens (default: drop).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_rows: Option<FailedRows>,
    /// BurstGPT only: whole-second ties (default: keep).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ties: Option<Ties>,
    /// BurstGPT only: keep rows of this `Model` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// BurstGPT only: keep rows of this `Log Type` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_type: Option<String>,
    /// Spec-Bench only: first turns (as AdaSpec) or all (default: first).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
    /// Spec-Bench CSV only: the JSON-lines file with the recorded acceptance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<PathBuf>,
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
    /// The file with every option at its default.
    pub fn new(path: impl Into<PathBuf>) -> TraceSpec {
        TraceSpec { path: path.into(), ..TraceSpec::default() }
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
    /// Leave them out and count them.
    Drop,
    /// Count 0 as 1.
    RaiseToOne,
}

/// What to do with BurstGPT rows of 0 response tokens: requests that failed at the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailedRows {
    /// Leave them out and count them.
    #[default]
    Drop,
    /// Keep the load of their prompt: output length 1, the token that the prefill itself gives. Rows without a
    /// prompt either (0/0) are left out and counted.
    KeepAsPromptOnly,
    /// Refuse the file.
    Error,
}

/// What to do with requests in the same second when the trace has whole seconds only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ties {
    /// They arrive together.
    #[default]
    Keep,
    /// They are spread evenly over their second, as [`crate::Transform::Spread`] with a tick of 1 s.
    Spread,
}

/// Which turns of multi-turn questions to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Turns {
    /// Turn 0 alone.
    #[default]
    First,
    /// Every turn as a request of its own.
    All,
}

/// The order in which a length source's rows are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sample {
    /// As in the file, from the top again at the end.
    #[default]
    InOrder,
    /// In a random order, every row once before any comes again.
    Shuffle,
}
