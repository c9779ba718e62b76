//! Events of a timeline in the JSON object form of Google's "Trace Event Format", which Perfetto opens. Times are in
//! microseconds. The file has one event per line.

use foretoken_sim::Time;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::{self, Write};

#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// The text that the viewer shows for the event.
    pub name: String,
    /// The kind of event (the key `ph`, "phase", in the format): `X` for a span, `C` a counter, `i` an instant, `s`,
    /// `t` and `f` the start, a stop and the end of an arrow, `M` metadata.
    ph: &'static str,
    /// Time at which the event starts in the timeline, microseconds.
    ts: f64,
    /// Length of a span, microseconds; absent for other kinds of events.
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Scope of an instant (an event without length): `t` for its thread; absent for other kinds of events.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    /// The id that connects the start, the stops and the end of an arrow; absent for other kinds of events.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// To which span the end of an arrow points: `e` for the span that is open at the time of the arrow's end; absent
    /// for other kinds of events.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    /// The category of an arrow, which the format requires; absent for other kinds of events.
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Map::is_empty")]
    args: Map<String, Value>,
}

/// A simulated time in microseconds. For times up to two hours the result is exact to the picosecond.
fn micros(time: Time) -> f64 {
    time.0 as f64 / 1e6
}

/// The arguments of a timeline's event as a JSON object; empty if `args` is not an object.
fn object(args: Value) -> Map<String, Value> {
    match args {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

impl Event {
    /// An event of the kind `ph` at the time `at`; `on` is (process id, thread id). All optional fields are absent.
    fn new(name: &str, ph: &'static str, on: (u32, u32), at: Time, args: Value) -> Event {
        let (ts, args) = (micros(at), object(args));
        Event {
            name: name.into(),
            ph,
            ts,
            dur: None,
            s: None,
            id: None,
            bp: None,
            cat: None,
            pid: on.0,
            tid: on.1,
            args,
        }
    }

    /// An event that lasts from `start` to `end`, which the viewer draws as a bar. `on` is (process id, thread id).
    pub fn span(name: &str, on: (u32, u32), start: Time, end: Time, args: Value) -> Event {
        Event { dur: Some(micros(end.saturating_sub(start))), ..Event::new(name, "X", on, start, args) }
    }

    /// An event that gives the counter `name` of process `pid` new values at the time `at`.
    pub fn counter(name: &str, pid: u32, at: Time, values: Value) -> Event {
        Event::new(name, "C", (pid, 0), at, values)
    }

    /// An event without length at the time `at`. `on` is (process id, thread id).
    pub fn instant(name: &str, on: (u32, u32), at: Time, args: Value) -> Event {
        Event { s: Some("t"), ..Event::new(name, "i", on, at, args) }
    }

    /// The start of the arrow with the number `id`, in the span that is open at the time `at`. `on` is (process id,
    /// thread id).
    pub fn arrow_start(name: &str, on: (u32, u32), at: Time, id: u64) -> Event {
        Event { id: Some(id), cat: Some("request"), ..Event::new(name, "s", on, at, Value::Null) }
    }

    /// A stop of the arrow with the number `id`, on its way between two spans; the arguments are as for
    /// [`arrow_start`](Event::arrow_start).
    pub fn arrow_on(name: &str, on: (u32, u32), at: Time, id: u64) -> Event {
        Event { bp: Some("e"), ph: "t", ..Event::arrow_start(name, on, at, id) }
    }

    /// The end of the arrow with the number `id`; the arguments are as for [`arrow_start`](Event::arrow_start).
    pub fn arrow_end(name: &str, on: (u32, u32), at: Time, id: u64) -> Event {
        Event { bp: Some("e"), ph: "f", ..Event::arrow_start(name, on, at, id) }
    }

    /// A fact about a process or a thread of the timeline; `on` is (process id, thread id). `fact` is `process_name`,
    /// `thread_name` or `process_sort_index`.
    pub fn about(fact: &str, on: (u32, u32), args: Value) -> Event {
        Event::new(fact, "M", on, Time::ZERO, args)
    }
}

/// Writes a timeline's trace file: its `events`, and `about` as the file's metadata.
pub fn write(out: &mut dyn Write, events: &[Event], about: &Value) -> io::Result<()> {
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{about},\"traceEvents\":[")?;
    for (i, event) in events.iter().enumerate() {
        out.write_all(if i == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, event)?;
    }
    out.write_all(b"\n]}\n")
}
