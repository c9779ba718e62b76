//! First the requests that run: each gets its tokens and slots while the budget lasts; preemption from the back.

use super::Scheduler;
use crate::engine::request::RunningRequest;

impl Scheduler<'_> {
    /// Gives every running request its tokens, at most `num_spec_tokens` of them drafts.
    pub(super) fn schedule_running(&mut self, num_spec_tokens: u32) {
        let mut at = self.schedule_leading_decodes(num_spec_tokens);
        while at < self.running.len() && self.token_budget > 0 {
            let r = &self.running[at];
            let want = match r.prefilling {
                true => self.chunk(r.num_tokens - r.num_computed_tokens),
                false => 1 + num_lookahead(r, num_spec_tokens, self.config.max_model_len),
            };
            let Some(scheduled) = self.make_room(at, want.min(self.token_budget)) else { break };
            let r = &mut self.running[at];
            r.num_scheduled_tokens = scheduled;
            self.token_budget -= scheduled;
            if r.prefilling {
                self.kv_cache_manager.cache_blocks(r, r.num_computed_tokens + scheduled);
            }
            at += 1;
        }
    }

    /// The common case, kept tight: leading decodes with budget to spare, growing a block at most. Returns how many it
    /// scheduled.
    fn schedule_leading_decodes(&mut self, num_spec_tokens: u32) -> usize {
        let max_model_len = self.config.max_model_len;
        let mut done = 0;
        for r in &mut self.running {
            let scheduled = 1 + num_lookahead(r, num_spec_tokens, max_model_len);
            if r.prefilling
                || scheduled > self.token_budget
                || !self.kv_cache_manager.allocate_slots(r, r.num_computed_tokens + scheduled)
            {
                break;
            }
            r.num_scheduled_tokens = scheduled;
            self.token_budget -= scheduled;
            done += 1;
        }
        done
    }

    /// Finds slots for `tokens` more tokens of the running request at `at`, preempting from the back; returns how many it
    /// found slots for. `None` when the request had to go itself.
    fn make_room(&mut self, at: usize, tokens: u32) -> Option<u32> {
        loop {
            let r = &mut self.running[at];
            let (prefilling, computed) = (r.prefilling, r.num_computed_tokens);
            if self.kv_cache_manager.allocate_slots(r, computed + tokens) {
                return Some(tokens);
            }
            if at + 1 < self.running.len() {
                self.preempt(self.running.len() - 1);
                continue;
            }
            if at > 0 {
                self.preempt(self.running.len() - 1);
                return None;
            }
            // Alone with the whole pool: first without lookahead, then it can never fit.
            if !prefilling && self.kv_cache_manager.allocate_slots(&mut self.running[at], computed + 1) {
                return Some(1);
            }
            self.reject_running();
            return None;
        }
    }
}

/// The most a request may draft now. One position is the new token's, and vLLM keeps one below `max_model_len`
/// (policies.md 4.2).
#[inline]
fn num_lookahead(r: &RunningRequest, num_spec_tokens: u32, max_model_len: u32) -> u32 {
    match r.may_draft {
        true => num_spec_tokens.min((max_model_len - 1).saturating_sub(r.num_computed_tokens + 1)),
        false => 0,
    }
}
