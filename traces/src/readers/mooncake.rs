//! Mooncake JSON lines (Qin et al., FAST 2025): `timestamp` in ms, `input_length`, `output_length`, `hash_ids`.
//!
//! Other tools write the same keys with blocks of other sizes (`block_size`), in another `unit`, or without `hash_ids`
//! (absent or empty): then no prefix is shared. A file of theirs with turns of sessions is read as `columns`.
//!
//! A hash id stands for a block of prompt tokens *and all tokens before the block*. So two requests share a prefix
//! if their lists begin with the same ids. Only the ids of full blocks are read: the last, partial block of a prompt is
//! never shared (docs/model.md 14).

use super::collector::{Collector, Names};
use super::trace::Trace;
use super::{json, number};
use crate::error::TraceError;
use crate::open::Lines;
use crate::trace_spec::{TimeUnit, TraceSpec};
use foretoken_sim::{Request, Time};
use serde::Deserialize;

/// Number of prompt tokens for which Mooncake's trace has one hash id.
pub(super) const BLOCK: u32 = 512;
const NAMES: Names = Names { time: "timestamp", prompt: "input_length", output: "output_length" };
const KEYS: [&str; 3] = ["timestamp", "input_length", "output_length"];

#[derive(Deserialize)]
struct Row {
    timestamp: serde_json::Number,
    input_length: u32,
    output_length: u32,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let mut lines = Lines::open(&spec.path)?;
    let block = spec.block_size.unwrap_or(BLOCK);
    collector.prefix_block(block);
    while let Some((line, text)) = lines.next()? {
        let mut row: Row = json::row(&spec.path, line, text, &KEYS).map_err(|e| explain(spec, line, text, e))?;
        let arrival = time(&row.timestamp, spec.unit).map_err(|(why, hint)| {
            let what = format!("{} {why}", row.timestamp);
            TraceError::row(&spec.path, line, Some(NAMES.time), what, hint)
        })?;
        let blocks = row.input_length.div_ceil(block) as usize;
        if !row.hash_ids.is_empty() && row.hash_ids.len() != blocks {
            let what = format!("has {} ids, but {} tokens are {blocks} blocks", row.hash_ids.len(), row.input_length);
            let hint = another_block(row.input_length, row.hash_ids.len(), block);
            return Err(TraceError::row(&spec.path, line, Some("hash_ids"), what, hint));
        }
        row.hash_ids.truncate((row.input_length / block) as usize);
        let request = Request { prefix: row.hash_ids, ..Request::new(arrival, row.input_length, row.output_length) };
        collector.at(line, row.timestamp.to_string().as_bytes());
        collector.push(line, request, NAMES)?;
    }
    collector.finish()
}

/// What to do about a prompt of `tokens` tokens with `ids` ids, which does not have blocks of `block` tokens.
pub(super) fn another_block(tokens: u32, ids: usize, block: u32) -> String {
    let fits = |size: &u32| tokens.div_ceil(*size) as usize == ids;
    match (0..16).map(|power| 1 << power).find(fits) {
        Some(size) => format!("one id stands for {block} prompt tokens; with block_size = {size} the numbers agree"),
        None => format!("one id stands for {block} prompt tokens; block_size sets another number"),
    }
}

/// The error about a line that lacks a time, if the line is a further turn of a conversation.
fn explain(spec: &TraceSpec, line: u64, text: &str, error: TraceError) -> TraceError {
    let keys: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
    let Some(key) = ["delay", "session_id"].into_iter().find(|key| keys.contains_key(*key)) else { return error };
    if keys.contains_key(NAMES.time) {
        return error;
    }
    let what = "is a further turn of a session, which has no time of its own";
    let hint = "name the columns of sessions: format = \"columns\", columns = { arrival = \"timestamp\", prompt = \
                \"input_length\", output = \"output_length\", prefix = \"hash_ids\", session = \"session_id\", delay = \
                \"delay\", unit = \"ms\" }";
    TraceError::row(&spec.path, line, Some(key), what, hint)
}

/// The time of a `timestamp` in `unit` (default: ms), or what is wrong with it and what the user can do.
fn time(value: &serde_json::Number, unit: Option<TimeUnit>) -> Result<Time, (number::Bad, String)> {
    let text = value.to_string();
    if unit.is_none() && value.as_f64().is_some_and(|ms| ms.fract() != 0.0) {
        let hint = "Mooncake's times are whole milliseconds: set unit = \"s\" or unit = \"ms\"";
        return Err(("is no whole number of milliseconds", hint.into()));
    }
    let unit = unit.unwrap_or(TimeUnit::Ms);
    let bad = |why| {
        let hint = match why {
            number::TOO_LATE => {
                "a log with times since 1970 is read with columns = { arrival = \"timestamp\", prompt = \
                                 \"input_length\", output = \"output_length\", unit = \"ms\" }"
                    .to_owned()
            }
            _ => format!("times count from the start; their unit is {}", unit.name()),
        };
        (why, hint)
    };
    let ps = number::picoseconds(text.as_bytes(), unit.places()).map_err(bad)?;
    match u64::try_from(ps) {
        Ok(ps) => Ok(Time(ps)),
        Err(_) if ps < 0 => Err(bad("is negative")),
        Err(_) => Err(bad(number::TOO_LATE)),
    }
}
