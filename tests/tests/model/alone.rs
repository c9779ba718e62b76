//! Runs a workload with the scheduler of the model (our second implementation of vLLM's scheduler) alone, without an
//! engine core. `tests/vllm/README.md` describes the simulated clock.

use crate::chance::{accepted, proposed};
use crate::lines::Lines;
use crate::scheduler::{Output, Scheduler, Seen};
use crate::workload::Workload;

/// A run ends after this number of successive steps without a sampled token or an arrival.
pub const IDLE_STEPS: i64 = 100;

/// Runs a workload with the model, a second implementation of vLLM's scheduler. Returns the lines of its recording
/// (`tests/vllm/README.md`) and counts of what happened. The lines are `D` (derived settings), `S` (steps), `X`
/// (refused requests) and `E` (end).
pub fn run(w: &Workload) -> (String, Seen) {
    let mut s = Scheduler::new(w);
    let mut lines = Lines::new(w.k);
    lines.text += &s.d.line(w);
    let (mut now, mut idle, mut arrived, mut refused) = (0, 0, 0, Vec::new());
    let kind = loop {
        let came = arrived;
        while arrived < w.asks.len() && w.asks[arrived].arrival <= now {
            match w.asks[arrived].prompt >= w.length {
                true => refused.push(arrived),
                false => s.add(arrived),
            }
            arrived += 1;
        }
        if arrived > came {
            idle = 0;
        }
        let next = w.asks.get(arrived).map(|ask| ask.arrival);
        if !s.unfinished() {
            match next {
                Some(at) => now = at,
                None => break "done",
            }
            continue;
        }
        if w.step_start {
            s.ask_for_drafts();
        }
        let out = s.schedule();
        if s.failed {
            break "assertion";
        }
        if out.entries.is_empty() && out.preempted.is_empty() {
            match next {
                Some(at) => now = at,
                None => break "stuck",
            }
            continue;
        }
        lines.schedule(&s, &out, now);
        now += 1000 + 7 * out.tokens();
        let (ended, sampled) = output_and_drafts(&mut s, &out);
        lines.end_line(&ended, now);
        idle = if sampled { 0 } else { idle + 1 };
        if idle == IDLE_STEPS {
            break "endless";
        }
    };
    lines.end(&refused, kind);
    (lines.text, s.seen)
}

/// Applies the sampled tokens of the step and then the draft tokens of the drafter. Returns the requests that ended,
/// and true if a request sampled a token.
fn output_and_drafts(s: &mut Scheduler, out: &Output) -> (Vec<usize>, bool) {
    let w = s.w;
    let mut sampled = Vec::new();
    for entry in &out.entries {
        let r = s.r(entry.id);
        let drafts = if entry.padded { 0 } else { entry.drafts };
        let count = 1 + accepted(w.seed, w.accept, entry.id, r.outputs, drafts);
        sampled.push(if r.chunk { 0 } else { count });
    }
    let (_, ended) = s.update(out, &sampled);
    let mut drafts = Vec::new();
    for entry in &out.entries {
        let outputs = s.r(entry.id).outputs;
        drafts.push(match w.lengths.as_str() {
            _ if out.skip_drafts || w.k == 0 => 0,
            "request" => proposed(w.seed, w.k, entry.id, outputs),
            _ => out.k,
        });
    }
    if !w.step_start {
        s.update_drafts(out, &drafts);
    }
    (ended, sampled.iter().any(|&count| count > 0))
}
