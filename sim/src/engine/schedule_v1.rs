//! vLLM V1's `schedule()` (policies.md 4.2): running requests first, in order, then waiting ones, first come first
//! served; preemption by recompute from the back; no admission in a step that preempted; head-of-line blocking.

use super::state::{Active, Waiting};
use super::{Drafter, Engine};
use crate::executor::Executor;
use crate::{MAX_TREE_TOKENS, Scheduler, Time};

impl<E: Executor, D: Drafter<E>> Engine<'_, E, D> {
    pub(super) fn schedule_v1(&mut self) {
        self.schedule_running();
        if self.preempted == 0 {
            self.admit_waiting(!self.config.chunked_prefill);
        }
        self.reject_hopeless();
    }

    /// Phase 1: gives every running request its tokens while the budget lasts.
    pub(super) fn schedule_running(&mut self) {
        let limit = if D::ACTIVE { self.longest_draft() } else { 0 };
        let mut at = self.schedule_roomy(limit);
        while at < self.running.len() && self.budget > 0 {
            let a = &self.running[at];
            let want = match a.prefilling {
                true => self.chunk(a.total - a.computed),
                false => 1 + draft_limit(a, limit, self.config.max_model_len),
            };
            let Some(new) = self.make_room(at, want.min(self.budget)) else { break };
            let a = &mut self.running[at];
            a.new = new;
            self.budget -= new;
            if a.prefilling {
                self.memory.register(a, a.computed + new);
            }
            at += 1;
        }
    }

    /// The most any request may draft now. A v0 decode step is of all running requests, so there the budget caps it.
    fn longest_draft(&self) -> u32 {
        let limit = match self.drafter.tree_tokens() {
            0 => self.drafter.limit().min(self.config.max_draft_len),
            tokens => tokens.min(MAX_TREE_TOKENS),
        };
        match self.config.scheduler {
            Scheduler::V1 => limit,
            Scheduler::V0PrefillFirst => {
                let each = self.budget / (self.running.len() as u32).max(1);
                limit.min(each.saturating_sub(1))
            }
        }
    }

    /// The common case of phase 1, kept tight: leading decodes with budget to spare, growing a block at most. Returns
    /// how many it scheduled.
    fn schedule_roomy(&mut self, limit: u32) -> usize {
        let max_model_len = self.config.max_model_len;
        let mut done = 0;
        for a in &mut self.running {
            let new = 1 + draft_limit(a, limit, max_model_len);
            if a.prefilling || new > self.budget || !self.memory.ensure(a, a.computed + new) {
                break;
            }
            a.new = new;
            self.budget -= new;
            done += 1;
        }
        done
    }

    fn chunk(&self, tokens: u32) -> u32 {
        match self.config.long_prefill_token_threshold {
            0 => tokens,
            threshold => tokens.min(threshold),
        }
    }

    /// Finds blocks for `new` tokens of the running request at `at`, preempting from the back. `None` when it had to
    /// go itself.
    fn make_room(&mut self, at: usize, new: u32) -> Option<u32> {
        loop {
            let a = &mut self.running[at];
            let (prefilling, computed) = (a.prefilling, a.computed);
            if self.memory.ensure(a, computed + new) {
                return Some(new);
            }
            if at + 1 < self.running.len() {
                self.preempt_last();
                continue;
            }
            if at > 0 {
                self.preempt_last();
                return None;
            }
            // Alone with the whole pool: first without lookahead, then it can never fit.
            if !prefilling && self.memory.ensure(&mut self.running[at], computed + 1) {
                return Some(1);
            }
            let mut a = self.running.pop().expect("the request at index 0");
            self.flush(&a);
            self.memory.release(&mut a);
            self.reject(a.id, self.executor.now());
            return None;
        }
    }

    /// Preemption by recompute: the last running request loses its KV and goes to the front of the waiting list.
    fn preempt_last(&mut self) {
        let mut a = self.running.pop().expect("a request to preempt");
        // Its full blocks stay findable until they are handed out again.
        self.memory.register(&a, a.computed);
        self.memory.release(&mut a);
        self.flush(&a);
        self.executor.preempted(a.id);
        self.out.records.preemptions[a.id as usize] += 1;
        self.preempted += 1;
        let (seen, may_draft) = (a.seen, a.may_draft);
        self.waiting.push_front(Waiting { id: a.id, emitted: a.emitted, last_emit: a.last_emit, seen, may_draft });
    }

    /// Phase 2: admits waiting requests while budget, sequences and blocks last. `whole`: no prompt is split, but what a
    /// preempted request recomputes is, since it may have outgrown the budget.
    pub(super) fn admit_waiting(&mut self, whole: bool) {
        while self.budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let Some(&head) = self.waiting.front() else { break };
            let mut a = self.activate(head);
            let found = self.memory.look_up(a.id, a.total);
            let want = a.total - found.cached;
            let whole = whole && head.emitted == 0;
            if whole && want > self.budget {
                break;
            }
            let new = if whole { want } else { self.chunk(want).min(self.budget) };
            if !self.memory.admit(&mut a, found, found.cached + new, !self.running.is_empty()) {
                break;
            }
            a.computed = found.cached;
            // The cache holds the draft's KV as well, but for the gaps it had.
            a.seen = found.cached.min(head.seen.max(a.total - a.emitted));
            a.new = new;
            let new_here = self.out.records.first_scheduled[a.id as usize] == Time::MAX;
            if D::ACTIVE && self.config.draft_prefill && new_here {
                a.may_draft &= self.drafter.drafts_for_next();
            }
            self.waiting.pop_front();
            self.budget -= new;
            self.first_scheduled(a.id, found.cached);
            self.running.push(a);
        }
    }

    fn activate(&self, w: Waiting) -> Active {
        let i = w.id as usize;
        let prompt = self.workload.prompt_len[i];
        let own = self.workload.slo_tpot_s.get(i).copied().unwrap_or(f64::INFINITY);
        Active {
            id: w.id,
            computed: 0,
            total: prompt + w.emitted,
            emitted: w.emitted,
            stop_at: self.workload.output_len[i].min(self.config.max_model_len - prompt),
            seen: 0,
            new: 0,
            room: 0,
            draft_blocks: 0,
            slot: 0,
            prefilling: true,
            may_draft: D::ACTIVE && w.may_draft,
            last_emit: w.last_emit,
            slo_tpot_s: if own.is_finite() { own } else { self.slo_tpot_s },
            rounds: 0,
            drafted: 0,
            verified: 0,
            accepted: 0,
        }
    }

    /// With nothing running, a head that was not admitted never will be.
    pub(super) fn reject_hopeless(&mut self) {
        if self.running.is_empty()
            && self.preempted == 0
            && let Some(head) = self.waiting.pop_front()
        {
            self.reject(head.id, self.executor.now());
        }
    }

    /// Adds what a request did since it was (re)admitted to its record.
    pub(super) fn flush(&mut self, a: &Active) {
        let (r, i) = (&mut self.out.records, a.id as usize);
        r.emitted[i] = a.emitted;
        r.rounds[i] += a.rounds;
        r.drafted[i] += a.drafted;
        r.verified[i] += a.verified;
        r.accepted[i] += a.accepted;
    }

    /// Ends a request that emitted its whole output.
    pub(super) fn finish_request(&mut self, at: usize, now: Time) {
        let mut a = self.running[at].clone();
        self.flush(&a);
        self.memory.release(&mut a);
        self.out.finish(a.id, now);
        self.executor.end(a.id);
        self.arrivals.ended(now);
    }

    /// `budget_charge = trimmed`: what selection freed goes to prompts that are being prefilled.
    pub(super) fn top_up_chunks(&mut self) {
        let decodes = self.work.columns.len();
        let verified: u32 = (0..decodes).map(|i| self.drafts.tokens(i).1 + 1).sum();
        // Not from what was charged: limits were lowered and requests left out since.
        let mut freed = self.config.max_num_batched_tokens - verified - self.work.prefill.tokens as u32;
        self.work.clear_chunks();
        let threshold = self.config.long_prefill_token_threshold;
        for a in self.running.iter_mut().filter(|a| a.prefilling) {
            let left = a.total - a.computed - a.new;
            let allowed = if threshold > 0 { threshold.saturating_sub(a.new) } else { u32::MAX };
            let extra = left.min(freed).min(allowed);
            if extra > 0 && self.memory.ensure(a, a.computed + a.new + extra) {
                a.new += extra;
                freed -= extra;
                self.memory.register(a, a.computed + a.new);
            }
            if a.new > 0 {
                self.work.push_chunk(a);
            }
        }
    }
}

/// The most a request may draft now. One position is the new token's, and vLLM keeps one below `max_model_len`
/// (policies.md 4.2).
#[inline]
fn draft_limit(a: &Active, limit: u32, max_model_len: u32) -> u32 {
    if a.may_draft { limit.min((max_model_len - 1).saturating_sub(a.computed + 1)) } else { 0 }
}
