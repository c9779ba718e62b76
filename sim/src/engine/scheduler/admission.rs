//! Decides whether a waiting request is admitted into a step and with how many tokens, and admits it.

use super::state::Scheduler;
use crate::engine::request::RunningRequest;
use crate::engine::scheduler_output::Admission;

/// Whether a waiting request is admitted into the step, and with how many tokens.
pub(super) enum Admit {
    /// The waiting request is admitted, and this number of its tokens is scheduled in the step.
    Tokens(u32),
    /// The request waits, and the scheduler considers no later request in this step.
    Stop,
    /// The request waits, and the scheduler considers the next request of the waiting list.
    PassOver,
}

impl Scheduler<'_> {
    /// Whether the step has token budget left, and fewer requests run than may run at once, so that another request can
    /// be admitted.
    #[inline]
    pub(super) fn has_room_to_admit(&self) -> bool {
        self.scratch.token_budget > self.rules.draft_slots
            && self.running.len() < self.rules.max_num_active_seqs as usize
    }

    /// Decides how many tokens to schedule for the waiting request `r`, of which `computed` tokens are in KV already.
    /// `running` is the number of running requests that are scheduled.
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
            0 if self.rules.release.stops_at_unsplittable => Admit::Stop,
            0 => Admit::PassOver,
            new => Admit::Tokens(new),
        }
    }

    /// Number of padding tokens, in place of draft tokens, for a waiting request: `computed` tokens are in KV, `left`
    /// tokens are to be computed. A request with one token left gets as many padding tokens as the longest draft
    /// length. It gets none if the step has scheduled a prompt of a running request, if no request is running and
    /// nothing is in KV, or if the padding would exceed `max_model_len`.
    fn padding(&self, computed: u32, left: u32, running: usize) -> u32 {
        let padding = self.rules.pad_admissions;
        let decodes_only = !self.pace.prefill_scheduled && (running > 0 || computed > 0);
        let fits_model = computed + padding + 2 <= self.rules.max_model_len;
        if left == 1 && decodes_only && fits_model { padding } else { 0 }
    }

    /// Adds a request, for which blocks were allocated, to the running list. `computed` of its tokens are in KV, `new`
    /// tokens are scheduled, and the prefix cache had `cached` of the computed tokens.
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
