//! The life of a request. It arrives and waits. When it is admitted, it becomes a running request. It may be preempted
//! and wait again. It ends finished, rejected or aborted.

use super::rules::Rules;
use super::state::Scheduler;
use crate::engine::request::{Part, RejectReason, RunningRequest, WaitingRequest};
use crate::engine::scheduler_output::Rejection;
use crate::time::Time;
use crate::workload::RequestId;

impl Scheduler<'_> {
    /// Adds a request that has arrived to the waiting list. `part` is the part of the request that the engine serves.
    ///
    /// # Errors
    /// The request could never be scheduled. (A request whose output outgrows the KV pool is rejected later, when the
    /// pool has no block left for it.)
    pub fn add_request(&mut self, id: RequestId, at: Time, part: Part) -> Result<(), RejectReason> {
        if let Some(reason) = self.never(self.asked.prompt(id)) {
            return Err(reason);
        }
        self.waiting.push(WaitingRequest::new(self.asked.workload(), id, at, part));
        self.add_to_sglang(id);
        Ok(())
    }

    /// Why a prompt of `prompt` tokens can never be scheduled; `None` if it can, or if the release does not check this
    /// when a request arrives. SGLang schedules every request ([`gets_nothing`](Scheduler::gets_nothing)).
    fn never(&self, prompt: u32) -> Option<RejectReason> {
        if !self.rules.release.rejects_on_arrival || self.rules.sglang.is_some() {
            return None;
        }
        if prompt >= self.rules.max_model_len {
            return Some(RejectReason::PromptOverModelLen);
        }
        match self.kv_cache_manager.could_hold(prompt) {
            _ if !self.rules.guarded => None,
            (false, _) => Some(RejectReason::PromptOverPool),
            (true, false) => Some(RejectReason::PromptOverDraftPool),
            (true, true) => None,
        }
    }

    /// Removes a request that runs or waits (vLLM's `finish_requests`). Returns its number of output tokens; `None` if
    /// the request neither runs nor waits.
    pub fn abort(&mut self, id: RequestId) -> Option<u32> {
        self.abort_in_sglang(id);
        if let Some(at) = self.running.iter().position(|r| r.id == id) {
            let mut r = self.running.remove(at);
            self.rules.confirm(&mut r);
            if self.sglang.is_none() {
                self.kv_cache_manager.free_finished(self.asked.workload(), &mut r);
            }
            return Some(r.num_output_tokens);
        }
        let mut waited = None;
        self.waiting.change(id, |w| {
            waited = Some(w.num_output_tokens);
            false
        });
        waited
    }

    /// Preempts the running request at index `at`: the request loses its KV and goes to the front of the waiting list
    /// (under priority scheduling, to the place of its priority). Its tokens are computed again later.
    pub(super) fn preempt(&mut self, at: usize) {
        let mut r = self.running.remove(at);
        self.scratch.leading = self.scratch.leading.min(at);
        self.scratch.drafts_needed |= r.can_use_drafts();
        self.release(&mut r);
        self.waiting.prepend(WaitingRequest {
            id: r.id,
            number: self.asked.workload().number(r.id),
            num_output_tokens: r.num_output_tokens,
            num_draft_computed_tokens: r.num_draft_computed_tokens,
            may_draft: r.may_draft,
            priority: r.priority,
            arrival: r.arrival,
            passed_over: false,
            stale: r.num_in_flight_tokens > 0,
            part: if r.hands_over { Part::Prompt } else { Part::Whole },
        });
        self.output.preempted.push(r);
    }

    /// Gives back the KV blocks of a request. If their tokens are certain (not draft tokens), other requests can still
    /// find the blocks in the prefix cache until the pool hands them out.
    pub(super) fn release(&mut self, r: &mut RunningRequest) {
        self.rules.confirm(r);
        self.kv_cache_manager.cache_blocks(self.asked.workload(), r, r.num_cacheable_tokens);
        self.kv_cache_manager.free(self.asked.workload(), r);
    }

    /// Rejects the only running request, which has outgrown the pool.
    pub(super) fn reject_running(&mut self) {
        let mut r = self.running.pop().expect("the only running request");
        self.kv_cache_manager.free(self.asked.workload(), &mut r);
        self.output.rejected.push(Rejection { id: r.id, reason: self.outgrown(), ran: Some(r) });
    }

    /// Rejects the request at the head of the waiting list if no request runs and this step preempted none. The step
    /// did not admit the request although no other request took tokens of the budget or KV blocks, so no later step
    /// will admit it. Otherwise does nothing.
    pub(super) fn reject_hopeless(&mut self) {
        if self.running.is_empty()
            && self.output.preempted.is_empty()
            && let Some(head) = self.waiting.pop()
        {
            let tokens = self.asked.prompt(head.id) + head.num_output_tokens;
            let (pool, draft_pool) = self.kv_cache_manager.could_hold(tokens + self.rules.num_lookahead_tokens);
            let reason = if pool && draft_pool { RejectReason::NoStepFits } else { self.outgrown() };
            // While the request waited, a step in flight may have given it tokens. These tokens are not recorded yet,
            // so the rejection also returns the request's state.
            let ran = (head.num_output_tokens > 0).then(|| self.asked.activate(head));
            self.output.rejected.push(Rejection { id: head.id, reason, ran });
        }
    }

    fn outgrown(&self) -> RejectReason {
        if self.kv_cache_manager.draft_total() < self.kv_cache_manager.usable() {
            RejectReason::OutgrewDraftPool
        } else {
            RejectReason::OutgrewPool
        }
    }

    /// Removes the `count` running requests that have emitted their whole output, and adds them to the step's result.
    /// Frees their blocks, except the blocks of requests that hand their KV over to another engine. The other running
    /// requests keep their order.
    pub fn remove_finished(&mut self, count: u32) {
        let mut at = 0;
        let ended = |r: &RunningRequest| r.num_output_tokens == r.max_tokens;
        for _ in 0..count {
            at += self.running[at..].iter().position(ended).expect("they were counted");
            let mut r = self.running.remove(at);
            self.rules.confirm(&mut r);
            match r.hands_over {
                true => self.handed.keep(&r),
                false if self.sglang.is_some() => {}
                false => self.kv_cache_manager.free_finished(self.asked.workload(), &mut r),
            }
            self.result.finished.push(r);
        }
    }
}

impl Rules {
    /// Under the rule `cache_when_verified` (blocks that decoding filled are cached as soon as their tokens are
    /// verified): marks the verified tokens of a decode request as ready for the prefix cache.
    fn confirm(&self, r: &mut RunningRequest) {
        if self.cache_when_verified && !r.prefilling {
            r.num_cacheable_tokens = r.num_cacheable_tokens.max(r.num_tokens - 1);
        }
    }
}
