//! The scheduler of vLLM v0, which the papers used (docs/model.md 14; vLLM 0.6.3, `core/scheduler.py`). A step is a
//! prefill step or a decode step. A prefill step runs whole prompts of waiting requests, without speculation. If no
//! prompt can start, the step is a decode step of all running requests. Draft tokens are not charged to the token
//! budget.

use super::state::Scheduler;
use crate::config::SchedulingPolicy;
use crate::engine::request::{RejectReason, RunningRequest};
use crate::engine::scheduler_output::Rejection;

impl Scheduler<'_> {
    pub(super) fn schedule_v0(&mut self) {
        if self.schedule_prefills() {
            return;
        }
        if self.rules.policy == SchedulingPolicy::Priority {
            self.preempt_lower_priorities();
        }
        self.schedule_decodes();
    }

    /// Admits waiting requests (new or preempted) with all their tokens, up to the first request for which the token
    /// budget, the number of running requests or the free KV blocks do not suffice. Rejects requests that can never be
    /// admitted. Returns whether the step admits any request.
    fn schedule_prefills(&mut self) -> bool {
        while let Some(head) = self.waiting.peek() {
            let r = self.asked.activate(head);
            if let Some(reason) = self.never_v0(r.num_tokens) {
                self.waiting.pop();
                self.output.rejected.push(Rejection { id: head.id, reason, ran: None });
                continue;
            }
            let found = self.kv_cache_manager.get_computed_blocks(self.asked.workload(), r.id, r.num_tokens);
            let (new, tokens) = (r.num_tokens - found.num_tokens, r.num_tokens);
            let full = self.running.len() >= self.rules.max_num_active_seqs as usize;
            if full || new > self.scratch.token_budget || !self.admit(head, r, found, new, tokens) {
                break;
            }
        }
        !self.output.admitted.is_empty()
    }

    /// Why a request with `tokens` tokens (prompt and output so far) can never be admitted; `None` if it can.
    pub(super) fn never_v0(&self, tokens: u32) -> Option<RejectReason> {
        if tokens > self.rules.max_model_len {
            return Some(RejectReason::PromptOverModelLen);
        }
        if tokens > self.rules.max_num_batched_tokens {
            return Some(RejectReason::PromptOverBudget);
        }
        match self.kv_cache_manager.could_hold(tokens) {
            (false, _) => Some(RejectReason::PromptOverPool),
            (true, false) => Some(RejectReason::PromptOverDraftPool),
            (true, true) => None,
        }
    }

    /// Preempts running requests with a lower priority than the head of the waiting list until this request can be
    /// admitted. First sorts the running list by priority and arrival. At the end sorts the waiting list by priority
    /// and arrival.
    fn preempt_lower_priorities(&mut self) {
        self.running.sort_by_key(|r| (r.priority, r.arrival));
        if let Some(head) = self.waiting.pop() {
            while let Some(last) = self.running.last()
                && (last.priority, last.arrival) > (head.priority, head.arrival)
                && !self.fits_v0(&self.asked.activate(head))
            {
                self.preempt(self.running.len() - 1);
            }
            self.waiting.prepend(head);
        }
        self.waiting.sort();
    }

    /// Whether v0's scheduler could admit request `r` now.
    fn fits_v0(&self, r: &RunningRequest) -> bool {
        self.never_v0(r.num_tokens).is_none()
            && self.kv_cache_manager.could_admit(r.num_tokens)
            && self.running.len() < self.rules.max_num_active_seqs as usize
    }

    /// Gives every running request its next token, draft tokens and lookahead slots. If blocks are lacking for a
    /// request, preempts requests from the end of the running list, and at last the request itself.
    fn schedule_decodes(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            let r = &mut self.running[at];
            let tokens = r.num_tokens + self.rules.num_lookahead_tokens;
            // Blocks that the request filled by the time it was last scheduled do not count as new blocks.
            if self.kv_cache_manager.can_append(r.num_cacheable_tokens, tokens) {
                let fits = self.kv_cache_manager.allocate_slots(r, tokens);
                debug_assert!(fits, "no more blocks are new than are touched");
                // The request gets either all draft tokens or none (vLLM's `Top1Proposer`).
                let drafts = if r.may_draft { self.scratch.num_spec_tokens } else { 0 };
                let drafts = if r.num_tokens + drafts < self.rules.max_model_len { drafts } else { 0 };
                r.num_scheduled_tokens = 1 + drafts;
                r.num_cacheable_tokens = r.num_tokens;
                at += 1;
            } else {
                self.preempt(self.running.len() - 1);
            }
        }
    }
}
