//! Detects the public format of a file by its header or first JSON line.

use crate::error::TraceError;
use crate::open::Lines;
use crate::readers::json::malformed;
use crate::truth::is_truth_table;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The request-trace formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFormat {
    /// BurstGPT CSV, releases 1 to 3 (Wang et al., KDD 2025): times, lengths, model, log type.
    #[serde(rename = "burstgpt")]
    BurstGpt,
    /// Mooncake JSON lines (Qin et al., FAST 2025): times in ms, lengths, ids of 512-token prefix blocks.
    Mooncake,
    /// Azure LLM inference CSV, 2023 (Patel et al., ISCA 2024) and 2024: wall-clock times, lengths.
    Azure,
    /// AdaSpec arrival CSV (Huang et al., SoCC 2025): times only.
    #[serde(rename = "adaspec")]
    AdaSpec,
    /// Spec-Bench requests (Xia et al., Findings of ACL 2024): CSV of lengths and categories, or JSON lines with
    /// recorded acceptance; no times.
    SpecBench,
    /// CSV of `num_prefill_tokens, num_decode_tokens` (Vidur, Etalon): lengths only.
    Lengths,
    /// CSV of `t_s, input_tokens, output_tokens`, and `category` where the file has it.
    Windows,
    /// CSV of `t_s, input_tokens, output_tokens, slo_ratio` (AdaServe artifact).
    #[serde(rename = "adaserve")]
    AdaServe,
    /// The output of `foretoken profile-acceptance`: lengths, families and recorded acceptance; no times.
    TruthTable,
}

use TraceFormat::{AdaServe, AdaSpec, Azure, BurstGpt, Lengths, Mooncake, SpecBench, TruthTable, Windows};

/// The columns that identify a format. The first entry with all columns present wins, so entries with more specific
/// columns come first.
const SIGNS: &[(&[&str], TraceFormat)] = &[
    (&["hash_ids"], Mooncake),
    (&["timestamp", "input_length", "output_length"], Mooncake),
    (&["question_id", "bits"], SpecBench),
    (&["question_id", "input_tokens", "output_tokens"], SpecBench),
    (&["TIMESTAMP", "ContextTokens"], Azure),
    (&["Timestamp", "Request tokens"], BurstGpt),
    (&["t_s", "slo_ratio"], AdaServe),
    (&["t_s", "input_tokens"], Windows),
    (&["num_prefill_tokens"], Lengths),
];

/// Columns of files that are tables of results or rates, not traces of requests.
const NOT_TRACES: &[(&str, &str)] = &[
    ("tokens_per_step", "tokens per verification step (tree drafting)"),
    ("accept_length", "published acceptance lengths"),
    ("rate_rps", "arrival rates per time window"),
];

impl TraceFormat {
    /// The name of every format, as written in TOML.
    pub const NAMES: [&'static str; 9] =
        ["burstgpt", "mooncake", "azure", "adaspec", "spec-bench", "lengths", "windows", "adaserve", "truth-table"];

    /// The format's name, as written in TOML.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The format with this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<TraceFormat> {
        [BurstGpt, Mooncake, Azure, AdaSpec, SpecBench, Lengths, Windows, AdaServe, TruthTable]
            .into_iter()
            .find(|f| f.name() == name)
    }

    /// Detects the format by the file's header or first JSON object. If no format fits, the error lists the columns
    /// found.
    pub fn detect(path: &Path) -> Result<TraceFormat, TraceError> {
        if is_truth_table(path) {
            return Ok(TruthTable);
        }
        let mut lines = Lines::open(path)?;
        let (line, first) = lines.next()?.map(|(line, text)| (line, text.to_owned())).unwrap_or_default();
        let first = first.trim_start_matches('\u{feff}');
        if let (true, Err(e)) = (first.starts_with('{'), serde_json::from_str::<serde_json::Value>(first)) {
            return Err(malformed(path, line, first, &e));
        }
        let columns = columns(first);
        let has = |name: &str| columns.iter().any(|c| c == name);
        if let Some((_, format)) = SIGNS.iter().find(|(names, _)| names.iter().all(|n| has(n))) {
            return Ok(*format);
        }
        if columns == ["Timestamp"] {
            return Ok(AdaSpec);
        }
        if let Some((_, what)) = NOT_TRACES.iter().find(|(name, _)| has(name)) {
            return Err(TraceError::file(path, format!("is a table of {what}, not a trace of requests"), ""));
        }
        let mut start: String = columns.join(", ");
        if let Some((cut, _)) = start.char_indices().nth(120) {
            start.truncate(cut);
        }
        let hint = format!(
            "a log of your own is read as CSV with the header t_s,input_tokens,output_tokens (seconds from the start, tokens); \
                 known formats are {}; name one with format = \"...\" if this file is one",
            Self::NAMES.join(", ")
        );
        Err(TraceError::file(path, format!("is of no known format: its first line has the columns [{start}]"), hint))
    }
}

/// The column names of a CSV header, or the keys of a JSON object.
fn columns(first: &str) -> Vec<String> {
    if let Ok(serde_json::Value::Object(object)) = serde_json::from_str(first) {
        return object.keys().cloned().collect();
    }
    first.split(',').map(|c| c.trim().trim_matches('"').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_serde() {
        for name in TraceFormat::NAMES {
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
