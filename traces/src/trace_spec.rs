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
    /// What to do if a row's timestamp is earlier than the timestamp of the row before. Default: error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsorted: Option<Unsorted>,
    /// What to do with rows of 0 prompt or output tokens (default: error). For BurstGPT's rows of 0 response tokens,
    /// `failed_rows` decides instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_tokens: Option<ZeroTokens>,
    /// Mooncake only: the unit of `timestamp` (default: ms).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<TimeUnit>,
    /// Mooncake and `columns` only: prompt tokens that one prefix id stands for (default: 512).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// BurstGPT and LiteLLM only: what to do with rows of 0 response tokens (default: drop).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_rows: Option<FailedRows>,
    /// BurstGPT only: what to do with requests whose timestamps are the same whole second (default: keep).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ties: Option<Ties>,
    /// BurstGPT, LiteLLM and OpenTelemetry only: keep only the requests of this model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// BurstGPT only: keep only rows with this value in the column `Log Type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_type: Option<String>,
    /// Spec-Bench only: whether to use the first turn of each question (as AdaSpec does) or all turns. Default: first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
    /// Spec-Bench CSV only: path of the JSON-lines file with the recorded acceptance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<PathBuf>,
    /// Format `columns` only: the names of the columns (CSV) or keys (JSON) in the log of any other tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// Rows with more prompt tokens than this number are dropped. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_prompt_len: Option<u32>,
    /// Rows with more output tokens than this number are dropped. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_len: Option<u32>,
    /// Rows whose prompt and output tokens together are more than this number are dropped. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_total_len: Option<u32>,
    /// For a trace under `lengths` only: the order in which the rows are used. Default: the order of the file, from the
    /// start again after the last row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

impl TraceSpec {
    /// The settings for the trace file at `path`, with every option at its default.
    pub fn new(path: impl Into<PathBuf>) -> TraceSpec {
        TraceSpec { path: path.into(), ..TraceSpec::default() }
    }
}

/// The names of the columns in the header of a CSV log, or of the keys in the objects of a JSON log. A dot leads into
/// an object: `usage.prompt_tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// Name of the log's column of arrival times: numbers, or `YYYY-MM-DD HH:MM:SS[.fff]` with `T` or a space and with
    /// or without a zone (then UTC). The earliest time becomes 0. A trace under `lengths` does not need this column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<String>,
    /// Name of the log's column of prompt tokens.
    pub prompt: String,
    /// Name of the log's column of output tokens.
    pub output: String,
    /// Name of the log's column of the requests' categories. Default: the requests have no categories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Name of the log's column of the requests' priorities, whole numbers, for `engine.scheduling_policy =
    /// "priority"`. The lowest number is served first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Name of the log's column of prefix ids: a list of whole numbers, one for each block of the prompt. Requests
    /// whose lists begin alike share these blocks. Default: no request shares a prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Name of the log's column of sessions (conversations): rows with the same text here are turns of one session.
    /// Needs `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Name of the log's column of delays, numbers of the same unit as arrival times. A row with a delay is sent that
    /// long after the answer to the row before it in its session, and needs no arrival time. Needs `session`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// Unit of the log's arrival times, if they are numbers (default: s).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<TimeUnit>,
}

/// The unit of a log's arrival times, if they are written as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimeUnit {
    /// Times are in seconds.
    #[default]
    S,
    /// Times are in milliseconds.
    Ms,
    /// Times are in microseconds.
    Us,
    /// Times are in nanoseconds.
    Ns,
}

impl TimeUnit {
    /// Every unit, the longest first, with its name in TOML.
    pub(crate) const ALL: [(TimeUnit, &str); 4] =
        [(TimeUnit::S, "s"), (TimeUnit::Ms, "ms"), (TimeUnit::Us, "us"), (TimeUnit::Ns, "ns")];

    /// The name of this unit in TOML.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(unit, _)| *unit == self).expect("every unit has a name").1
    }

    /// The name of the unit that is a thousandth of this one (`smaller`) or a thousand times this one. `None` if there
    /// is none.
    pub fn thousandth(self, smaller: bool) -> Option<&'static str> {
        let at = Self::ALL.iter().position(|(unit, _)| *unit == self)?;
        let other = if smaller { at + 1 } else { at.checked_sub(1)? };
        Self::ALL.get(other).map(|(_, name)| *name)
    }

    /// The n for which this unit of time is 10^n picoseconds.
    pub(crate) fn places(self) -> usize {
        match self {
            TimeUnit::S => 12,
            TimeUnit::Ms => 9,
            TimeUnit::Us => 6,
            TimeUnit::Ns => 3,
        }
    }
}

/// What to do if a row's timestamp is earlier than the timestamp of the row before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unsorted {
    /// A trace in which a timestamp is earlier than the one before is refused.
    #[default]
    Error,
    /// Sort the rows by time; rows with equal times keep the file's order.
    Sort,
}

/// What to do with rows of 0 prompt or output tokens, which no engine can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroTokens {
    /// A trace with a row of 0 prompt or output tokens is refused.
    #[default]
    Error,
    /// Rows with 0 prompt or output tokens are left out and counted.
    Drop,
    /// A prompt or output length of 0 tokens counts as 1 token.
    RaiseToOne,
}

/// What to do with BurstGPT rows of 0 response tokens: requests that failed at the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailedRows {
    /// Failed rows (0 response tokens) are left out and counted.
    #[default]
    Drop,
    /// Keep failed rows as requests with 1 output token, which the prefill gives, so that their prompts still load the
    /// server. Rows with 0 prompt tokens too are left out and counted.
    KeepAsPromptOnly,
    /// A trace with a failed row (0 response tokens) is refused.
    Error,
}

/// What to do with requests of the same second if the trace has times in whole seconds only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ties {
    /// All requests with the same whole second arrive at the start of that second.
    #[default]
    Keep,
    /// The requests of a second are spread evenly over it, as the transformation `spread` does with `tick_s = 1`.
    Spread,
}

/// Which turns of Spec-Bench's questions with several turns become requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Turns {
    /// Only the first turn of each question (number 0) becomes a request.
    #[default]
    First,
    /// All turns of each question, each as a separate request.
    All,
}

/// The order in which the rows of a trace give their lengths to the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sample {
    /// The rows are used in the order of the file. After the last row the first row is used again.
    #[default]
    InOrder,
    /// The rows are used in a random order; every row is used once before any is used again.
    Shuffle,
}
