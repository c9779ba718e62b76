//! Mooncake JSON lines (Qin et al., FAST 2025): `timestamp` in ms, `input_length`, `output_length`, `hash_ids`.
//!
//! A hash id stands for a block of 512 prompt tokens *and all tokens before the block*. So two requests share a prefix
//! if their lists begin with the same ids. Only the ids of full blocks are read: the last, partial block of a prompt is
//! never shared (docs/model.md 14).

use super::collector::{Collector, Names};
use super::trace::Trace;
use super::{json, number};
use crate::error::TraceError;
use crate::open::Lines;
use crate::trace_spec::TraceSpec;
use foretoken_sim::{Request, Time};
use serde::Deserialize;

/// Number of prompt tokens for which Mooncake's trace has one hash id.
const BLOCK: u32 = 512;
const NAMES: Names = Names { time: "timestamp", prompt: "input_length", output: "output_length" };
const KEYS: [&str; 4] = ["timestamp", "input_length", "output_length", "hash_ids"];

#[derive(Deserialize)]
struct Row {
    timestamp: serde_json::Number,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let mut lines = Lines::open(&spec.path)?;
    collector.prefix_block(BLOCK);
    while let Some((line, text)) = lines.next()? {
        let mut row: Row = json::row(&spec.path, line, text, &KEYS)?;
        let arrival = milliseconds(&row.timestamp).map_err(|why| {
            let what = format!("{} {why}", row.timestamp);
            TraceError::row(&spec.path, line, Some(NAMES.time), what, "times are milliseconds since the start")
        })?;
        let blocks = row.input_length.div_ceil(BLOCK) as usize;
        if row.hash_ids.len() != blocks {
            let what = format!("has {} ids, but {} tokens are {blocks} blocks", row.hash_ids.len(), row.input_length);
            return Err(TraceError::row(
                &spec.path,
                line,
                Some("hash_ids"),
                what,
                "one id stands for 512 prompt tokens",
            ));
        }
        row.hash_ids.truncate((row.input_length / BLOCK) as usize);
        let request = Request { prefix: row.hash_ids, ..Request::new(arrival, row.input_length, row.output_length) };
        collector.push(line, request, NAMES)?;
    }
    collector.finish()
}

fn milliseconds(value: &serde_json::Number) -> Result<Time, number::Bad> {
    if let Some(ms) = value.as_u64() {
        return ms.checked_mul(1_000_000_000).map(Time).ok_or("is beyond the engine's clock of 213 days");
    }
    let ms = value.as_f64().ok_or("is not a number")?;
    number::seconds((ms / 1e3).to_string().as_bytes())
}
