//! LiteLLM's spend logs (its table `LiteLLM_SpendLogs`), as CSV or as the JSON of `/spend/logs`: one row a request.
//!
//! Rows are in any order, usually the newest first, and are sorted by `startTime`. Rows that never reached a model are
//! left out: failures, answers of the gateway's own cache, and calls that make no text, such as embeddings.

use super::collector::{Collector, Names};
use super::columns::Clock;
use super::table::Table;
use super::trace::Trace;
use crate::error::TraceError;
use crate::trace_spec::TraceSpec;
use foretoken_sim::Request;

const NAMES: Names = Names { time: "startTime", prompt: "prompt_tokens", output: "completion_tokens" };
/// Kinds of calls that make no text, without the `a` of the asynchronous ones.
const NO_TEXT: [&str; 7] =
    ["embedding", "rerank", "moderation", "image_generation", "transcription", "speech", "image_edit"];

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let mut table = Table::open(&spec.path)?;
    let (time, prompt, output) = (table.column(NAMES.time)?, table.column(NAMES.prompt)?, table.column(NAMES.output)?);
    let call = table.column("call_type")?;
    let mut known = |name: &'static str| if table.has(name) { table.optional(name).map(Some) } else { Ok(None) };
    let (status, cached, model) = (known("status")?, known("cache_hit")?, known("model")?);
    if let (Some(_), None) = (&spec.model, model) {
        table.column("model")?;
    }
    collector.sorts();
    let mut clock = Clock::new(None, true);
    while table.next()? {
        let is = |column, value: &str| {
            let of = |column| table.text(column).map(|text| text.trim().eq_ignore_ascii_case(value));
            Option::map_or(column, Ok(false), of)
        };
        let kind = table.text(call)?.trim();
        if NO_TEXT.contains(&kind) || kind.strip_prefix('a').is_some_and(|kind| NO_TEXT.contains(&kind)) {
            collector.leave_out("calls that make no text left out");
            continue;
        }
        if is(status, "failure")? {
            collector.leave_out("failed requests left out");
            continue;
        }
        if is(cached, "true")? {
            collector.leave_out("answers of the gateway's cache left out");
            continue;
        }
        if let Some(model) = model
            && collector.is_of_other_model(table.text(model)?)
        {
            collector.skip();
            continue;
        }
        let request = Request::new(clock.read(&table, time)?, table.tokens(prompt)?, table.tokens(output)?);
        collector.at(table.line(), table.bytes(time));
        collector.push_or_failed(table.line(), request, NAMES)?;
    }
    collector.start_at_zero();
    collector.finish()
}
