//! The second half of vLLM's `schedule`: it admits waiting requests.

use crate::running::cdiv;
use crate::scheduler::{Entry, Scheduler, Step};
use crate::workload::Release;

/// What the scheduler does with the first waiting request.
enum Verdict {
    /// The waiting request is scheduled with `new` tokens. If `padded` is true, all but one of them are padding in
    /// place of draft tokens.
    Admit { new: i64, padded: bool },
    /// The waiting request goes on waiting, and the next waiting request is looked at.
    PassOver,
    /// The waiting request goes on waiting, and no other request is admitted in this step.
    Stop,
}

impl Scheduler<'_> {
    pub(crate) fn schedule_waiting(&mut self, step: &mut Step) {
        let scheduled = !step.out.entries.is_empty();
        let mut skipped = Vec::new();
        while step.token_budget > 0 && step.input_budget > self.d.slots {
            if self.running.len() as i64 >= self.d.active {
                break;
            }
            let Some(place) = self.head() else { break };
            let id = self.waiting[place];
            if self.r(id).stale > 0 {
                self.waiting.remove(place);
                skipped.push(id);
                continue;
            }
            let hits = self.hits(id);
            let computed = hits.len() as i64 * self.w.block_size;
            let (new, padded) = match self.verdict(id, computed, scheduled, step) {
                Verdict::Admit { new, padded } => (new, padded),
                Verdict::PassOver => {
                    self.waiting.remove(place);
                    skipped.push(id);
                    continue;
                }
                Verdict::Stop => break,
            };
            if !self.allocate(id, &hits, computed, new) {
                break;
            }
            self.failed |= padded && new != 1 + self.w.k;
            self.waiting.remove(place);
            self.running.push(id);
            self.seen.hits += u64::from(computed > 0);
            step.token_budget -= new;
            step.input_budget -= new + self.d.slots;
            step.prefill_admitted |= computed < self.r(id).tokens() - 1;
            step.drafts_needed |= !self.drafts_unused(id, computed, new);
            let r = self.m(id);
            (r.deferred, r.preempted, r.computed) = (false, false, computed);
            let drafts = if padded { new - 1 } else { 0 };
            step.out.entries.push(Entry { id, tokens: new, drafts, admitted: Some(computed), padded });
        }
        for &id in skipped.iter().rev() {
            self.m(id).deferred = true;
            self.waiting.push_front(id);
        }
        if !step.defer_prefills {
            self.capacity_bound = self.waiting.iter().any(|&id| !self.r(id).deferred);
        }
    }

    /// The index in `waiting` of the waiting request to look at next; `None` if no request waits.
    fn head(&self) -> Option<usize> {
        match self.w.by_priority {
            true => (0..self.waiting.len()).min_by_key(|&place| self.r(self.waiting[place]).rank()),
            false => (!self.waiting.is_empty()).then_some(0),
        }
    }

    /// The KV blocks of the prefix cache that hold the first tokens of a waiting request (vLLM's
    /// `find_longest_cache_hit`).
    fn hits(&self, id: usize) -> Vec<usize> {
        let (r, size) = (self.r(id), self.w.block_size);
        let mut hits = Vec::new();
        if self.w.caching {
            let most = ((r.tokens() - 1) / size).min((r.tokens() - self.d.hash_lookahead).max(0) / size);
            for index in 0..most {
                match self.pool.cached(&r.key((index + 1) * size + self.d.hash_lookahead)) {
                    Some(block) => hits.push(block),
                    None => break,
                }
            }
            if self.d.drop {
                hits.pop();
            }
        }
        hits
    }

    fn verdict(&self, id: usize, computed: i64, scheduled: bool, step: &Step) -> Verdict {
        let r = self.r(id);
        if step.defer_prefills && computed < r.tokens() - 1 {
            return Verdict::Stop;
        }
        let budget = step.token_budget.min(step.input_budget - self.d.slots);
        let (mut new, mut padded) = (r.tokens() - computed, false);
        let pads = self.w.k > 0 && self.d.table.is_empty();
        if pads && new == 1 && !step.prefill_scheduled && (scheduled || computed > 0) {
            let longer = 1 + self.w.k;
            // The output token that the step samples also needs a position, and all positions must be below
            // `max_model_len`.
            if computed + longer < self.w.length {
                if longer > budget {
                    return Verdict::Stop;
                }
                (new, padded) = (longer, true);
            }
        }
        if 0 < step.threshold && step.threshold < new {
            new = step.threshold;
        }
        if !self.w.chunked && new > budget {
            return Verdict::Stop;
        }
        match self.off_the_end(id, computed, new.min(budget)) {
            0 if self.w.release == Release::V0_32 => Verdict::Stop,
            0 => Verdict::PassOver,
            new => Verdict::Admit { new, padded },
        }
    }

    /// vLLM's `allocate_slots` for a waiting request: allocates KV blocks for the `new` tokens after the first
    /// `computed` tokens. `hits` are cached blocks that the request shares. Returns false if there are too few free
    /// blocks.
    fn allocate(&mut self, id: usize, hits: &[usize], computed: i64, new: i64) -> bool {
        let size = self.w.block_size;
        let known = self.r(id).tokens();
        let watermark = if self.running.is_empty() { 0 } else { self.d.watermark_blocks };
        let need = |tokens: i64| {
            (cdiv(tokens.min(self.w.length), size) - hits.len() as i64).max(0) + self.pool.num_evictable(hits)
        };
        if self.w.reserve && need(known) + watermark > self.pool.num_free() {
            return false;
        }
        let tokens = (computed + new + self.d.lookahead).min(self.w.length);
        if need(tokens) + watermark > self.pool.num_free() {
            return false;
        }
        self.pool.touch(hits);
        let blocks = self.pool.take((cdiv(tokens, size) - hits.len() as i64).max(0));
        let r = self.m(id);
        r.table.extend(hits);
        r.table.extend(blocks);
        r.cached = hits.len() as i64;
        self.cache(id, known.min(computed + new));
        true
    }
}
