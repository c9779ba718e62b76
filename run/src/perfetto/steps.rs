//! The engine's rows in a timeline: steps with their passes, the prompts in these passes, and counters.

use super::event::Event;
use super::recorded::Recorded;
use foretoken_sim::{DeliverAt, StepRecord, Time};
use serde_json::{Value, json};

/// (Process id, thread id) of the timeline's row that shows the steps of the engine with the process id `pid`.
pub fn row(pid: u32) -> (u32, u32) {
    (pid, 1)
}

fn prefill(pid: u32) -> (u32, u32) {
    (pid, 2)
}

fn behind(pid: u32) -> (u32, u32) {
    (pid, 3)
}

/// Adds the names of an engine's process and of its rows to the timeline. `title`: the name of the process; `index`:
/// its place among the processes; `is_behind`: are draft tokens made at the end of a step?
pub fn names(events: &mut Vec<Event>, pid: u32, title: &str, index: u32, is_behind: bool) {
    let named = |on, fact: &str, name: &str| Event::about(fact, on, json!({ "name": name }));
    events.extend([
        named((pid, 0), "process_name", title),
        Event::about("process_sort_index", (pid, 0), json!({ "sort_index": index })),
        named(row(pid), "thread_name", if is_behind { "steps" } else { "steps: draft, then verify" }),
        named(prefill(pid), "thread_name", "prefill in the target pass"),
    ]);
}

/// The event that names the timeline's row that shows the draft passes at the end of steps.
pub fn name_of_behind(pid: u32) -> Event {
    Event::about("thread_name", behind(pid), json!({ "name": "drafts, for the next step" }))
}

/// Returns (the row of a step's draft passes, their start and end, the start and end of the step's target pass). If
/// draft passes run at the end of a step, only their duration is recorded. Then they are drawn at the end of the step,
/// or after it if the step's output tokens leave before the draft passes run. These times are exact if the host takes
/// no time.
fn passes(s: &StepRecord, delivers: Option<DeliverAt>, pid: u32) -> ((u32, u32), (Time, Time), (Time, Time)) {
    let before = |end: Time, time: Time| end - time.min(end);
    match delivers {
        None => (row(pid), (s.start, s.start + s.draft_time), (s.start + s.draft_time, s.end)),
        Some(DeliverAt::Sampled) => {
            let verified = before(s.end, s.verify_time).max(s.start);
            (behind(pid), (s.end, s.end + s.draft_time), (verified, s.end))
        }
        Some(DeliverAt::Drafted) => {
            let sampled = before(s.end, s.draft_time).max(s.start);
            let verified = before(sampled, s.verify_time).max(s.start);
            (behind(pid), (sampled, s.end), (verified, sampled))
        }
    }
}

/// Adds the events of the steps of the engine with the process id `pid`, and the values of its counters at each step.
pub fn add(events: &mut Vec<Event>, steps: &[StepRecord], recorded: &Recorded, pid: u32) {
    let mut counters = Counters::default();
    for s in steps {
        let (drafting, drafts, verify) = passes(s, recorded.behind, pid);
        events.push(Event::span("step", row(pid), s.start, s.end, numbers(s)));
        if s.draft_time.0 > 0 {
            // If draft tokens are made at the end of a step, `drafted` counts draft tokens of an earlier step, which
            // this step verified. So `drafted` is shown only if draft tokens are made at the start of a step.
            let mut passes = json!({ "draft_passes": s.draft_passes });
            if recorded.behind.is_none() {
                passes["drafted"] = s.drafted.into();
            }
            events.push(Event::span("draft", drafting, drafts.0, drafts.1, passes));
        }
        let target = match (s.verified, s.batch_size) {
            (0, 0) => "prefill",
            (0, _) => "decode",
            _ => "verify",
        };
        let outcome = json!({ "verified": s.verified, "accepted": s.accepted, "emitted": s.emitted });
        events.push(Event::span(target, row(pid), verify.0, verify.1, outcome));
        if s.preempted > 0 {
            events.push(Event::instant("preempted", row(pid), s.start, json!({ "requests": s.preempted })));
        }
        if s.chunks > 0 {
            let chunks = json!({ "chunks": s.chunks, "tokens": s.chunk_tokens });
            events.push(Event::span("prefill", prefill(pid), verify.0, verify.1, chunks));
        }
        counters.add(events, s, recorded.blocks, pid);
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

/// The counters of the engine in a timeline, such as KV use, with the last value that was written for each. A value is
/// written only if it differs from the last one.
#[derive(Default)]
struct Counters {
    last: [Option<Value>; 5],
}

impl Counters {
    fn add(&mut self, events: &mut Vec<Event>, s: &StepRecord, blocks: Option<u32>, pid: u32) {
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
                events.push(Event::counter(name, pid, s.start, value.clone()));
                *last = Some(value);
            }
        }
    }
}
