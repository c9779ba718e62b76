//! The device on which the engine core runs its steps, as `tests/vllm/README.md` describes it: when tokens are ready,
//! which passes the drafter makes, and which draft tokens may be accepted.

use crate::chance::{accepted, proposed};
use crate::scheduler::{Output, Scheduler};
use crate::workload::{Release, Workload};
use std::collections::HashMap;

/// The result of a step on the test's stand-in for a device.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The time at which the host has the step's sampled tokens, µs.
    pub ready: i64,
    /// Number of sampled tokens of each scheduled request of the step.
    pub sampled: Vec<i64>,
    /// Number of draft tokens of each scheduled request of the step, as the device reports it to the scheduler.
    pub drafts: Vec<i64>,
}

pub struct Device<'a> {
    w: &'a Workload,
    /// The time at which the device has no more work queued, µs.
    free: i64,
    /// Number of tokens sampled so far for each request.
    sampled: HashMap<usize, i64>,
    /// For each request, the number of its draft tokens that may be accepted. Padding in place of draft tokens is never
    /// accepted.
    real: HashMap<usize, i64>,
}

impl<'a> Device<'a> {
    pub fn new(w: &'a Workload) -> Device<'a> {
        Device { w, free: 0, sampled: HashMap::new(), real: HashMap::new() }
    }

    /// Queues the passes of a step on the device at time `now`, µs. Returns the result of the step.
    pub fn run(&mut self, s: &Scheduler, out: &Output, now: i64) -> Answer {
        let (w, tokens) = (self.w, out.tokens());
        if tokens == 0 {
            return Answer::default();
        }
        self.free = self.free.max(now) + 1000 + 7 * tokens;
        let sampled = self.sample(s, out);
        let mut answer = Answer { ready: self.free, sampled, drafts: Vec::new() };
        if w.k > 0 {
            let k = if out.skip_drafts { 0 } else { out.k };
            let longest = out.entries.iter().map(|entry| s.r(entry.id).computed).max().unwrap();
            let fits = w.runner == 2 || longest + w.k + i64::from(w.drafter == "dflash") <= w.length;
            answer.drafts = self.propose(s, out, k, fits);
            answer.ready = self.draft(s, tokens, out.entries.len() as i64, k, fits, now);
        }
        answer
    }

    fn sample(&mut self, s: &Scheduler, out: &Output) -> Vec<i64> {
        let mut tokens = Vec::new();
        for entry in &out.entries {
            if entry.admitted.is_some() {
                self.real.insert(entry.id, 0);
            }
            if s.r(entry.id).chunk {
                tokens.push(0);
                continue;
            }
            let at = self.sampled.entry(entry.id).or_default();
            let drafts = entry.drafts.min(self.real.get(&entry.id).copied().unwrap_or(0));
            let count = 1 + accepted(self.w.seed, self.w.accept, entry.id, *at, drafts);
            *at += count;
            tokens.push(count);
        }
        tokens
    }

    fn propose(&mut self, s: &Scheduler, out: &Output, k: i64, fits: bool) -> Vec<i64> {
        let (w, mut told) = (self.w, Vec::new());
        if w.runner == 1 && w.asynchronous {
            self.real.clear();
        }
        for entry in &out.entries {
            let chunk = s.r(entry.id).chunk;
            let mut count = k;
            if w.lengths == "request" && !chunk {
                count = proposed(w.seed, w.k, entry.id, self.sampled[&entry.id]).min(k);
            }
            let real = if fits && !chunk { count } else { 0 };
            self.real.insert(entry.id, real);
            told.push(match (fits, w.runner) {
                (false, _) => w.k,
                (true, 2) => k,
                (true, _) => real,
            });
        }
        told
    }

    /// Queues the drafter's passes. Returns the time at which the host has the sampled tokens, µs.
    fn draft(&mut self, s: &Scheduler, tokens: i64, requests: i64, k: i64, fits: bool, now: i64) -> i64 {
        let sampled = self.free;
        if !fits {
            return sampled;
        }
        if self.w.drafter == "ngram" && self.w.runner == 1 {
            return sampled.max(now) + 60;
        }
        for size in self.passes(s, tokens, requests, k) {
            self.free += 130 + 3 * size;
        }
        if self.w.runner == 2 { sampled } else { self.free }
    }

    /// The draft passes of a step: the number of tokens of each pass.
    fn passes(&self, s: &Scheduler, t: i64, r: i64, k: i64) -> Vec<i64> {
        let (w, most) = (self.w, self.w.k);
        let then = |first: i64, more: i64| {
            let mut passes = vec![first];
            (0..more).for_each(|_| passes.push(r));
            passes
        };
        match (w.drafter.as_str(), w.runner) {
            ("ngram", _) => vec![0],
            ("dflash" | "dspark", 2) if k == 0 && w.release == Release::V0_33 => vec![t],
            ("dspark", _) if !w.fill_in => vec![t, r * most],
            ("dflash" | "dspark", 2) => vec![t, r * (most + 1)],
            ("dflash", _) => vec![t, r * (k + 1)],
            ("draft-model", _) if w.parallel => vec![t + r * most],
            (_, _) if w.parallel => vec![t + r * (most - 1)],
            (_, 2) if s.d.modules => vec![t; most as usize],
            ("draft-model", 2) => then(t + r, most - 1),
            ("draft-model", _) => then(t + r, k - 1),
            _ => then(t, k - 1),
        }
    }
}
