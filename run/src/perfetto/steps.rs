//! The engine's rows in a timeline: steps with their passes, the prompts in these passes, and counters.

use super::event::Event;
use super::{ENGINE, REQUESTS, Recorded};
use foretoken_sim::{DeliverAt, StepRecord, Time};
use serde_json::{Value, json};

const STEPS: (u32, u32) = (ENGINE, 1);
const PREFILL: (u32, u32) = (ENGINE, 2);
const BEHIND: (u32, u32) = (ENGINE, 3);

/// The events that name the processes and rows of the timeline.
pub fn names(recorded: &Recorded) -> Vec<Event> {
    let engine = format!("engine: {} ({})", recorded.key, recorded.source);
    let named = |on, fact: &str, name: &str| Event::about(fact, on, json!({ "name": name }));
    let mut names = vec![
        named((ENGINE, 0), "process_name", &engine),
        Event::about("process_sort_index", (ENGINE, 0), json!({ "sort_index": 0 })),
        named(STEPS, "thread_name", if recorded.behind.is_some() { "steps" } else { "steps: draft, then verify" }),
        named(PREFILL, "thread_name", "prefill in the target pass"),
        named((REQUESTS, 0), "process_name", "requests"),
        Event::about("process_sort_index", (REQUESTS, 0), json!({ "sort_index": 1 })),
    ];
    if recorded.behind.is_some() {
        names.push(named(BEHIND, "thread_name", "drafts, for the next step"));
    }
    names
}

/// Returns (the row of a step's draft passes, their start and end, the start and end of the step's target pass). If
/// drafts are made at the end of a step, only their duration is recorded. Then they are drawn at the end of the step,
/// or after it if the step's tokens leave before the drafts are made. This is exact if the host takes no time.
fn passes(s: &StepRecord, behind: Option<DeliverAt>) -> ((u32, u32), (Time, Time), (Time, Time)) {
    let before = |end: Time, time: Time| end - time.min(end);
    match behind {
        None => (STEPS, (s.start, s.start + s.draft_time), (s.start + s.draft_time, s.end)),
        Some(DeliverAt::Sampled) => {
            let verified = before(s.end, s.verify_time).max(s.start);
            (BEHIND, (s.end, s.end + s.draft_time), (verified, s.end))
        }
        Some(DeliverAt::Drafted) => {
            let sampled = before(s.end, s.draft_time).max(s.start);
            let verified = before(sampled, s.verify_time).max(s.start);
            (BEHIND, (sampled, s.end), (verified, sampled))
        }
    }
}

/// Adds the events of `steps`, and the values of the counters at each step.
pub fn add(events: &mut Vec<Event>, steps: &[StepRecord], recorded: &Recorded) {
    let mut counters = Counters::default();
    for s in steps {
        let (row, drafts, verify) = passes(s, recorded.behind);
        events.push(Event::span("step", STEPS, s.start, s.end, numbers(s)));
        if s.draft_time.0 > 0 {
            // If drafts are made at the end of a step, `drafted` counts drafts of an earlier step, which this step
            // verified. So `drafted` is shown only if drafts are made at the start of a step.
            let mut passes = json!({ "draft_passes": s.draft_passes });
            if recorded.behind.is_none() {
                passes["drafted"] = s.drafted.into();
            }
            events.push(Event::span("draft", row, drafts.0, drafts.1, passes));
        }
        let target = match (s.verified, s.batch_size) {
            (0, 0) => "prefill",
            (0, _) => "decode",
            _ => "verify",
        };
        let outcome = json!({ "verified": s.verified, "accepted": s.accepted, "emitted": s.emitted });
        events.push(Event::span(target, STEPS, verify.0, verify.1, outcome));
        if s.preempted > 0 {
            events.push(Event::instant("preempted", STEPS, s.start, json!({ "requests": s.preempted })));
        }
        if s.chunks > 0 {
            let chunks = json!({ "chunks": s.chunks, "tokens": s.chunk_tokens });
            events.push(Event::span("prefill", PREFILL, verify.0, verify.1, chunks));
        }
        counters.add(events, s, recorded.blocks);
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

/// The last value of each counter. A value is written only if it differs from the last one.
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
