//! Detects the public format of a file by its CSV header, by its first JSON line or by its first bytes. Only truth
//! tables (which draft tokens were right on recorded outputs) have such first bytes.

use crate::error::TraceError;
use crate::open::Lines;
use crate::readers::objects::Objects;
use crate::truth::is_truth_table;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The table of trace formats. It calls the macro `$use` with one row for each format. A row has the format's
/// documentation, the enum variant, the name in TOML, the reading function in [`readers`](crate::readers), and the
/// signs. A sign is a set of columns that identifies a file as of this format.
macro_rules! formats {
    ($use:ident) => {
        $use! {
            /// BurstGPT CSV, releases 1 to 3 (Wang et al., KDD 2025): times, lengths, model, log type.
            BurstGpt, "burstgpt", burstgpt::read, [["Timestamp", "Request tokens"]];
            /// Mooncake JSON lines (Qin et al., FAST 2025): times in ms, lengths, ids of 512-token prefix blocks. Files
            /// of other tools with the same keys have blocks of another `block_size`, another `unit`, or no ids.
            Mooncake, "mooncake", mooncake::read, [["hash_ids"], ["timestamp", "input_length", "output_length"]];
            /// Spans of OpenTelemetry in JSON (OTLP, or as its Python SDK prints them) that follow its conventions for
            /// generative AI: times and lengths of calls of models.
            OpenTelemetry, "opentelemetry", opentelemetry::read, [["resourceSpans"], ["resource_spans"], ["context", "start_time", "attributes"]];
            /// LiteLLM's spend logs, CSV or JSON: times and lengths of the requests that reached a model.
            LiteLlm, "litellm", litellm::read, [["call_type", "startTime", "prompt_tokens", "completion_tokens"]];
            /// Azure LLM inference CSV, 2023 (Patel et al., ISCA 2024) and 2024: wall-clock times, lengths.
            Azure, "azure", azure::read, [["TIMESTAMP", "ContextTokens"]];
            /// AdaSpec arrival CSV (Huang et al., SoCC 2025): times only. Its header is one column, `Timestamp`.
            AdaSpec, "adaspec", adaspec::read, [];
            /// Spec-Bench requests (Xia et al., Findings of ACL 2024): CSV of lengths and categories, or JSON lines
            /// that also say which draft tokens were right; no times.
            SpecBench, "spec-bench", specbench::read, [["question_id", "bits"], ["question_id", "input_tokens", "output_tokens"]];
            /// JSON lines of SpecDecode-Bench (arXiv 2601.11580): lengths, and how many draft tokens of two drafters
            /// would be accepted at each output position; no times.
            SpecDecodeBench, "specdecode-bench", specdecode_bench::read, [["acc_eagle", "acc_ngram"]];
            /// CSV of `num_prefill_tokens, num_decode_tokens` (Vidur, Etalon): lengths only.
            Lengths, "lengths", plain::read_lengths, [["num_prefill_tokens"]];
            /// CSV of `t_s, input_tokens, output_tokens`, and `category` where the file has it.
            Windows, "windows", plain::read_windows, [["t_s", "input_tokens"]];
            /// CSV of `t_s, input_tokens, output_tokens, slo_ratio` (AdaServe artifact).
            AdaServe, "adaserve", plain::read_adaserve, [["t_s", "input_tokens", "slo_ratio"]];
            /// The output of `foretoken profile-acceptance`: lengths, families (kinds of tasks) and which draft tokens
            /// were right; no times. Its first bytes identify it.
            TruthTable, "truth-table", truth_table::read, [];
            /// Log of any tool, CSV or JSON, with times, lengths, categories; the option `columns` names its columns.
            /// The format is never detected, so the workload must name it.
            Columns, "columns", columns::read, [];
        }
    };
}

/// Makes the enum [`TraceFormat`] of trace formats from the table of formats.
macro_rules! types {
    ($($(#[doc = $says:literal])+ $format:ident, $name:literal, $file:ident::$read:ident, [$([$($column:literal),+]),*];)+) => {
        /// The formats of request traces that can be read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
        pub enum TraceFormat {
            $($(#[doc = $says])+ #[serde(rename = $name)] $format,)+
        }

        /// Every trace format with its name in TOML.
        const FORMATS: &[(&str, TraceFormat)] = &[$(($name, TraceFormat::$format)),+];

        /// Every sign (a set of columns that identifies a trace format), with the format that it identifies.
        const SIGNS: &[(&[&str], TraceFormat)] = &[$($((&[$($column),+], TraceFormat::$format),)*)+];
    };
}

formats!(types);
pub(crate) use formats;

/// Columns that show that a file is a table of results or rates and not a trace of requests. Each entry is (column,
/// what such a table contains).
const NOT_TRACES: &[(&str, &str)] = &[
    ("tokens_per_step", "tokens per verification step (tree drafting)"),
    ("accept_length", "published acceptance lengths"),
    ("rate_rps", "arrival rates per time window"),
];

impl TraceFormat {
    /// The name of every trace format, as written in TOML.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|(name, _)| *name)
    }

    /// The name of this trace format, as written in TOML.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(_, format)| *format == self).expect("every format has a row").0
    }

    /// The trace format with this name in TOML; `None` if no format has it.
    pub fn from_name(name: &str) -> Option<TraceFormat> {
        FORMATS.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    /// Detects the format of a file by its first bytes (truth tables, which say which draft tokens were right), its CSV
    /// header or its first JSON object. If no format fits, the error lists the columns of the first line.
    ///
    /// # Errors
    /// The file cannot be read. Or its first line begins a JSON object and is not valid JSON. Or its columns belong to
    /// a table that is no trace, or to no known format.
    pub fn detect(path: &Path) -> Result<TraceFormat, TraceError> {
        if is_truth_table(path) {
            return Ok(TraceFormat::TruthTable);
        }
        let mut lines = Lines::open(path)?;
        let first = lines.next()?.map(|(_, text)| text.to_owned()).unwrap_or_default();
        let first = first.trim_start_matches('\u{feff}');
        let columns = match first.starts_with(['{', '[']) {
            true => {
                Objects::open(path)?.next()?.map(|(_, object)| object.keys().cloned().collect()).unwrap_or_default()
            }
            false => columns(first),
        };
        let has = |name: &str| columns.iter().any(|c| c == name);
        // If several signs fit, the sign with the most columns wins: AdaServe's files have the columns of the format
        // `windows` and one more.
        let signs = SIGNS.iter().filter(|(sign, _)| sign.iter().all(|column| has(column)));
        if let Some((_, format)) = signs.max_by_key(|(sign, _)| sign.len()) {
            return Ok(*format);
        }
        if columns == ["Timestamp"] {
            return Ok(TraceFormat::AdaSpec);
        }
        if let Some((_, what)) = NOT_TRACES.iter().find(|(name, _)| has(name)) {
            return Err(TraceError::file(path, format!("is a table of {what}, not a trace of requests"), ""));
        }
        let mut start: String = columns.join(", ");
        if let Some((cut, _)) = start.char_indices().nth(120) {
            start.truncate(cut);
        }
        let hint = format!(
            "a log of your own is read as CSV with the header t_s,input_tokens,output_tokens (seconds from the start, tokens), \
                 or, CSV or JSON, with columns = {{ arrival = \"...\", prompt = \"...\", output = \"...\" }} in the experiment; \
                 known formats are {}; name one with format = \"...\" if this file is one",
            Self::names().collect::<Vec<_>>().join(", ")
        );
        Err(TraceError::file(path, format!("is of no known format: its first line has the columns [{start}]"), hint))
    }
}

/// The column names of a CSV header.
fn columns(first: &str) -> Vec<String> {
    first.split(',').map(|c| c.trim().trim_matches('"').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_serde() {
        for name in TraceFormat::names() {
            let format = TraceFormat::from_name(name).expect("every name has a format");
            assert_eq!(serde_json::to_string(&format).expect("serialises"), format!("\"{name}\""));
        }
    }

    #[test]
    fn unknown_files_are_refused_with_what_was_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.csv");
        std::fs::write(&path, "alpha,beta\n1,2\n").expect("written");
        let e = TraceFormat::detect(&path).expect_err("no format");
        assert!(e.to_string().contains("alpha, beta") && e.hint().contains("burstgpt"), "{e}");
        assert!(e.hint().contains("t_s,input_tokens,output_tokens"), "{}", e.hint());
        std::fs::write(&path, "model,accept_length\n").expect("written");
        assert!(TraceFormat::detect(&path).expect_err("no trace").to_string().contains("acceptance lengths"));
    }
}
