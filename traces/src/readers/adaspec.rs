//! AdaSpec's arrival CSV (Huang et al., SoCC 2025): one `Timestamp` column in seconds, no lengths.

use super::collector::{Collector, Names};
use super::table::Table;
use super::trace::Trace;
use crate::error::TraceError;
use crate::trace_spec::TraceSpec;
use foretoken_sim::Request;

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let names = Names { time: "Timestamp", prompt: "", output: "" };
    let mut table = Table::open(&spec.path)?;
    let time = table.column(names.time)?;
    collector.gives.lengths = false;
    while table.next()? {
        collector.at(table.line(), table.bytes(time));
        collector.push(table.line(), Request::new(table.seconds(time)?, 1, 1), names)?;
    }
    collector.finish()
}
