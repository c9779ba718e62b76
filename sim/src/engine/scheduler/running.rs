//! Schedules the running requests, before any waiting request. Each request gets its tokens, its draft tokens and KV
//! slots as long as the token budget lasts. If KV slots are lacking, the scheduler preempts the last running request;
//! under priority scheduling, the request with the lowest priority.

use super::rules::{Order, Rules};
use super::state::Scheduler;
use crate::config::SchedulingPolicy;
use crate::engine::request::RunningRequest;
use crate::prompt_balance::Runnable;

/// The result of a search for KV slots for a running request.
enum Room {
    /// There are KV slots for the tokens of the request. The request is now at this index of the running list;
    /// preemptions of requests before it may have moved it.
    Found(usize),
    /// There are KV slots for one token of the request, but not for its draft tokens. The request is the only running
    /// one.
    ForOne,
    /// The request itself was preempted. The request that followed it in the running list is now at this index.
    GoneItself(usize),
}

impl Scheduler<'_> {
    /// Gives the running requests their tokens as long as the token budget lasts. Preempts requests if KV slots are
    /// lacking. Returns how many requests are scheduled.
    pub(super) fn schedule_running(&mut self) -> usize {
        let slots = self.rules.draft_slots;
        let (mut at, mut scheduled) = match (self.rules.drafter, self.rules.order) {
            (true, _) => self.schedule_leading_decodes(),
            (false, Order::Async) => self.schedule_plain_decodes_ahead(),
            (false, _) => self.schedule_plain_decodes(),
        };
        while at < self.running.len() && self.scratch.token_budget > slots {
            let r = &self.running[at];
            if self.pace.defer_prefills && r.prefilling {
                at += 1;
                continue;
            }
            if surely_ends(r) {
                at += 1;
                continue;
            }
            let known = r.num_tokens + r.num_output_placeholders;
            let want = self.limited(known + self.spec_tokens_of(r) - r.num_computed_tokens);
            // The last position before `max_model_len` is kept free for the sampled token.
            let room = (self.rules.max_model_len - 1).saturating_sub(r.num_computed_tokens);
            let want = want.min(self.scratch.token_budget - slots).min(room);
            let left = r.num_tokens - r.num_computed_tokens.min(r.num_tokens);
            let mut new = self.rules.off_the_end(left, want);
            if new == 0 {
                at += 1;
                continue;
            }
            match self.make_room(at, new, &mut scheduled) {
                Some(Room::Found(place)) => at = place,
                // By now no other request runs, so the request's index in the running list is 0.
                Some(Room::ForOne) => (at, new) = (0, 1),
                Some(Room::GoneItself(place)) if self.rules.goes_on_after_self_preemption => {
                    at = place;
                    continue;
                }
                Some(Room::GoneItself(_)) | None => break,
            }
            let r = &mut self.running[at];
            r.num_scheduled_tokens = new;
            // Draft tokens that the request held and that this step did not schedule are lost.
            r.num_spec_tokens = 0;
            let end = r.num_computed_tokens + new;
            r.num_cacheable_tokens = r.num_cacheable_tokens.max(end.min(r.num_tokens));
            self.pace.prefill_scheduled |= r.prefilling;
            if r.prefilling || self.rules.decodes_finish_prompts() {
                self.kv_cache_manager.cache_blocks(self.asked.workload(), r, r.num_cacheable_tokens);
            }
            self.scratch.token_budget -= new + slots;
            scheduled += 1;
            at += 1;
        }
        scheduled
    }

    /// Without a drafter: schedules one token for each of the first running requests, as long as the token budget
    /// lasts. Stops at the first request that is in prefill or that finds no KV slot. Returns how many requests it
    /// looked at, and how many it scheduled.
    #[inline]
    fn schedule_plain_decodes(&mut self) -> (usize, usize) {
        let mut done = 0;
        let most = self.running.len().min(self.scratch.token_budget as usize);
        for r in &mut self.running[..most] {
            let end = r.num_computed_tokens + 1;
            if r.prefilling || !self.kv_cache_manager.allocate_slots(r, end) {
                break;
            }
            r.num_scheduled_tokens = 1;
            r.num_cacheable_tokens = end;
            done += 1;
        }
        self.scratch.token_budget -= done as u32;
        self.scratch.leading = done;
        (done, done)
    }

    /// Like [`schedule_plain_decodes`](Self::schedule_plain_decodes), for async scheduling. Leaves out the requests
    /// that certainly end with the step in flight.
    #[inline]
    fn schedule_plain_decodes_ahead(&mut self) -> (usize, usize) {
        let (mut looked, mut done, mut leading) = (0, 0, None);
        let room = self.rules.max_model_len - 1;
        let most = self.running.len().min(self.scratch.token_budget as usize);
        for r in &mut self.running[..most] {
            if surely_ends(r) {
                (looked, leading) = (looked + 1, leading.or(Some(done)));
                continue;
            }
            let end = r.num_computed_tokens + 1;
            if r.prefilling || end > room || !self.kv_cache_manager.allocate_slots(r, end) {
                break;
            }
            r.num_scheduled_tokens = 1;
            r.num_cacheable_tokens = r.num_tokens.min(end);
            (looked, done) = (looked + 1, done + 1);
        }
        self.scratch.token_budget -= done as u32;
        self.scratch.leading = leading.unwrap_or(done);
        (looked, done)
    }

    /// With a drafter: schedules the first running requests, as long as the token budget lasts. Stops at the first
    /// request that is in prefill or for which another request would have to be preempted. Returns how many requests it
    /// looked at, and how many it scheduled.
    fn schedule_leading_decodes(&mut self) -> (usize, usize) {
        if self.scratch.threshold > 0 || self.rules.decodes_finish_prompts() {
            return (0, 0);
        }
        let num_spec_tokens = self.scratch.num_spec_tokens;
        match self.rules.order {
            Order::StepStart => {
                let equal = self.schedule_equal_decodes();
                let spec_of = |r: &RunningRequest| num_spec_tokens & u32::from(r.may_draft).wrapping_neg();
                self.schedule_decodes_while(equal, spec_of, |_| false, |_| {})
            }
            Order::StepEnd => self.schedule_decodes_while(0, |r| r.num_spec_tokens, |_| false, lose_drafts),
            Order::Async => self.schedule_decodes_while(
                0,
                |r| r.num_spec_tokens,
                surely_ends,
                |r| {
                    lose_drafts(r);
                    // Draft tokens of a step in flight count as computed, but the target may still reject them. So at
                    // most the prompt and the emitted tokens can be cached.
                    r.num_cacheable_tokens = r.num_cacheable_tokens.min(r.num_tokens);
                },
            ),
        }
    }

    /// Fast path: schedules the first decode requests of the running list that all get the same number of draft tokens.
    /// One division tells how many of them fit into the token budget. Returns how many requests were scheduled.
    #[inline]
    fn schedule_equal_decodes(&mut self) -> usize {
        let Rules { max_model_len, num_lookahead_tokens, draft_slots, .. } = self.rules;
        let new = 1 + self.scratch.num_spec_tokens;
        let (slots, charge) = (new + num_lookahead_tokens, new + draft_slots);
        let most = self.running.len().min((self.scratch.token_budget / charge) as usize);
        let mut done = 0;
        for r in &mut self.running[..most] {
            let computed = r.num_computed_tokens;
            let end = computed + slots;
            // A request near `max_model_len` may have too few positions left for all its draft tokens.
            if r.prefilling | !r.may_draft || end >= max_model_len || !self.kv_cache_manager.allocate_slots(r, end) {
                break;
            }
            r.num_scheduled_tokens = new;
            r.num_cacheable_tokens = computed + 1;
            done += 1;
        }
        self.scratch.token_budget -= done as u32 * charge;
        done
    }

    /// The loop of [`schedule_leading_decodes`](Self::schedule_leading_decodes). It is inlined for each order of a
    /// step's phases, so that it stays fast. The first `from` requests are scheduled already. `spec_of` returns the
    /// number of draft tokens of a request. `ends` says whether the step in flight ends a request. `scheduled` is
    /// called for each scheduled request.
    #[inline(always)]
    fn schedule_decodes_while(
        &mut self,
        from: usize,
        spec_of: impl Fn(&RunningRequest) -> u32,
        ends: impl Fn(&RunningRequest) -> bool,
        scheduled: impl Fn(&mut RunningRequest),
    ) -> (usize, usize) {
        let Rules { max_model_len, num_lookahead_tokens, draft_slots, .. } = self.rules;
        let (mut budget, mut looked, mut done, mut leading) = (self.scratch.token_budget, from, from, None);
        for r in &mut self.running[from..] {
            if ends(r) {
                (looked, leading) = (looked + 1, leading.or(Some(done)));
                continue;
            }
            if r.prefilling {
                break;
            }
            let computed = r.num_computed_tokens;
            let mut new = 1 + spec_of(r);
            let mut slots = computed + new + num_lookahead_tokens;
            if slots >= max_model_len {
                // A request near `max_model_len` may have too few positions left for its new draft tokens, if all draft
                // tokens in flight are accepted.
                new = new.min((max_model_len - 1).saturating_sub(computed));
                slots = (computed + new + num_lookahead_tokens).min(max_model_len);
                if new == 0 {
                    break;
                }
            }
            if new + draft_slots > budget || !self.kv_cache_manager.allocate_slots(r, slots) {
                break;
            }
            r.num_scheduled_tokens = new;
            r.num_cacheable_tokens = computed + 1;
            scheduled(r);
            budget -= new + draft_slots;
            (looked, done) = (looked + 1, done + 1);
        }
        self.scratch.token_budget = budget;
        self.scratch.leading = leading.unwrap_or(done);
        (looked, done)
    }

    /// Finds KV slots for `new` tokens of the running request at index `at`. If slots are lacking, preempts other
    /// requests and, at last, the request itself. The tokens that were scheduled for a preempted request go back to the
    /// token budget, and `scheduled` is lowered by one. Returns `None` if the request was the only running one and had
    /// to be rejected.
    fn make_room(&mut self, at: usize, new: u32, scheduled: &mut usize) -> Option<Room> {
        let mut at = at;
        loop {
            let r = &mut self.running[at];
            let tokens = (r.num_computed_tokens + new + self.rules.num_lookahead_tokens).min(self.rules.max_model_len);
            if self.kv_cache_manager.allocate_slots(r, tokens) {
                return Some(Room::Found(at));
            }
            if self.running.len() == 1 && self.rules.guarded && self.handed.is_empty() {
                return self.last_resort();
            }
            let victim = self.victim();
            let gone = &self.running[victim];
            if gone.num_scheduled_tokens > 0 {
                self.scratch.token_budget += gone.num_scheduled_tokens + self.rules.draft_slots;
                *scheduled -= 1;
            }
            self.preempt(victim);
            if victim == at {
                return Some(Room::GoneItself(at));
            }
            at -= usize::from(victim < at);
        }
    }

    /// For the only running request, if the whole pool has too few slots for it: tries to find a slot for one token,
    /// without draft tokens and lookahead slots. If that fails too, or if the request is in prefill, rejects the
    /// request.
    fn last_resort(&mut self) -> Option<Room> {
        let r = &mut self.running[0];
        if !r.prefilling && self.kv_cache_manager.allocate_slots(r, r.num_computed_tokens + 1) {
            return Some(Room::ForOne);
        }
        self.reject_running();
        None
    }

    /// The index in the running list of the request to preempt. This is the last request of the list. Under priority
    /// scheduling it is the request with the lowest priority (the highest value); among requests of equal priority, the
    /// last to arrive. If they arrived at the same time, it is the first of them in the list, as in vLLM, or with our
    /// own rules the one with the highest number. The number is not the id: an id may have belonged to an earlier
    /// request.
    fn victim(&self) -> usize {
        if self.rules.policy == SchedulingPolicy::Fcfs {
            return self.running.len() - 1;
        }
        let number = |r: &RunningRequest| if self.rules.guarded { self.asked.workload().number(r.id) } else { 0 };
        let rank = |r: &RunningRequest| (r.priority, r.arrival, number(r));
        let worse = |worst, at| if rank(&self.running[at]) > rank(&self.running[worst]) { at } else { worst };
        (1..self.running.len()).fold(0, worse)
    }

    /// Returns `tokens`, or the step's limit on prompt tokens of one request if that limit is lower.
    pub(super) fn limited(&self, tokens: u32) -> u32 {
        if self.scratch.threshold > 0 { tokens.min(self.scratch.threshold) } else { tokens }
    }
}

/// Sets the number of draft tokens that a scheduled request holds to 0: draft tokens that were not scheduled are lost.
fn lose_drafts(r: &mut RunningRequest) {
    r.num_spec_tokens = 0;
}

/// Whether the step in flight gives the request its last token even if the target rejects all draft tokens.
fn surely_ends(r: &RunningRequest) -> bool {
    let prompt = r.num_tokens - r.num_output_tokens;
    r.num_output_placeholders > 0
        && r.num_computed_tokens + 2 - r.num_output_placeholders >= prompt.saturating_add(r.max_tokens_asked)
}

impl Scheduler<'_> {
    /// What the next step could run, as far as slots allow.
    pub(crate) fn runnable(&self) -> Runnable {
        let slots = self.rules.max_num_active_seqs as usize;
        let begins = self.num_waiting() > 0 && self.running.len() < slots;
        let decodes = self.running.iter().filter(|r| !r.prefilling && !surely_ends(r)).count();
        Runnable { prompts: begins || self.running.iter().any(|r| r.prefilling), decodes, slots }
    }

    /// Whether steps have no prompts from now on.
    pub(crate) fn hold_prompts(&mut self, held: bool) {
        self.pace.held = held;
    }
}

impl Rules {
    /// Most prompt tokens of a request in a step; 0 for no limit. `eligible` is the number of running and waiting
    /// requests.
    #[inline]
    pub(super) fn threshold(&self, eligible: usize) -> u32 {
        let threshold = self.long_prefill_token_threshold;
        if threshold == 0 || (eligible <= 1 && self.lift_threshold_when_alone) {
            return 0;
        }
        match self.long_prefill_token_threshold_adaptive {
            true => threshold.max(self.max_num_batched_tokens / eligible as u32),
            false => threshold,
        }
    }

    /// Whether decoding can complete a block that other requests may share, namely the block at the end of a prompt.
    /// The hash of this block is known only when the request has decoded tokens after the block. If false, decoded
    /// tokens are of no use to other requests and are cached only when the request gives back its blocks.
    #[inline]
    pub(super) fn decodes_finish_prompts(&self) -> bool {
        self.num_prefill_lookahead_tokens > 1 && self.num_hash_lookahead_tokens == 0
    }

    /// Shortens a prefill chunk that would leave too few prompt tokens for later chunks. `left` is the number of prompt
    /// tokens to compute, and `new` is the planned length of the next chunk. After the chunk either no prompt token may
    /// remain, or at least as many as the prefill lookahead (`num_prefill_lookahead_tokens`). Returns the allowed
    /// length, at most `new`; it may be 0. Only drafters with several MTP modules have a lookahead above 1.
    pub(super) fn off_the_end(&self, left: u32, new: u32) -> u32 {
        let remaining = left.saturating_sub(new);
        if 0 < remaining && remaining < self.num_prefill_lookahead_tokens {
            return new.saturating_sub(self.num_prefill_lookahead_tokens - remaining);
        }
        new
    }
}
