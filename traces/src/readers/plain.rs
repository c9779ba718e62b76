//! Reads three simple CSV formats. `lengths` has prompt and output lengths only. `windows` has arrival times, too.
//! `adaserve` has arrival times, lengths, and an SLO for each request.

use super::collector::{Collector, Names};
use super::table::Table;
use super::trace::Trace;
use crate::error::TraceError;
use crate::trace_spec::TraceSpec;
use foretoken_sim::{Request, Time};

const WINDOW: Names = Names { time: "t_s", prompt: "input_tokens", output: "output_tokens" };

/// Reads the columns `num_prefill_tokens` and `num_decode_tokens` (Vidur, Etalon); there are no times.
pub(super) fn read_lengths(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let names = Names { time: "", prompt: "num_prefill_tokens", output: "num_decode_tokens" };
    let mut table = Table::open(&spec.path)?;
    let (prompt, output) = (table.column(names.prompt)?, table.column(names.output)?);
    collector.gives.arrivals = false;
    while table.next()? {
        let request = Request::new(Time::ZERO, table.tokens(prompt)?, table.tokens(output)?);
        collector.push(table.line(), request, names)?;
    }
    collector.finish()
}

/// Reads the columns `t_s` (seconds), `input_tokens` and `output_tokens`, and the column `category` if the file has it.
pub(super) fn read_windows(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let mut table = Table::open(&spec.path)?;
    let (time, prompt, output) =
        (table.column(WINDOW.time)?, table.column(WINDOW.prompt)?, table.column(WINDOW.output)?);
    let category = if table.has("category") { Some(table.column("category")?) } else { None };
    while table.next()? {
        let mut request = Request::new(table.seconds(time)?, table.tokens(prompt)?, table.tokens(output)?);
        if let Some(category) = category {
            request.category = collector.category(table.line(), table.text(category)?)?;
        }
        collector.at(table.line(), table.bytes(time));
        collector.push(table.line(), request, WINDOW)?;
    }
    collector.finish()
}

/// Reads the columns `t_s` (seconds), `input_tokens`, `output_tokens` and `slo_ratio` (AdaServe artifact). A positive
/// `slo_ratio` is a bound on a request's time per output token, as a multiple of the time per output token of an
/// unloaded server. A negative `slo_ratio` is an absolute bound in ms.
pub(super) fn read_adaserve(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let mut table = Table::open(&spec.path)?;
    let (time, prompt, output) =
        (table.column(WINDOW.time)?, table.column(WINDOW.prompt)?, table.column(WINDOW.output)?);
    let slo = table.column("slo_ratio")?;
    while table.next()? {
        let mut request = Request::new(table.seconds(time)?, table.tokens(prompt)?, table.tokens(output)?);
        let ratio = table.finite(slo)?;
        request.slo_tpot_s = Some(match collector.baseline_tpot_s {
            _ if ratio == 0.0 => return Err(table.bad(slo, "is no limit: positive is a multiple, negative is ms")),
            _ if ratio < 0.0 => -ratio / 1e3,
            Some(baseline) => ratio * baseline,
            None => return Err(table.bad(slo, "is a multiple of the unloaded time per token, and that is not given")),
        });
        collector.at(table.line(), table.bytes(time));
        collector.push(table.line(), request, WINDOW)?;
    }
    collector.finish()
}
