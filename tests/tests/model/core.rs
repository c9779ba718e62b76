//! vLLM's engine core (`engine/core.py`): its loop over `step` or `step_with_batch_queue`, with one simulated clock in
//! µs.

use crate::alone::IDLE_STEPS;
use crate::device::{Answer, Device};
use crate::lines::Lines;
use crate::scheduler::{Output, Scheduler, Seen};
use crate::workload::Workload;
use std::collections::VecDeque;

struct Core<'a> {
    w: &'a Workload,
    s: Scheduler<'a>,
    device: Device<'a>,
    lines: Lines,
    now: i64,
    /// Requests of the workload that have not arrived yet.
    coming: VecDeque<usize>,
    queue: VecDeque<(Output, Answer)>,
    /// Number of successive calls of vLLM's `update_from_output` that gave no token and saw no new arrival.
    idle: i64,
    /// For each of the last two calls of vLLM's `schedule`: did it schedule and preempt no request?
    empty: [bool; 2],
}

/// Runs a workload with the model, a second implementation of vLLM's engine core. Returns the lines of its recording
/// (`tests/vllm/README.md`) and counts of what happened. The lines are `D` (derived settings), `S` (calls of
/// `schedule`), `U` (calls of `update_from_output`), `X` (refused requests) and `E` (end).
pub fn run(w: &Workload) -> (String, Seen) {
    let refused: Vec<usize> = (0..w.asks.len()).filter(|&id| w.asks[id].prompt >= w.length).collect();
    let s = Scheduler::new(w);
    let mut lines = Lines::new(w.k);
    lines.text += &s.d.line(w);
    let coming = (0..w.asks.len()).filter(|id| !refused.contains(id)).collect();
    let (device, queue) = (Device::new(w), VecDeque::new());
    let mut core = Core { w, s, device, lines, now: 0, coming, queue, idle: 0, empty: [false; 2] };
    let kind = core.run();
    core.lines.end(&refused, kind);
    (core.lines.text, core.s.seen)
}

impl Core<'_> {
    fn run(&mut self) -> &'static str {
        loop {
            if !self.has_requests() && self.queue.is_empty() {
                match self.coming.front() {
                    Some(&id) => self.now = self.now.max(self.w.asks[id].arrival),
                    None => return "done",
                }
            }
            while let Some(&id) = self.coming.front()
                && self.w.asks[id].arrival <= self.now
            {
                self.coming.pop_front();
                self.s.add(id);
                self.idle = 0;
            }
            let executed = if self.w.asynchronous { self.step_with_batch_queue() } else { self.step() };
            if self.s.failed {
                return "assertion";
            }
            if !executed && self.has_requests() {
                self.now += 1000;
            }
            if self.coming.is_empty() && self.idle >= IDLE_STEPS {
                return "endless";
            }
            if self.coming.is_empty() && self.empty == [true, true] && self.s.unfinished() {
                return "stuck";
            }
        }
    }

    /// True if a request is unfinished, or if a request ended after the last call of `schedule`.
    fn has_requests(&self) -> bool {
        self.s.unfinished() || !self.s.finished.is_empty()
    }

    fn schedule(&mut self) -> (Output, Answer) {
        let start = self.now;
        let out = self.s.schedule();
        self.now += 90;
        self.lines.schedule(&self.s, &out, start);
        self.lines.end_line(&[], self.now);
        self.empty = [self.empty[1], out.entries.is_empty() && out.preempted.is_empty()];
        let answer = self.device.run(&self.s, &out, self.now);
        (out, answer)
    }

    fn update(&mut self, out: &Output, answer: &Answer) {
        self.now = self.now.max(answer.ready);
        let start = self.now;
        let (fates, ended) = self.s.update(out, &answer.sampled);
        self.now += 40;
        self.lines.update(&self.s, &fates, start);
        self.lines.end_line(&ended, self.now);
        let any = fates.iter().any(|fate| fate.tokens > 0);
        self.idle = if any { 0 } else { self.idle + 1 };
    }

    fn step(&mut self) -> bool {
        if !self.has_requests() {
            return false;
        }
        let (out, answer) = self.schedule();
        if self.s.failed {
            return true;
        }
        self.update(&out, &answer);
        let executed = out.tokens() > 0;
        if executed && self.w.k > 0 {
            self.s.update_drafts(&out, &answer.drafts);
        }
        executed
    }

    fn step_with_batch_queue(&mut self) -> bool {
        let mut executed = false;
        if self.has_requests() {
            let (out, answer) = self.schedule();
            executed = out.tokens() > 0;
            self.queue.push_back((out, answer));
            if self.queue.len() < 2 && (executed || self.has_requests()) {
                return executed;
            }
        }
        if let Some((out, answer)) = self.queue.pop_front() {
            self.update(&out, &answer);
        }
        executed
    }
}
