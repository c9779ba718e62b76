//! Spec-Bench requests (Xia et al., Findings of ACL 2024), and the recording of which draft tokens were right in them.
//!
//! The CSV has lengths and category of each question's turns. The JSON lines have the same fields and one character for
//! each output position: `1` if the draft token was right, `0` if it was wrong, `?` if nothing was drafted there.
//! Either file can be read alone. If an `accept` file (JSON lines) is given with the CSV, each turn of the CSV takes
//! its recording, and the output length of the recorded run, from the line with the same question and turn.

use super::collector::{Collector, Names};
use super::json;
use super::table::Table;
use super::trace::Trace;
use crate::error::TraceError;
use crate::open::Lines;
use crate::trace_spec::{TraceSpec, Turns};
use foretoken_sim::{Recording, Request, Time};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const NAMES: Names = Names { time: "", prompt: "input_tokens", output: "output_tokens" };
const KEYS: [&str; 7] = ["question_id", "category", "turn", "input_tokens", "output_tokens", "accepted", "bits"];

/// One line of the JSON-lines file: one turn of a Spec-Bench question, with the recording of which draft tokens were
/// right.
#[derive(Deserialize)]
struct Turn {
    question_id: u64,
    category: String,
    turn: u32,
    input_tokens: u32,
    output_tokens: u32,
    accepted: Vec<u32>,
    bits: String,
}

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    collector.gives.arrivals = false;
    let json = Lines::open(&spec.path)?.next()?.is_some_and(|(_, text)| text.starts_with('{'));
    if json { read_turns(spec, collector) } else { read_requests(spec, collector) }
}

/// Reads a JSON-lines file of Spec-Bench turns. Each line also says which draft tokens of the turn were right.
fn read_turns(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    if spec.accept.is_some() {
        return Err(TraceError::file(&spec.path, "has recorded acceptance itself", "remove accept"));
    }
    let mut lines = Lines::open(&spec.path)?;
    while let Some((line, text)) = lines.next()? {
        let turn: Turn = json::row(&spec.path, line, text, &KEYS)?;
        let recording = recording(&spec.path, line, &turn)?;
        if turn.turn > 0 && spec.turns.unwrap_or_default() == Turns::First {
            collector.skip();
            continue;
        }
        let mut request = Request::new(Time::ZERO, turn.input_tokens, turn.output_tokens);
        request.category = collector.category(line, &turn.category)?;
        request.recording = Some(collector.recording(recording));
        collector.push(line, request, NAMES)?;
    }
    collector.finish()
}

/// Reads a CSV of Spec-Bench requests. If the option `accept` names a file, each request takes from it which of its
/// draft tokens were right.
fn read_requests(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let mut recorded = match &spec.accept {
        Some(path) => read_accept(path)?,
        None => BTreeMap::new(),
    };
    collector.files.extend(spec.accept.clone());
    let mut table = Table::open(&spec.path)?;
    let (question, turn) = (table.column("question_id")?, table.column("turn")?);
    let (category, prompt, output) =
        (table.column("category")?, table.column(NAMES.prompt)?, table.column(NAMES.output)?);
    while table.next()? {
        let key = (u64::from(table.tokens(question)?), table.tokens(turn)?);
        if key.1 > 0 && spec.turns.unwrap_or_default() == Turns::First {
            collector.skip();
            continue;
        }
        let mut request = Request::new(Time::ZERO, table.tokens(prompt)?, table.tokens(output)?);
        request.category = collector.category(table.line(), table.text(category)?)?;
        if let Some(path) = &spec.accept {
            let recording = recorded.remove(&key).ok_or_else(|| {
                let what = format!("has no recording of question {}, turn {}", key.0, key.1);
                TraceError::file(path, what, format!("is it the acceptance of {}?", spec.path.display()))
            })?;
            // Greedy runs with and without speculation can differ where two tokens are nearly equally likely in half
            // precision. Which draft tokens were right belongs to the recorded output, so the recorded output's length
            // is used.
            let length = recording.bits.len() as u32;
            collector.relengthened += u64::from(length != request.output_len);
            request.output_len = length;
            request.recording = Some(collector.recording(recording));
        }
        collector.push(table.line(), request, NAMES)?;
    }
    collector.finish()
}

fn read_accept(path: &Path) -> Result<BTreeMap<(u64, u32), Recording>, TraceError> {
    let mut lines = Lines::open(path)?;
    let mut turns = BTreeMap::new();
    while let Some((line, text)) = lines.next()? {
        let turn: Turn = json::row(path, line, text, &KEYS)?;
        turns.insert((turn.question_id, turn.turn), recording(path, line, &turn)?);
    }
    Ok(turns)
}

/// Converts a turn's `bits` (one character per output position: was the draft token right?) to a recording. Refuses
/// bits that disagree with the turn's steps: step i emits `accepted[i]` right draft tokens, each with bit `1`, and then
/// one token that the target chose. The bit of that token is `0` if a draft token was wrong there, or `?` if all were
/// right, so that there was no draft token to compare.
fn recording(path: &Path, line: u64, turn: &Turn) -> Result<Recording, TraceError> {
    let bad = |key: &str, what: String| TraceError::row(path, line, Some(key), what, "the recording is damaged");
    let emitted: u64 = turn.accepted.iter().map(|&a| u64::from(a) + 1).sum();
    if turn.bits.len() != turn.output_tokens as usize || emitted != u64::from(turn.output_tokens) {
        let what =
            format!("{} bits and {emitted} emitted tokens for {} output tokens", turn.bits.len(), turn.output_tokens);
        return Err(bad("bits", what));
    }
    let bits = turn.bits.bytes().map(|b| match b {
        b'1' => Ok(Some(true)),
        b'0' => Ok(Some(false)),
        b'?' => Ok(None),
        other => Err(bad("bits", format!("'{}' is none of 0, 1, ?", char::from(other)))),
    });
    let bits: Vec<Option<bool>> = bits.collect::<Result<_, _>>()?;
    let mut accepted_before = vec![0; bits.len()];
    let mut at = 0;
    for &accepted in &turn.accepted {
        let end = at + accepted as usize;
        if bits[at..end].iter().any(|b| *b != Some(true)) || bits[end] == Some(true) {
            return Err(bad("accepted", format!("the step at output position {at} disagrees with bits")));
        }
        if bits[end].is_none() {
            accepted_before[end] = u8::try_from(accepted).unwrap_or(u8::MAX);
        }
        at = end + 1;
    }
    Ok(Recording { bits, accepted_before, ..Recording::default() })
}
