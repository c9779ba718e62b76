//! Azure LLM inference CSV (Patel et al., ISCA 2024; AzurePublicDataset, 2023 and the same columns of 2024).
//!
//! `TIMESTAMP` is wall-clock time with seven decimals. A time zone is accepted; without one the time is UTC. Arrival
//! times count from the earliest request that is kept.

use super::clock::{Origin, beyond_2100, instant};
use super::collector::{Collector, Names};
use super::table::Table;
use super::trace::Trace;
use crate::error::TraceError;
use crate::trace_spec::TraceSpec;
use foretoken_sim::Request;

const NAMES: Names = Names { time: "TIMESTAMP", prompt: "ContextTokens", output: "GeneratedTokens" };
const NOT_A_TIME: &str = "is not a time YYYY-MM-DD HH:MM:SS.fffffff";

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let mut table = Table::open(&spec.path)?;
    let (time, prompt, output) = (table.column(NAMES.time)?, table.column(NAMES.prompt)?, table.column(NAMES.output)?);
    let mut origin = Origin::with_margin(1);
    while table.next()? {
        let at = instant(table.bytes(time)).ok_or_else(|| table.bad(time, NOT_A_TIME))?;
        if beyond_2100(at) {
            return Err(table.bad(time, "is later than the year 2100"));
        }
        let at =
            origin.place(at).ok_or_else(|| table.bad(time, "is over a day before or 212 days after the first row"))?;
        collector.at(table.line(), table.bytes(time));
        collector.push(table.line(), Request::new(at, table.tokens(prompt)?, table.tokens(output)?), NAMES)?;
    }
    collector.start_at_zero();
    collector.finish()
}
