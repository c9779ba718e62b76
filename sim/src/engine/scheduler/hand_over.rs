//! Hands requests over between engines, by the rules of vLLM's scheduler with a NIXL connector
//! (`vllm/v1/core/sched/scheduler.py`, `vllm/distributed/kv_transfer/kv_connector/v1/nixl/`, as of 2026).
//!
//! The first engine runs the request with `max_tokens` = 1 and keeps the request's blocks until the transfer ends. The
//! second engine allocates blocks for the prompt and starts the transfer (`WAITING_FOR_REMOTE_KVS`); such a request is
//! called held. Meanwhile the second engine runs other requests. After the KV has arrived, the second engine computes
//! the last token of the prompt again.

use super::admission::Admit;
use super::handed::Held;
use super::state::Scheduler;
use crate::engine::request::{Part, Reserved, WaitingRequest};
use crate::time::Time;
use crate::workload::RequestId;

impl Scheduler<'_> {
    /// Held requests wait for the KV of their prompt, which another engine computes. Admits the held requests whose KV
    /// has arrived, in the order in which their blocks were allocated. Returns false if the scheduler must stop at one
    /// of these requests, because it cannot be admitted; vLLM then admits no later request in this step.
    pub(super) fn schedule_held(&mut self, running: usize) -> bool {
        let mut index = 0;
        while index < self.handed.held.len() && self.has_room_to_admit() {
            let held = &self.handed.held[index];
            if held.arrived > self.handed.asked {
                index += 1;
                continue;
            }
            match self.tokens_to_admit(&held.r, held.r.num_tokens - 1, running) {
                Admit::Stop => return false,
                Admit::PassOver => index += 1,
                Admit::Tokens(new) => {
                    if !self.admit_held(index, new) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Moves a held request, whose prompt another engine has computed, to the running list. `new` tokens are scheduled:
    /// the last token of its prompt, which gives the first output token, and padding. Returns false, and changes
    /// nothing, if the pools have too few blocks.
    fn admit_held(&mut self, index: usize, new: u32) -> bool {
        let busy = !self.running.is_empty();
        let held = &mut self.handed.held[index];
        let computed = held.r.num_tokens - 1;
        let tokens = (computed + new + self.rules.num_lookahead_tokens).min(self.rules.max_model_len);
        if !self.kv_cache_manager.allocate_more(&mut held.r, tokens, busy) {
            return false;
        }
        let Held { mut r, cached, draft_kv, .. } = self.handed.held.remove(index);
        r.num_draft_computed_tokens = if draft_kv { computed } else { cached };
        if !draft_kv && self.rules.drafter && self.rules.draft_prefill && cached < computed {
            self.scratch.drafts_behind.push((r.id, cached, computed - cached));
        }
        self.begin_to_run(r, (computed, new), cached);
        true
    }

    /// Allocates blocks for the prompt of `head`, the head of the waiting list, whose KV comes from another engine. As
    /// in vLLM, lookahead slots are not allocated yet. Returns false, and changes nothing, if the pools have too few
    /// blocks.
    pub(super) fn hold(&mut self, head: WaitingRequest) -> bool {
        let busy = !self.running.is_empty();
        let mut r = self.asked.activate(head);
        let workload = self.asked.workload();
        let found = self.kv_cache_manager.get_computed_blocks(workload, r.id, r.num_tokens);
        let (cached, tokens) = (found.num_tokens, r.num_tokens);
        if !self.kv_cache_manager.allocate_new(workload, &mut r, found, tokens, busy) {
            return false;
        }
        self.waiting.pop();
        r.num_cacheable_tokens = cached;
        let blocks = self.kv_cache_manager.blocks_for(tokens - cached);
        self.handed.reserved.push(Reserved { id: r.id, at: self.output.now, blocks });
        self.handed.held.push(Held { r, cached, draft_kv: false, arrived: Time::MAX });
        true
    }

    /// Whether blocks were allocated, since the last [`take_reserved`](Self::take_reserved), for a prompt whose KV
    /// comes from another engine.
    pub fn has_reserved(&self) -> bool {
        !self.handed.reserved.is_empty()
    }

    /// Takes out the requests that, since the last call, got blocks for a prompt whose KV comes from another engine.
    pub fn take_reserved(&mut self) -> std::vec::Drain<'_, Reserved> {
        self.handed.reserved.drain(..)
    }

    /// Notes that all KV of the prompt of request `id` arrived from another engine at `at`, including the draft model's
    /// KV if `draft_kv` is true.
    pub fn kv_arrived(&mut self, id: RequestId, at: Time, draft_kv: bool) {
        if let Some(held) = self.handed.held.iter_mut().find(|held| held.r.id == id) {
            (held.arrived, held.draft_kv) = (at, draft_kv);
        }
    }

    /// Lets this engine compute the prompt of request `id`, because the prompt's KV will not come from another engine.
    pub fn computes_here(&mut self, id: RequestId) {
        if let Some(index) = self.handed.held.iter().position(|held| held.r.id == id) {
            self.gives_blocks_back(index);
        }
    }

    /// Frees the blocks of a held request (a request that waits for KV from another engine); `index` is its index in
    /// the list of held requests. Puts the request at the front of the waiting list, so that this engine computes its
    /// prompt and output.
    fn gives_blocks_back(&mut self, index: usize) {
        let Held { mut r, .. } = self.handed.held.remove(index);
        self.kv_cache_manager.free(self.asked.workload(), &mut r);
        self.waiting.prepend(WaitingRequest::new(self.asked.workload(), r.id, r.arrival, Part::Whole));
    }

    /// The host asked the device at `asked` which KV has arrived from other engines. From now on the scheduler knows of
    /// all KV that had arrived by then.
    #[inline]
    pub fn notice_kv(&mut self, asked: Time) {
        self.handed.asked = asked;
    }

    /// Frees the blocks that a request keeps for a transfer, because this engine computed only its prompt.
    pub fn release_kept(&mut self, id: RequestId) {
        if let Some(index) = self.handed.kept.iter().position(|r| r.id == id) {
            let mut r = self.handed.kept.remove(index);
            self.kv_cache_manager.free_finished(self.asked.workload(), &mut r);
        }
    }

    /// Whether nothing can be scheduled until KV comes from another engine or blocks are released.
    pub fn waits_for_others(&self) -> bool {
        let decided = self.output.preempted.is_empty() && self.output.rejected.is_empty();
        self.running.is_empty() && decided && self.handed.is_served()
    }

    /// Called in a step that admitted no waiting request and no held request (a request that has blocks and waits for
    /// KV from another engine). If a request runs or was preempted, does nothing and returns false. If KV will arrive
    /// or other engines will free blocks, the requests wait, and it returns true. Otherwise the held requests block
    /// each other, and vLLM would hang. Then the last held request gives its blocks back, so that this engine computes
    /// its prompt, and it returns true; or false if there is no held request.
    pub(super) fn resolves_held(&mut self) -> bool {
        if !self.running.is_empty() || !self.output.preempted.is_empty() {
            return false;
        }
        if self.handed.is_served() {
            return true;
        }
        let Some(last) = self.handed.held.len().checked_sub(1) else { return false };
        self.gives_blocks_back(last);
        true
    }
}
