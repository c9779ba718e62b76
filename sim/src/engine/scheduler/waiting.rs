//! Then the requests that wait, in order: each is admitted while budget, sequences and blocks last.

use super::Scheduler;
use crate::engine::scheduler_output::Admission;

impl Scheduler<'_> {
    /// Admits waiting requests. `whole`: no prompt is split, but what a preempted request recomputes is, since it may have
    /// outgrown the budget.
    pub(super) fn schedule_waiting(&mut self, whole: bool) {
        while self.token_budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let Some(head) = self.waiting.peek() else { break };
            let mut r = self.activate(head);
            let found = self.kv_cache_manager.get_computed_blocks(r.id, r.num_tokens);
            let want = r.num_tokens - found.num_tokens;
            let whole = whole && head.num_output_tokens == 0;
            if whole && want > self.token_budget {
                break;
            }
            let scheduled = if whole { want } else { self.chunk(want).min(self.token_budget) };
            let busy = !self.running.is_empty();
            if !self.kv_cache_manager.allocate_new(&mut r, found, found.num_tokens + scheduled, busy) {
                break;
            }
            self.kv_cache_manager.cache_blocks(&r, found.num_tokens + scheduled);
            r.num_computed_tokens = found.num_tokens;
            // The cache holds the draft's KV as well, but for the gaps it had.
            let prompt = r.num_tokens - r.num_output_tokens;
            r.num_draft_computed_tokens = found.num_tokens.min(head.num_draft_computed_tokens.max(prompt));
            r.num_scheduled_tokens = scheduled;
            self.token_budget -= scheduled;
            self.waiting.pop();
            self.output.admitted.push(Admission { id: r.id, num_cached_tokens: found.num_tokens });
            self.running.push(r);
        }
    }
}
