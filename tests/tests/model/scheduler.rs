//! vLLM's `Scheduler` and `AsyncScheduler` without their parts for encoders, connectors and structured output.

use crate::derived::Derived;
use crate::pool::Pool;
use crate::request::Request;
use crate::workload::Workload;
use std::collections::VecDeque;

/// A request that a step of the model schedules, with its tokens.
#[derive(Clone, Debug)]
pub struct Entry {
    pub id: usize,
    pub tokens: i64,
    pub drafts: i64,
    /// If the step admits the request, the number of its tokens that were computed before. Else `None`.
    pub admitted: Option<i64>,
    /// Are the request's draft tokens padding, so that none can be accepted?
    pub padded: bool,
}

/// What a call of `schedule` returns: the scheduled requests, the preempted requests, the draft length, and whether
/// drafting is skipped.
#[derive(Clone, Debug, Default)]
pub struct Output {
    pub entries: Vec<Entry>,
    pub preempted: Vec<usize>,
    pub k: i64,
    pub skip_drafts: bool,
}

impl Output {
    pub fn tokens(&self) -> i64 {
        self.entries.iter().map(|entry| entry.tokens).sum()
    }
}

/// Counts of events in the run of a workload, such as preemptions and prefix cache hits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub preemptions: u64,
    pub hits: u64,
    pub chunks: u64,
    pub stale: u64,
}

/// What a call of vLLM's `schedule` knows while it builds a step: the step so far, and what is left of its budgets.
pub(crate) struct Step {
    pub out: Output,
    pub token_budget: i64,
    pub input_budget: i64,
    pub threshold: i64,
    pub defer_prefills: bool,
    pub prefill_scheduled: bool,
    pub prefill_admitted: bool,
    pub drafts_needed: bool,
}

pub struct Scheduler<'a> {
    pub w: &'a Workload,
    pub d: Derived,
    /// All requests that were added to the scheduler; the index is the request's id.
    pub requests: Vec<Option<Request>>,
    pub waiting: VecDeque<usize>,
    pub running: Vec<usize>,
    pub pool: Pool,
    /// Ids of the requests that ended since the last call of `schedule`.
    pub finished: Vec<usize>,
    pub(crate) capacity_bound: bool,
    pub(crate) last_prefill_step: i64,
    pub(crate) executed_steps: i64,
    pub seen: Seen,
    /// Would an assertion of vLLM have failed in this run?
    pub failed: bool,
}

impl<'a> Scheduler<'a> {
    pub fn new(w: &'a Workload) -> Scheduler<'a> {
        let d = Derived::of(w);
        Scheduler {
            w,
            requests: vec![None; w.asks.len()],
            waiting: VecDeque::new(),
            running: Vec::new(),
            pool: Pool::new(w.blocks, w.caching),
            finished: Vec::new(),
            capacity_bound: false,
            last_prefill_step: -d.interval,
            executed_steps: 0,
            seen: Seen::default(),
            failed: false,
            d,
        }
    }

    pub fn add(&mut self, id: usize) {
        self.requests[id] = Some(Request::new(id, self.w.asks[id].clone()));
        self.waiting.push_back(id);
    }

    pub fn unfinished(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    pub fn r(&self, id: usize) -> &Request {
        self.requests[id].as_ref().unwrap()
    }

    pub(crate) fn m(&mut self, id: usize) -> &mut Request {
        self.requests[id].as_mut().unwrap()
    }

    pub fn schedule(&mut self) -> Output {
        let decodes = self.running.iter().any(|&id| !self.r(id).chunk);
        let due = self.executed_steps + 1 - self.last_prefill_step >= self.d.interval;
        let mut step = Step {
            out: Output::default(),
            token_budget: self.w.budget,
            input_budget: self.w.budget,
            threshold: self.threshold(),
            defer_prefills: self.d.interval > 1 && !self.capacity_bound && !due && decodes,
            prefill_scheduled: false,
            prefill_admitted: false,
            drafts_needed: !self.d.can_skip,
        };
        self.schedule_running(&mut step);
        if step.out.preempted.is_empty() {
            self.schedule_waiting(&mut step);
        }
        assert!(step.token_budget >= 0 && step.input_budget >= 0);
        let any = step.out.tokens() > 0;
        self.executed_steps += i64::from(any);
        if self.d.interval > 1 && (step.prefill_scheduled || step.prefill_admitted) {
            self.last_prefill_step = self.executed_steps;
        }
        step.out.k = self.w.k;
        if any && !self.d.table.is_empty() {
            step.out.k = self.d.table[step.out.entries.len()];
        }
        step.out.skip_drafts = !step.drafts_needed;
        self.after_schedule(&step.out);
        step.out
    }

    /// The most prompt tokens that a long prefill gets in this step; 0 for no limit.
    fn threshold(&self) -> i64 {
        let eligible = (self.running.len() + self.waiting.len()) as i64;
        match self.w.threshold {
            _ if eligible <= 1 => 0,
            0 => 0,
            threshold if self.w.adaptive => threshold.max(self.w.budget / eligible),
            threshold => threshold,
        }
    }

    /// vLLM's `_update_after_schedule`: counts the scheduled tokens as computed and in flight.
    fn after_schedule(&mut self, out: &Output) {
        let asynchronous = self.w.asynchronous;
        for entry in &out.entries {
            let r = self.m(entry.id);
            r.computed += entry.tokens;
            r.in_flight += entry.tokens;
            r.chunk = r.computed < r.tokens() + r.placeholders;
            if asynchronous && !r.chunk {
                r.placeholders += 1 + entry.drafts;
                r.spec = out.k;
            }
            if r.chunk {
                self.seen.chunks += 1;
            }
        }
        self.finished.clear();
    }

    /// vLLM's `_reserve_prefill_lookahead`: shortens a prefill chunk so that enough prompt tokens are left for the
    /// drafter's lookahead.
    pub(crate) fn off_the_end(&self, id: usize, computed: i64, new: i64) -> i64 {
        let remaining = self.r(id).tokens() - computed - new;
        let new = match 0 < remaining && remaining < self.d.prefill_lookahead {
            true => new - (self.d.prefill_lookahead - remaining),
            false => new,
        };
        new.max(0)
    }

    /// vLLM's `_drafts_unused`: does the request need no draft tokens after this step, because its prompt is not
    /// complete or because it ends?
    pub(crate) fn drafts_unused(&self, id: usize, computed: i64, new: i64) -> bool {
        let r = self.r(id);
        let least = r.outputs + 1 + i64::from(r.placeholders > 0);
        computed + new < r.tokens() || least >= r.ask.outputs
    }

    /// Puts the full KV blocks of the request's first `tokens` tokens into the prefix cache (vLLM's `cache_blocks`).
    pub(crate) fn cache(&mut self, id: usize, tokens: i64) {
        if !self.w.caching {
            return;
        }
        let (size, ahead, again) = (self.w.block_size, self.d.hash_lookahead, (self.d.prefill_lookahead - 1).max(0));
        let r = self.requests[id].as_mut().unwrap();
        let hashed = (r.tokens() - ahead).max(0) / size;
        let full = ((tokens - again).max(0) / size).min(hashed);
        while r.cached < full {
            let block = r.table[r.cached as usize];
            self.pool.cache(block, r.key((r.cached + 1) * size + ahead));
            r.cached += 1;
        }
    }

    /// Gives all KV blocks of a request back to the pool.
    pub(crate) fn free(&mut self, id: usize) {
        let r = self.requests[id].as_mut().unwrap();
        self.pool.give_back(&r.table);
        r.table.clear();
        r.cached = 0;
    }
}
