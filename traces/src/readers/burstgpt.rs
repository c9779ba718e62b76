//! BurstGPT CSV, all three releases (Wang et al., KDD 2025; HPMLL/BurstGPT).
//!
//! `Timestamp` is seconds since 0:00 of day 1 (whole in files 1 and 2, `x.0` in file 3). `Request tokens` and `Response
//! tokens` are the lengths. File 3 has the further columns `Session ID` and `Elapsed time`, so columns are found by
//! name.

use super::collector::{Collector, Names};
use super::table::Table;
use super::trace::Trace;
use crate::error::TraceError;
use crate::trace_spec::TraceSpec;
use foretoken_sim::Request;

const NAMES: Names = Names { time: "Timestamp", prompt: "Request tokens", output: "Response tokens" };

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let mut table = Table::open(&spec.path)?;
    let (time, prompt, output) = (table.column(NAMES.time)?, table.column(NAMES.prompt)?, table.column(NAMES.output)?);
    let model = spec.model.as_deref().map(|m| Ok((table.column("Model")?, m))).transpose()?;
    let log_type = spec.log_type.as_deref().map(|l| Ok((table.column("Log Type")?, l))).transpose()?;
    let filters: Vec<_> = model.into_iter().chain(log_type).collect();
    while table.next()? {
        if filters.iter().any(|&(column, wanted)| table.bytes(column) != wanted.as_bytes()) {
            collector.skip();
            continue;
        }
        let request = Request::new(table.seconds(time)?, table.tokens(prompt)?, table.tokens(output)?);
        collector.at(table.line(), table.bytes(time));
        collector.push_or_failed(table.line(), request, NAMES)?;
    }
    collector.finish()
}
