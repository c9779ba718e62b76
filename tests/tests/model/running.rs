//! The first half of vLLM's `schedule`: it schedules running requests, and preempts some if KV blocks are missing.

use crate::scheduler::{Entry, Scheduler, Step};
use crate::workload::Release;

impl Scheduler<'_> {
    pub(crate) fn schedule_running(&mut self, step: &mut Step) {
        let mut at = 0;
        while at < self.running.len() && step.token_budget > 0 && step.input_budget > self.d.slots {
            let id = self.running[at];
            let new = self.wanted(id, step);
            if new == 0 {
                at += 1;
                continue;
            }
            if !self.find_room(id, new, &mut at, step) {
                let alone = self.w.by_priority && self.w.release == Release::V0_33 && self.r(id).preempted;
                if alone {
                    // The request was preempted because its priority is the lowest. The requests after it in the list
                    // of running requests are still scheduled.
                    continue;
                }
                break;
            }
            let r = self.r(id);
            let spec = (new + r.computed - r.tokens() - r.placeholders).clamp(0, r.spec);
            step.prefill_scheduled |= r.chunk;
            step.drafts_needed |= !self.drafts_unused(id, r.computed, new);
            step.out.entries.push(Entry { id, tokens: new, drafts: spec, admitted: None, padded: false });
            step.token_budget -= new;
            step.input_budget -= new + self.d.slots;
            self.m(id).spec = 0;
            at += 1;
        }
    }

    /// Number of tokens that a running request gets in this step; 0 if it gets none.
    fn wanted(&self, id: usize, step: &Step) -> i64 {
        let r = self.r(id);
        let surely_ends = r.placeholders > 0 && r.computed + 2 - r.placeholders >= r.ask.prompt + r.ask.outputs;
        if surely_ends || (step.defer_prefills && r.chunk) {
            return 0;
        }
        let mut new = r.tokens() + r.spec + r.placeholders - r.computed;
        if 0 < step.threshold && step.threshold < new {
            new = step.threshold;
        }
        new = new.min(step.token_budget).min(step.input_budget - self.d.slots);
        new = new.min(self.w.length - r.computed - 1);
        self.off_the_end(id, r.computed, new)
    }

    /// Allocates KV blocks for `new` tokens of the request `id`. Preempts requests until there are enough free blocks.
    /// Returns false if `id` itself was preempted. `at` is the index of `id` in the list of running requests; it
    /// decreases if a request before it is preempted.
    fn find_room(&mut self, id: usize, new: i64, at: &mut usize, step: &mut Step) -> bool {
        loop {
            let r = self.r(id);
            let tokens = (r.computed + new + self.d.lookahead).min(self.w.length);
            let need = (cdiv(tokens, self.w.block_size) - r.table.len() as i64).max(0);
            if need <= self.pool.num_free() {
                let blocks = self.pool.take(need);
                let known = self.r(id).tokens().min(self.r(id).computed + new);
                self.m(id).table.extend(blocks);
                self.cache(id, known);
                return true;
            }
            let place = self.victim();
            let victim = self.running.remove(place);
            if self.w.by_priority && place < *at {
                *at -= 1;
            }
            if let Some(index) = step.out.entries.iter().position(|entry| entry.id == victim) {
                let entry = step.out.entries.remove(index);
                step.token_budget += entry.tokens;
                step.input_budget += entry.tokens + self.d.slots;
            }
            self.preempt(victim);
            step.out.preempted.push(victim);
            if victim == id {
                return false;
            }
        }
    }

    /// The index, in the list of running requests, of the request to preempt. With priorities, it is the request with
    /// the highest priority number. Among equal numbers it is the last to arrive, and among equal arrivals the first in
    /// the list. Without priorities, it is the last in the list.
    fn victim(&self) -> usize {
        let mut worst = self.running.len() - 1;
        if self.w.by_priority {
            worst = 0;
            for place in 1..self.running.len() {
                let rank = |place: usize| {
                    let ask = &self.r(self.running[place]).ask;
                    (ask.priority, ask.arrival)
                };
                if rank(place) > rank(worst) {
                    worst = place;
                }
            }
        }
        worst
    }

    /// vLLM's `_preempt_request`: the request loses its KV blocks and waits again.
    fn preempt(&mut self, id: usize) {
        self.free(id);
        let r = self.m(id);
        r.preempted = true;
        r.computed = 0;
        r.spec = 0;
        r.stale = r.in_flight;
        r.placeholders = 0;
        self.waiting.push_front(id);
        self.seen.preemptions += 1;
    }
}

pub(crate) fn cdiv(value: i64, by: i64) -> i64 {
    (value + by - 1) / by
}
