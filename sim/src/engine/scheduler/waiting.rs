//! Admits waiting requests in order, after the running requests were scheduled, while token budget, sequences and
//! blocks last.

use super::state::Scheduler;
use crate::config::Version;
use crate::engine::kv_cache::ComputedBlocks;
use crate::engine::request::{Part, RunningRequest, WaitingRequest};
use crate::engine::scheduler_output::Admission;

/// The decision about the head of the waiting list.
pub(super) enum Admit {
    /// The head is admitted with this many tokens.
    Tokens(u32),
    /// The head waits, and so do all requests behind it.
    Stop,
    /// The head waits; the next request is considered.
    PassOver,
}

impl Scheduler<'_> {
    /// Admits waiting requests into a step in which `running` running requests are scheduled.
    pub(super) fn schedule_waiting(&mut self, running: usize) {
        if self.handed.num_held() > 0 && !self.schedule_held(running) {
            return self.pace.admitted(self.waiting.any_not_passed_over());
        }
        while self.has_room_to_admit() {
            let Some(head) = self.waiting.peek() else { break };
            if head.stale {
                // Tokens that are still to come from a step in flight would be sampled a second time.
                self.pass_over();
                continue;
            }
            if head.part == Part::Output {
                if self.hold(head) {
                    continue;
                }
                break;
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

    /// Whether the step has room for another request.
    #[inline]
    pub(super) fn has_room_to_admit(&self) -> bool {
        self.scratch.token_budget > self.rules.draft_slots
            && self.running.len() < self.rules.max_num_active_seqs as usize
    }

    /// Puts the head of the waiting list aside until this step is decided.
    fn pass_over(&mut self) {
        if let Some(head) = self.waiting.pop() {
            self.scratch.aside.push(WaitingRequest { passed_over: true, ..head });
        }
    }

    /// Decides how many tokens of a request with `computed` cached tokens are scheduled.
    pub(super) fn tokens_to_admit(&self, r: &RunningRequest, computed: u32, running: usize) -> Admit {
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

    /// Number of padding drafts: a request with one token left, admitted beside decodes, gets the length of a decode
    /// request.
    fn padding(&self, computed: u32, left: u32, running: usize) -> u32 {
        let padding = self.rules.pad_admissions;
        let decodes_only = !self.pace.prefill_scheduled && (running > 0 || computed > 0);
        let fits_model = computed + padding + 2 <= self.rules.max_model_len;
        if left == 1 && decodes_only && fits_model { padding } else { 0 }
    }

    /// Moves the head of the waiting list to the running list, with `new` tokens scheduled and slots for `tokens`
    /// tokens in total. Returns false, and changes nothing, if the pools have too few blocks.
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
        self.waiting.pop();
        // The cache holds the draft's KV too, except for the gaps that the draft had.
        let prompt = r.num_tokens - r.num_output_tokens;
        r.num_draft_computed_tokens = computed.min(head.num_draft_computed_tokens.max(prompt));
        self.begin_to_run(r, (computed, new), computed);
        true
    }

    /// Adds a request, which has its blocks, to the running list: `computed` of its tokens are in KV, of which the
    /// prefix cache had `cached`, and `new` are scheduled.
    #[inline(always)]
    pub(super) fn begin_to_run(&mut self, mut r: RunningRequest, (computed, new): (u32, u32), cached: u32) {
        r.num_cacheable_tokens = (computed + new).min(r.num_tokens);
        self.kv_cache_manager.cache_blocks(self.asked.workload(), &r, r.num_cacheable_tokens);
        r.num_computed_tokens = computed;
        r.num_scheduled_tokens = new;
        self.scratch.token_budget -= new + self.rules.draft_slots;
        self.pace.prefill_admitted |= r.num_tokens - computed > 1;
        self.output.admitted.push(Admission { id: r.id, num_cached_tokens: cached });
        self.running.push(r);
    }
}
