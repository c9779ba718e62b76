//! Trace events in the JSON object form of Google's "Trace Event Format". Times are in microseconds. The file has one
//! event per line.

use foretoken_sim::Time;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::{self, Write};

/// One event of a timeline.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// The text that the viewer shows.
    pub name: String,
    /// The kind of event (the key `ph`, "phase", in the format): `X` for a span, `C` a counter, `i` an instant, `M`
    /// metadata.
    ph: &'static str,
    /// Start of the event, microseconds.
    ts: f64,
    /// Length of a span, microseconds; absent for other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Scope of an instant: `t` for its thread; absent for other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Map::is_empty")]
    args: Map<String, Value>,
}

/// A time in microseconds. For times up to two hours the result is exact to the picosecond.
fn micros(time: Time) -> f64 {
    time.0 as f64 / 1e6
}

/// The arguments of an event as a JSON object; empty if `args` is not an object.
fn object(args: Value) -> Map<String, Value> {
    match args {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

impl Event {
    /// A span from `start` to `end`. `on` is (process id, thread id).
    pub fn span(name: &str, on: (u32, u32), start: Time, end: Time, args: Value) -> Event {
        let dur = Some(micros(end.saturating_sub(start)));
        Event { name: name.into(), ph: "X", ts: micros(start), dur, s: None, pid: on.0, tid: on.1, args: object(args) }
    }

    /// New values of a counter.
    pub fn counter(name: &str, pid: u32, at: Time, values: Value) -> Event {
        Event { name: name.into(), ph: "C", ts: micros(at), dur: None, s: None, pid, tid: 0, args: object(values) }
    }

    /// An instant at the time `at`. `on` is (process id, thread id).
    pub fn instant(name: &str, on: (u32, u32), at: Time, args: Value) -> Event {
        let (pid, tid) = on;
        Event { name: name.into(), ph: "i", ts: micros(at), dur: None, s: Some("t"), pid, tid, args: object(args) }
    }

    /// Metadata of a process or a thread; `on` is (process id, thread id). `fact` is `process_name`, `thread_name` or
    /// `process_sort_index`.
    pub fn about(fact: &str, on: (u32, u32), args: Value) -> Event {
        Event { name: fact.into(), ph: "M", ts: 0.0, dur: None, s: None, pid: on.0, tid: on.1, args: object(args) }
    }
}

/// Writes a trace file: the events, and `about` as the file's metadata.
///
/// # Errors
/// `out` cannot be written.
pub fn write(out: &mut dyn Write, events: &[Event], about: &Value) -> io::Result<()> {
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{about},\"traceEvents\":[")?;
    for (i, event) in events.iter().enumerate() {
        out.write_all(if i == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, event)?;
    }
    out.write_all(b"\n]}\n")
}
