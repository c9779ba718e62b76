//! Admits waiting requests, in the order of the waiting list, after the running requests were scheduled, as long as
//! token budget, `max_num_seqs` and KV blocks last.

use super::admission::Admit;
use super::state::Scheduler;
use crate::engine::kv_cache::ComputedBlocks;
use crate::engine::request::{Part, RunningRequest, WaitingRequest};

impl Scheduler<'_> {
    /// Admits waiting requests into a step in which `running` running requests are scheduled.
    pub(super) fn schedule_waiting(&mut self, running: usize) {
        if self.handed.num_held() > 0 && !self.schedule_held(running) {
            return self.pace.admitted(self.waiting.any_not_passed_over());
        }
        while self.has_room_to_admit() {
            let Some(head) = self.waiting.peek() else { break };
            if head.stale {
                // A step in flight still has tokens for this request. If the request were scheduled now, the same
                // tokens would be sampled a second time.
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

    /// Sets the first request of the waiting list aside, so that the scheduler considers the next request. Requests
    /// that were set aside go back to the front of the list when the step is decided.
    fn pass_over(&mut self) {
        if let Some(head) = self.waiting.pop() {
            self.scratch.aside.push(WaitingRequest { passed_over: true, ..head });
        }
    }

    /// Moves the head of the waiting list to the running list, as request `r`. `new` of its tokens are scheduled, and
    /// it gets KV slots for `tokens` tokens in total. Returns false, and changes nothing, if too few blocks are free.
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
        // Cached blocks hold the draft model's KV too, except for tokens that the draft model had missed.
        let prompt = r.num_tokens - r.num_output_tokens;
        r.num_draft_computed_tokens = computed.min(head.num_draft_computed_tokens.max(prompt));
        self.begin_to_run(r, (computed, new), computed);
        true
    }
}
