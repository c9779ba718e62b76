//! The engine's rows: steps with their passes, the prompts in them, and counters.

use super::event::Event;
use super::{ENGINE, REQUESTS, Recorded};
use foretoken_sim::StepRecord;
use serde_json::{Value, json};

const STEPS: (u32, u32) = (ENGINE, 1);
const PREFILL: (u32, u32) = (ENGINE, 2);

/// What processes and threads are called.
pub fn names(recorded: &Recorded) -> Vec<Event> {
    let engine = format!("engine: {} ({})", recorded.key, recorded.source);
    let named = |on, fact: &str, name: &str| Event::about(fact, on, json!({ "name": name }));
    vec![
        named((ENGINE, 0), "process_name", &engine),
        Event::about("process_sort_index", (ENGINE, 0), json!({ "sort_index": 0 })),
        named(STEPS, "thread_name", "steps: draft, then verify"),
        named(PREFILL, "thread_name", "prefill in the target pass"),
        named((REQUESTS, 0), "process_name", "requests"),
        Event::about("process_sort_index", (REQUESTS, 0), json!({ "sort_index": 1 })),
    ]
}

/// Adds steps and counters.
pub fn add(events: &mut Vec<Event>, steps: &[StepRecord], blocks: Option<u32>) {
    let mut counters = Counters::default();
    for s in steps {
        let drafted_at = s.start + s.draft_time;
        events.push(Event::span("step", STEPS, s.start, s.end, numbers(s)));
        if s.draft_time.0 > 0 {
            let passes = json!({ "draft_passes": s.draft_passes, "drafted": s.drafted });
            events.push(Event::span("draft", STEPS, s.start, drafted_at, passes));
        }
        let target = match (s.verified, s.batch_size) {
            (0, 0) => "prefill",
            (0, _) => "decode",
            _ => "verify",
        };
        let outcome = json!({ "verified": s.verified, "accepted": s.accepted, "emitted": s.emitted });
        events.push(Event::span(target, STEPS, drafted_at, s.end, outcome));
        if s.preempted > 0 {
            events.push(Event::instant("preempted", STEPS, s.start, json!({ "requests": s.preempted })));
        }
        if s.chunks > 0 {
            let chunks = json!({ "chunks": s.chunks, "tokens": s.chunk_tokens });
            events.push(Event::span("prefill", PREFILL, drafted_at, s.end, chunks));
        }
        counters.add(events, s, blocks);
    }
}

fn numbers(s: &StepRecord) -> Value {
    json!({
        "step": s.step,
        "batch_size": s.batch_size,
        "context_tokens": s.context,
        "chunks": s.chunks,
        "waiting": s.waiting,
        "used_blocks": s.used_blocks,
    })
}

/// The counters' last values: what did not change is not said again.
#[derive(Default)]
struct Counters {
    last: [Option<Value>; 5],
}

impl Counters {
    fn add(&mut self, events: &mut Vec<Event>, s: &StepRecord, blocks: Option<u32>) {
        let share = |of: u32, all: u32| f64::from(of) / f64::from(all);
        let kv = match blocks {
            Some(all) => ("free KV blocks", json!({ "free": all.saturating_sub(s.used_blocks) })),
            None => ("used KV blocks", json!({ "used": s.used_blocks })),
        };
        let drafting = (s.batch_size > 0).then(|| json!({ "tokens": share(s.drafted, s.batch_size) }));
        let acceptance = (s.verified > 0).then(|| json!({ "rate": share(s.accepted, s.verified) }));
        let now = [
            ("running", Some(json!({ "decode": s.batch_size, "prefill": s.chunks }))),
            ("waiting", Some(json!({ "requests": s.waiting }))),
            (kv.0, Some(kv.1)),
            ("draft length", drafting),
            ("acceptance", acceptance),
        ];
        for ((name, value), last) in now.into_iter().zip(&mut self.last) {
            if let Some(value) = value.filter(|v| last.as_ref() != Some(v)) {
                events.push(Event::counter(name, ENGINE, s.start, value.clone()));
                *last = Some(value);
            }
        }
    }
}
