//! Spans of OpenTelemetry that follow its semantic conventions for generative AI, as JSON: OTLP, as the Collector's
//! file exporter writes it, or single spans, as the Python SDK prints them.
//!
//! A span is a request if it has token counts: `gen_ai.usage.input_tokens` and `gen_ai.usage.output_tokens`, or
//! `prompt_tokens` and `completion_tokens`, as these keys were called until release 1.27 of the conventions. Spans of
//! agents, tools and embeddings are no requests. If a span with counts has another such span below it, only the inner
//! one is read: a gateway and the server behind it write one span each for the same request.

use super::clock::{Origin, beyond_2100, instant};
use super::collector::{Collector, Names};
use super::objects::Objects;
use super::trace::Trace;
use crate::error::TraceError;
use crate::trace_spec::TraceSpec;
use foretoken_sim::{Request, Time};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

type Object = Map<String, Value>;

/// Names of the attributes with the numbers of tokens, the newest first.
const INPUT: [&str; 2] = ["gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"];
const OUTPUT: [&str; 2] = ["gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"];
/// Values of `gen_ai.operation.name` of calls of a model that makes text.
const CALLS: [&str; 3] = ["chat", "text_completion", "generate_content"];
const START: &str = "startTimeUnixNano";

/// A call of a model.
struct Call {
    line: u64,
    /// Its span, as an index of [`Spans::parents`], if the span has an id.
    span: Option<usize>,
    start: Time,
    said: String,
    tokens: [u32; 2],
}

/// The spans of a file that were read so far.
#[derive(Default)]
struct Spans {
    calls: Vec<Call>,
    /// The number of each span's id. An id can be known as a parent before its span is read.
    ids: HashMap<String, usize>,
    /// The parent of each span.
    parents: Vec<Option<usize>>,
}

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let mut objects = Objects::open(&spec.path)?;
    let mut spans = Spans::default();
    let mut origin = Origin::with_margin(106);
    while let Some((line, object)) = objects.next()? {
        for span in spans_of(&object) {
            spans.add(spec, line, span, &mut origin, &mut collector)?;
        }
    }
    collector.sorts();
    let outer = spans.outer();
    let names = Names { time: START, prompt: INPUT[0], output: OUTPUT[0] };
    for call in &spans.calls {
        if call.span.is_some_and(|span| outer.contains(&span)) {
            collector.leave_out("calls around other calls left out");
            continue;
        }
        collector.at(call.line, call.said.as_bytes());
        collector.push_or_failed(call.line, Request::new(call.start, call.tokens[0], call.tokens[1]), names)?;
    }
    collector.start_at_zero();
    collector.finish()
}

/// The spans of an object: of an OTLP message, or the object itself.
fn spans_of(object: &Object) -> Vec<&Object> {
    let Some(resources) = of(object, &["resourceSpans", "resource_spans"]) else { return vec![object] };
    let scopes = objects_in(resources).filter_map(|resource| {
        of(resource, &["scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans"])
    });
    let spans = scopes.flat_map(objects_in).filter_map(|scope| scope.get("spans"));
    spans.flat_map(objects_in).collect()
}

fn objects_in(value: &Value) -> impl Iterator<Item = &Object> {
    value.as_array().into_iter().flatten().filter_map(Value::as_object)
}

/// The value of the first of the keys that the object has.
fn of<'v>(object: &'v Object, keys: &[&str]) -> Option<&'v Value> {
    keys.iter().find_map(|key| object.get(*key))
}

impl Spans {
    fn add(
        &mut self,
        spec: &TraceSpec,
        line: u64,
        span: &Object,
        origin: &mut Origin,
        collector: &mut Collector,
    ) -> Result<(), TraceError> {
        let number = self.number(span);
        let attribute = |keys: &[&str]| keys.iter().find_map(|key| attribute(span, key));
        let text = |key: &str| attribute(&[key]).and_then(Value::as_str);
        if text("gen_ai.operation.name").is_some_and(|name| !CALLS.contains(&name)) {
            collector.leave_out("spans that call no model for text left out");
            return Ok(());
        }
        let (Some(input), Some(output)) = (attribute(&INPUT), attribute(&OUTPUT)) else {
            collector.leave_out(match text("gen_ai.operation.name") {
                Some(_) => "calls without numbers of tokens left out (failed, or not counted by the client)",
                None => "spans that call no model for text left out",
            });
            return Ok(());
        };
        let bad = |key: &str, value: &Value, why: &str| {
            let shown: String = value.to_string().chars().take(40).collect();
            TraceError::row(&spec.path, line, Some(key), format!("{shown} {why}"), "correct or remove the span")
        };
        let model = text("gen_ai.response.model").or(text("gen_ai.request.model"));
        if model.is_some_and(|model| collector.is_of_other_model(model)) || (model.is_none() && spec.model.is_some()) {
            collector.skip();
            return Ok(());
        }
        let tokens = |key, value: &Value| {
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
            number.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| bad(key, value, "is not a number of tokens"))
        };
        let tokens = [tokens(INPUT[0], input)?, tokens(OUTPUT[0], output)?];
        let value = of(span, &[START, "start_time_unix_nano", "start_time"]).unwrap_or(&Value::Null);
        let at = start(value).filter(|at| *at > 0).ok_or_else(|| bad(START, value, "is not the time of a span"))?;
        if beyond_2100(at) {
            return Err(bad(START, value, "is later than the year 2100: the unit is nanoseconds"));
        }
        let off_clock = "is over 106 days before or after the first span";
        let start = origin.place(at).ok_or_else(|| bad(START, value, off_clock))?;
        self.calls.push(Call { line, span: number, start, said: value.to_string(), tokens });
        Ok(())
    }

    /// The number of a span by its id, and keeps its parent. `None` if the span has no id.
    fn number(&mut self, span: &Object) -> Option<usize> {
        let context = span.get("context").and_then(Value::as_object).unwrap_or(span);
        let id = |object: &Object, keys: &[&str]| {
            of(object, keys).and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned)
        };
        let trace = id(context, &["traceId", "trace_id"]).unwrap_or_default();
        let own = id(context, &["spanId", "span_id"])?;
        let parent = id(span, &["parentSpanId", "parent_span_id", "parent_id"]);
        let own = self.number_of(format!("{trace} {own}"));
        if let Some(parent) = parent {
            self.parents[own] = Some(self.number_of(format!("{trace} {parent}")));
        }
        Some(own)
    }

    fn number_of(&mut self, id: String) -> usize {
        let next = self.parents.len();
        let number = *self.ids.entry(id).or_insert(next);
        if number == next {
            self.parents.push(None);
        }
        number
    }

    /// The spans that have a call below them.
    fn outer(&self) -> HashSet<usize> {
        let mut outer = HashSet::new();
        for call in &self.calls {
            let mut at = call.span.and_then(|span| self.parents[span]);
            // If a span is known to be outer, so are all spans around it.
            while let Some(span) = at.filter(|&span| outer.insert(span)) {
                at = self.parents[span];
            }
        }
        outer
    }
}

/// The value of a span's attribute. OTLP has a list of keys and typed values, the SDK an object.
fn attribute<'s>(span: &'s Object, key: &str) -> Option<&'s Value> {
    let attributes = span.get("attributes")?;
    if let Some(plain) = attributes.as_object() {
        return plain.get(key);
    }
    let entry = objects_in(attributes).find(|entry| entry.get("key").and_then(Value::as_str) == Some(key))?;
    let value = entry.get("value")?;
    value.as_object().map_or(Some(value), |typed| typed.values().next())
}

/// The time of a span, picoseconds since 1970: nanoseconds as a number or as a text of digits, or a text of date and
/// time.
fn start(value: &Value) -> Option<i128> {
    let nanoseconds = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    nanoseconds.map(|ns| i128::from(ns) * 1000).or_else(|| instant(value.as_str()?.as_bytes()))
}
