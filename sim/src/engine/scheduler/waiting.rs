//! Admits waiting requests in order, after the running requests were scheduled, as long as token budget, `max_num_seqs`
//! and KV blocks last.

use super::state::Scheduler;
use crate::config::Version;
use crate::engine::kv_cache::ComputedBlocks;
use crate::engine::request::{RunningRequest, WaitingRequest};
use crate::engine::scheduler_output::Admission;

/// The decision about the head of the waiting list.
enum Admit {
    /// The head of the waiting list is admitted, and this number of its tokens is scheduled.
    Tokens(u32),
    /// The head of the waiting list stays there, and no request behind it is considered in this step.
    Stop,
    /// The head of the waiting list is passed over in this step, and the next request is considered.
    PassOver,
}

impl Scheduler<'_> {
    /// Admits waiting requests into a step in which `running` running requests are scheduled.
    pub(super) fn schedule_waiting(&mut self, running: usize) {
        while self.scratch.token_budget > self.rules.draft_slots
            && self.running.len() < self.rules.max_num_active_seqs as usize
        {
            let Some(head) = self.waiting.peek() else { break };
            if head.stale {
                // A step in flight still has tokens for this request. If the request were scheduled now, they would be
                // sampled a second time.
                self.pass_over();
                continue;
            }
            let r = self.asked.activate(head);
            let found = self.kv_cache_manager.get_computed_blocks(self.asked.workload(), r.id, r.num_tokens);
            match self.tokens_to_admit(&r, found.num_tokens, running) {
                Admit::Stop => break,
                Admit::PassOver => self.pass_over(),
                Admit::Tokens(new) => {
                    let tokens = found.num_tokens + new + self.rules.num_lookahead_tokens;
                    if !self.admit(head, r, found, new, tokens.min(self.rules.max_model_len)) {
                        break;
                    }
                }
            }
        }
        while let Some(r) = self.scratch.aside.pop() {
            self.waiting.prepend(r);
        }
        self.pace.admitted(self.waiting.any_not_passed_over());
    }

    /// Takes the head out of the waiting list until this step is decided.
    fn pass_over(&mut self) {
        if let Some(head) = self.waiting.pop() {
            self.scratch.aside.push(WaitingRequest { passed_over: true, ..head });
        }
    }

    /// Decides how many tokens to schedule for the waiting request `r`, of which `computed` tokens are in the prefix
    /// cache. `running` is the number of running requests that are scheduled.
    fn tokens_to_admit(&self, r: &RunningRequest, computed: u32, running: usize) -> Admit {
        let left = r.num_tokens - computed;
        if self.pace.defer_prefills && left > 1 {
            return Admit::Stop;
        }
        let limit = self.scratch.token_budget - self.rules.draft_slots;
        let padding = self.padding(computed, left, running);
        if padding > 0 && padding >= limit {
            return Admit::Stop;
        }
        let want = self.limited(left + padding);
        if !self.rules.chunked_prefill && want > limit {
            return Admit::Stop;
        }
        match self.rules.off_the_end(left, want.min(limit)) {
            0 if self.rules.version == Version::V0_32 => Admit::Stop,
            0 => Admit::PassOver,
            new => Admit::Tokens(new),
        }
    }

    /// Number of padding drafts for a waiting request: `computed` tokens are cached, `left` tokens are to be computed.
    /// A request with one token left is padded to the length of a decode request with drafts. It is not padded (0) if
    /// the step has scheduled a prompt of a running request, if no request is running and nothing is cached, or if
    /// the padding would exceed `max_model_len`.
    fn padding(&self, computed: u32, left: u32, running: usize) -> u32 {
        let padding = self.rules.pad_admissions;
        let decodes_only = !self.pace.prefill_scheduled && (running > 0 || computed > 0);
        let fits_model = computed + padding + 2 <= self.rules.max_model_len;
        if left == 1 && decodes_only && fits_model { padding } else { 0 }
    }

    /// Moves the head of the waiting list to the running list. `new` of its tokens are scheduled, and it gets KV slots
    /// for `tokens` tokens in total. Returns false, and changes nothing, if too few blocks are free.
    pub(super) fn admit(
        &mut self,
        head: WaitingRequest,
        mut r: RunningRequest,
        found: ComputedBlocks,
        new: u32,
        tokens: u32,
    ) -> bool {
        let computed = found.num_tokens;
        let busy = !self.running.is_empty();
        if !self.kv_cache_manager.allocate_new(self.asked.workload(), &mut r, found, tokens, busy) {
            return false;
        }
        r.num_cacheable_tokens = (computed + new).min(r.num_tokens);
        self.kv_cache_manager.cache_blocks(self.asked.workload(), &r, r.num_cacheable_tokens);
        self.waiting.pop();
        r.num_computed_tokens = computed;
        // Cached blocks hold the draft's KV too, except for tokens that the draft had missed.
        let prompt = r.num_tokens - r.num_output_tokens;
        r.num_draft_computed_tokens = computed.min(head.num_draft_computed_tokens.max(prompt));
        r.num_scheduled_tokens = new;
        self.scratch.token_budget -= new + self.rules.draft_slots;
        self.pace.prefill_admitted |= r.num_tokens - computed > 1;
        self.output.admitted.push(Admission { id: r.id, num_cached_tokens: computed });
        self.running.push(r);
        true
    }
}
