//! `budget_charge = trimmed`: some token budget is reserved for draft tokens that the policy then does not select. This
//! budget goes to prompts in prefill.

use super::state::Scheduler;
use crate::drafts::Drafts;

impl Scheduler<'_> {
    /// With `budget_charge = trimmed`: gives the token budget that was reserved for draft tokens, and that verification
    /// does not use, to requests in prefill. Their chunks become longer, or new chunks begin.
    pub fn top_up_chunks(&mut self, drafts: &Drafts) {
        if !self.rules.tops_up_chunks {
            return;
        }
        let decodes = self.output.batch.len();
        let verified: u32 = (0..decodes).map(|i| drafts.tokens(i).1 + 1).sum();
        // The token budget in use is counted anew from the requests, because draft limits were lowered and requests
        // were left out after the budget was charged.
        let requests = decodes + self.output.chunks.len();
        let charged = verified + self.output.prefill.tokens as u32 + requests as u32 * self.rules.draft_slots;
        let mut freed = self.rules.max_num_batched_tokens - charged;
        self.output.clear_chunks();
        let threshold = self.scratch.threshold;
        for r in self.running.iter_mut().filter(|r| r.prefilling) {
            let end = r.num_computed_tokens + r.num_scheduled_tokens;
            let allowed = if threshold > 0 { threshold.saturating_sub(r.num_scheduled_tokens) } else { u32::MAX };
            let extra = r.num_tokens.saturating_sub(end).min(freed).min(allowed);
            if extra > 0 && self.kv_cache_manager.allocate_slots(r, end + extra) {
                r.num_scheduled_tokens += extra;
                freed -= extra;
                r.num_cacheable_tokens = end + extra;
                self.kv_cache_manager.cache_blocks(self.asked.workload(), r, r.num_cacheable_tokens);
            }
            if r.num_scheduled_tokens > 0 {
                self.output.push_chunk(r);
            }
        }
    }
}
