//! Admits waiting requests in order, after the running requests were scheduled, while token budget, sequences and
//! blocks last.

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

    /// Puts the head of the waiting list aside until this step is decided.
    fn pass_over(&mut self) {
        if let Some(head) = self.waiting.pop() {
            self.scratch.aside.push(WaitingRequest { passed_over: true, ..head });
        }
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
}
