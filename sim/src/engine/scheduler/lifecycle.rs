//! A request's life: it arrives, is activated when it is admitted, may be preempted and wait again, and ends finished
//! or rejected.

use super::Scheduler;
use crate::engine::request::{RejectReason, RunningRequest, SpecCounts, WaitingRequest};
use crate::engine::scheduler_output::Rejection;
use crate::{RequestId, Time};

impl Scheduler<'_> {
    /// A request has arrived.
    ///
    /// # Errors
    /// It could never be scheduled. What only shows later (outputs that outgrow the pool) is said then.
    pub fn add_request(&mut self, id: RequestId, at: Time) -> Result<(), RejectReason> {
        let prompt = self.workload.prompt_len[id as usize];
        let whole = !self.config.chunked_prefill || self.config.scheduler == crate::Scheduler::V0PrefillFirst;
        if prompt >= self.config.max_model_len {
            return Err(RejectReason::PromptOverModelLen);
        }
        if whole && prompt > self.config.max_num_batched_tokens {
            return Err(RejectReason::PromptOverBudget);
        }
        match self.kv_cache_manager.could_hold(prompt) {
            (false, _) => return Err(RejectReason::PromptOverPool),
            (true, false) => return Err(RejectReason::PromptOverDraftPool),
            (true, true) => {}
        }
        self.enqueue(id, at, 0);
        Ok(())
    }

    /// A request of this priority has arrived that need not be checked.
    pub fn enqueue(&mut self, id: RequestId, at: Time, priority: i32) {
        self.waiting.push(WaitingRequest::new(id, at, priority));
    }

    /// What a waiting request is when it runs.
    pub(super) fn activate(&self, w: WaitingRequest) -> RunningRequest {
        let i = w.id as usize;
        let prompt = self.workload.prompt_len[i];
        let own = self.workload.slo_tpot_s.get(i).copied().unwrap_or(f64::INFINITY);
        RunningRequest {
            id: w.id,
            num_computed_tokens: 0,
            num_tokens: prompt + w.num_output_tokens,
            num_output_tokens: w.num_output_tokens,
            max_tokens: self.workload.output_len[i].min(self.config.max_model_len - prompt),
            max_tokens_asked: self.workload.output_len[i],
            num_draft_computed_tokens: 0,
            num_scheduled_tokens: 0,
            num_spec_tokens: 0,
            num_cacheable_tokens: 0,
            num_slots: 0,
            table: 0,
            prefilling: true,
            may_draft: self.drafting && w.may_draft,
            priority: w.priority,
            arrival: w.arrival,
            last_emit: w.last_emit,
            slo_tpot_s: if own.is_finite() { own } else { self.slo_tpot_s },
            done: SpecCounts::default(),
        }
    }

    /// Preemption by recompute: a running request loses its KV and goes to the front of the waiting list.
    pub(super) fn preempt(&mut self, at: usize) {
        let mut r = self.running.remove(at);
        if !self.follows {
            r.num_cacheable_tokens = r.num_computed_tokens;
        }
        self.release(&mut r);
        self.waiting.prepend(WaitingRequest {
            id: r.id,
            num_output_tokens: r.num_output_tokens,
            last_emit: r.last_emit,
            num_draft_computed_tokens: r.num_draft_computed_tokens,
            may_draft: r.may_draft,
            priority: r.priority,
            arrival: r.arrival,
        });
        self.output.preempted.push(r);
    }

    /// Gives the blocks of a request back. Those of confirmed tokens stay findable until they are handed out again.
    pub(super) fn release(&mut self, r: &mut RunningRequest) {
        self.kv_cache_manager.cache_blocks(r, r.num_cacheable_tokens);
        self.kv_cache_manager.free(r);
    }

    /// The only running request has outgrown the pool.
    pub(super) fn reject_running(&mut self) {
        let mut r = self.running.pop().expect("the only running request");
        self.kv_cache_manager.free(&mut r);
        self.output.rejected.push(Rejection { id: r.id, reason: self.outgrown(), ran: Some(r) });
    }

    /// With nothing running, a head that was not admitted never will be.
    pub(super) fn reject_hopeless(&mut self) {
        if self.running.is_empty()
            && self.output.preempted.is_empty()
            && let Some(head) = self.waiting.pop()
        {
            self.output.rejected.push(Rejection { id: head.id, reason: self.outgrown(), ran: None });
        }
    }

    fn outgrown(&self) -> RejectReason {
        match self.kv_cache_manager.draft_total() < self.kv_cache_manager.usable() {
            true => RejectReason::OutgrewDraftPool,
            false => RejectReason::OutgrewPool,
        }
    }

    /// Ends the requests that emitted their whole output; the others keep their order.
    pub(super) fn remove_finished(&mut self, now: Time) {
        let mut kept = 0;
        for at in 0..self.running.len() {
            let r = &mut self.running[at];
            if r.num_output_tokens == r.max_tokens {
                debug_assert!(r.last_emit == now);
                if self.follows {
                    self.kv_cache_manager.cache_blocks(r, r.num_cacheable_tokens);
                }
                self.kv_cache_manager.free(r);
                self.output.finished.push(r.clone());
            } else {
                self.running.swap(kept, at);
                kept += 1;
            }
        }
        self.running.truncate(kept);
    }
}
