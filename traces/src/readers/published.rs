//! Tables of published speculation results, as typed rows: SpecForge's acceptance lengths, and steps of tree drafting.
//!
//! They are reference values and not requests, so they are no [`crate::TraceFormat`].

use super::json;
use super::table::Table;
use crate::error::TraceError;
use crate::open::Lines;
use serde::Deserialize;
use std::path::Path;

/// One EAGLE-3 measurement that SpecForge published with its SpecBundle models.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecForgeRow {
    /// Name of the target model.
    pub model: String,
    /// Name of the data set.
    pub dataset: String,
    /// Number of requests that the server had at once in this measurement.
    pub batch_size: u32,
    /// Number of successive tokens that the draft model drafts for a request in a step.
    pub steps: u32,
    /// Number of guesses that the draft model expands at each depth of its tree; 1 for a chain.
    pub topk: u32,
    /// Number of draft tokens that the target verifies for a request in a step.
    pub num_draft_tokens: u32,
    /// Name of the draft model; `None` for the measurement without speculation.
    pub draft: Option<String>,
    /// Mean tokens emitted in a verification step, including the bonus token.
    pub accept_length: f64,
    /// Output tokens per second of the server in this measurement.
    pub output_throughput_tok_s: f64,
}

/// How many tokens one recorded turn of a benchmark question emitted in each step with tree drafting (EAGLE, Medusa).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TreeSteps {
    /// The drafting method that was recorded: `eagle` or `medusa`.
    pub method: String,
    /// Number of the question in the benchmark.
    pub question_id: u64,
    /// Category of the question.
    pub category: String,
    /// Index of the turn in the benchmark question, from 0.
    pub turn: u32,
    /// Number of output tokens of this turn of the question.
    pub output_tokens: u32,
    /// For each verification step of the turn, the number of accepted draft tokens + 1.
    pub tokens_per_step: Vec<u32>,
}

/// Reads the SpecForge summary CSV. Errors name line and column.
///
/// # Errors
/// The file cannot be read, a column is missing, or a number is malformed or out of range.
pub fn read_specforge(path: &Path) -> Result<Vec<SpecForgeRow>, TraceError> {
    let mut table = Table::open(path)?;
    let (model, dataset, batch) = (table.column("model")?, table.column("dataset")?, table.column("batch_size")?);
    let (steps, topk, tokens) = (table.column("steps")?, table.column("topk")?, table.column("num_draft_tokens")?);
    let (draft, length) = (table.column("draft")?, table.column("accept_length")?);
    let throughput = table.column("output_throughput_tok_s")?;
    let mut rows = Vec::new();
    while table.next()? {
        rows.push(SpecForgeRow {
            model: table.text(model)?.to_owned(),
            dataset: table.text(dataset)?.to_owned(),
            batch_size: table.tokens(batch)?,
            steps: table.tokens(steps)?,
            topk: table.tokens(topk)?,
            num_draft_tokens: table.tokens(tokens)?,
            draft: Some(table.text(draft)?).filter(|d| *d != "none").map(str::to_owned),
            accept_length: table.finite(length)?,
            output_throughput_tok_s: table.finite(throughput)?,
        });
    }
    Ok(rows)
}

/// Reads the tree-steps JSON lines. Errors name line and key.
///
/// # Errors
/// The file cannot be read, a line is not a JSON object, or a key is missing or has a value of another type.
pub fn read_tree_steps(path: &Path) -> Result<Vec<TreeSteps>, TraceError> {
    const KEYS: [&str; 6] = ["method", "question_id", "category", "turn", "output_tokens", "tokens_per_step"];
    let mut lines = Lines::open(path)?;
    let mut rows = Vec::new();
    while let Some((line, text)) = lines.next()? {
        rows.push(json::row(path, line, text, &KEYS)?);
    }
    Ok(rows)
}
