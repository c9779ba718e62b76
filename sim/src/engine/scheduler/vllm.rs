//! `schedule()` of vLLM's V1 scheduler, rule for rule, for one group of full attention and synchronous steps.
//!
//! There is no decoding phase and no prefill phase: every request has computed tokens and wants its tokens and its drafts
//! computed. Held to vLLM's own class by the recorded schedules of `tests/vllm/`.

use super::Scheduler;
use super::rules::{Release, Rules, SchedulerSettings, SchedulingPolicy};
use crate::Time;
use crate::engine::request::RunningRequest;
use crate::engine::scheduler_output::Admission;

/// A scheduler that follows a release, with what it remembers from step to step.
#[derive(Debug)]
pub(super) struct Vllm {
    pub(super) settings: SchedulerSettings,
    pub(super) rules: Rules,
    /// Could the last step that prefilled not empty the waiting list? Then prefills are not held back.
    prefill_capacity_bound: bool,
    /// Steps that scheduled tokens.
    num_executed_steps: i64,
    /// The last of them that prefilled.
    last_prefill_step: i64,
}

/// Budgets and findings of a step.
struct Step {
    token_budget: u32,
    input_budget: u32,
    /// The longest piece of a request's tokens; 0 is no limit.
    threshold: u32,
    /// Are prefills held back?
    defer_prefills: bool,
    prefill_scheduled: bool,
    prefill_admitted: bool,
    /// Running requests scheduled so far.
    scheduled: usize,
    drafts_needed: bool,
}

impl Vllm {
    pub(super) fn new(settings: SchedulerSettings, rules: Rules) -> Vllm {
        let interval = i64::from(settings.prefill_schedule_interval);
        Vllm { settings, rules, prefill_capacity_bound: false, num_executed_steps: 0, last_prefill_step: -interval }
    }

    fn step(&self, eligible: usize, decodes: bool) -> Step {
        let s = &self.settings;
        let spared = eligible <= 1 && self.rules.lift_threshold_when_alone;
        let mut threshold = if spared { 0 } else { s.long_prefill_token_threshold };
        if threshold > 0 && s.long_prefill_token_threshold_adaptive {
            threshold = threshold.max(s.max_num_batched_tokens / eligible as u32);
        }
        let interval = i64::from(s.prefill_schedule_interval);
        let due = self.num_executed_steps + 1 - self.last_prefill_step >= interval;
        let paced = self.rules.release >= Release::V0_33 && interval > 1;
        Step {
            token_budget: s.max_num_batched_tokens,
            input_budget: s.max_num_batched_tokens,
            threshold,
            defer_prefills: paced && !self.prefill_capacity_bound && !due && decodes,
            prefill_scheduled: false,
            prefill_admitted: false,
            scheduled: 0,
            drafts_needed: !self.rules.can_skip_drafts,
        }
    }
}

impl Step {
    fn take(&mut self, tokens: u32, slots: u32) {
        self.token_budget -= tokens;
        self.input_budget -= tokens + slots;
    }

    fn limited(&self, tokens: u32) -> u32 {
        if self.threshold > 0 { tokens.min(self.threshold) } else { tokens }
    }
}

impl Scheduler<'_> {
    pub(super) fn schedule_vllm(&mut self, v: &mut Vllm) {
        let decodes = self.running.iter().any(|r| !r.prefilling);
        let mut step = v.step(self.running.len() + self.waiting.len(), decodes);
        self.schedule_running_vllm(v, &mut step);
        if self.output.preempted.is_empty() {
            self.schedule_waiting_vllm(v, &mut step);
        }
        let scheduled = self.running.iter().filter(|r| r.num_scheduled_tokens > 0).count();
        v.num_executed_steps += i64::from(scheduled > 0);
        if v.settings.prefill_schedule_interval > 1 && (step.prefill_scheduled || step.prefill_admitted) {
            v.last_prefill_step = v.num_executed_steps;
        }
        self.output.num_spec_tokens_to_schedule = match &v.rules.per_batch_size {
            Some(table) if scheduled > 0 => table[scheduled],
            _ => v.settings.num_speculative_tokens,
        };
        self.output.skip_drafts = !step.drafts_needed;
    }

    fn schedule_running_vllm(&mut self, v: &Vllm, step: &mut Step) {
        let (slots, max_model_len) = (v.rules.draft_slots, v.settings.max_model_len);
        let mut at = 0;
        while at < self.running.len() && step.token_budget > 0 && step.input_budget > slots {
            let r = &self.running[at];
            if step.defer_prefills && r.prefilling {
                at += 1;
                continue;
            }
            let want = step.limited(r.num_tokens + r.num_spec_tokens - r.num_computed_tokens);
            let want = want.min(step.token_budget).min(step.input_budget - slots);
            // One position is the sampled token's.
            let want = want.min((max_model_len - 1).saturating_sub(r.num_computed_tokens));
            let new = v.rules.off_the_end(r.num_tokens - r.num_computed_tokens.min(r.num_tokens), want);
            if new == 0 {
                at += 1;
                continue;
            }
            match self.make_room_vllm(v, step, at, new) {
                Room::Found(place) => at = place,
                Room::GoneItself(place) if v.rules.goes_on_after_self_preemption => {
                    at = place;
                    continue;
                }
                Room::GoneItself(_) => break,
            }
            let r = &mut self.running[at];
            r.num_scheduled_tokens = new;
            // Drafts that did not fit are lost.
            r.num_spec_tokens = 0;
            let end = r.num_computed_tokens + new;
            r.num_cacheable_tokens = r.num_cacheable_tokens.max(end.min(r.num_tokens));
            if r.prefilling {
                self.kv_cache_manager.cache_blocks(r, r.num_cacheable_tokens);
            }
            step.take(new, slots);
            step.prefill_scheduled |= r.prefilling;
            step.drafts_needed |= end >= r.num_tokens && r.num_output_tokens + 1 < r.max_tokens_asked;
            step.scheduled += 1;
            at += 1;
        }
    }

    /// Finds slots for `new` tokens of the running request at `at`, preempting others or, last, itself.
    fn make_room_vllm(&mut self, v: &Vllm, step: &mut Step, mut at: usize, new: u32) -> Room {
        loop {
            let r = &mut self.running[at];
            let tokens = (r.num_computed_tokens + new + v.rules.num_lookahead_tokens).min(v.settings.max_model_len);
            if self.kv_cache_manager.allocate_slots(r, tokens) {
                return Room::Found(at);
            }
            let victim = self.victim(v.settings.policy);
            let gone = &self.running[victim];
            if gone.num_scheduled_tokens > 0 {
                step.token_budget += gone.num_scheduled_tokens;
                step.input_budget += gone.num_scheduled_tokens + v.rules.draft_slots;
                step.scheduled -= 1;
            }
            self.preempt(victim);
            if victim == at {
                return Room::GoneItself(at);
            }
            at -= usize::from(victim < at);
        }
    }

    fn victim(&self, policy: SchedulingPolicy) -> usize {
        if policy == SchedulingPolicy::Fcfs {
            return self.running.len() - 1;
        }
        let rank = |at: usize| (self.running[at].priority, self.running[at].arrival);
        (1..self.running.len()).fold(0, |worst, at| if rank(at) > rank(worst) { at } else { worst })
    }

    fn schedule_waiting_vllm(&mut self, v: &mut Vllm, step: &mut Step) {
        let slots = v.rules.draft_slots;
        let mut aside = Vec::new();
        while step.token_budget > 0
            && step.input_budget > slots
            && self.running.len() < v.rules.max_num_active_seqs as usize
        {
            let Some(head) = self.waiting.peek() else { break };
            let mut r = self.activate(head);
            let found = self.kv_cache_manager.get_computed_blocks(r.id, r.num_tokens);
            let computed = found.num_tokens;
            let left = r.num_tokens - computed;
            if step.defer_prefills && left > 1 {
                break;
            }
            let limit = step.token_budget.min(step.input_budget - slots);
            let Some(padded) = v.padded(step, computed, left, limit) else { break };
            let mut new = step.limited(padded.unwrap_or(left));
            if !v.settings.chunked_prefill && new > limit {
                break;
            }
            new = v.rules.off_the_end(left, new.min(limit));
            if new == 0 {
                if v.rules.release == Release::V0_32 {
                    break;
                }
                aside.extend(self.waiting.pop());
                continue;
            }
            let tokens = (computed + new + v.rules.num_lookahead_tokens).min(v.settings.max_model_len);
            let busy = !self.running.is_empty();
            r.num_cacheable_tokens = (computed + new).min(r.num_tokens);
            if !self.kv_cache_manager.allocate_new(&mut r, found, tokens, busy) {
                break;
            }
            self.kv_cache_manager.cache_blocks(&r, r.num_cacheable_tokens);
            self.waiting.pop();
            r.num_computed_tokens = computed;
            let prompt = r.num_tokens - r.num_output_tokens;
            r.num_draft_computed_tokens = computed.min(head.num_draft_computed_tokens.max(prompt));
            r.num_scheduled_tokens = new;
            step.take(new, slots);
            step.prefill_admitted |= left > 1;
            step.drafts_needed |= new >= left && r.num_output_tokens + 1 < r.max_tokens_asked;
            self.output.admitted.push(Admission { id: r.id, num_cached_tokens: computed });
            self.running.push(r);
        }
        let put_aside = aside.len();
        aside.into_iter().rev().for_each(|r| self.waiting.prepend(r));
        if !step.defer_prefills {
            v.prefill_capacity_bound = self.waiting.len() > put_aside;
        }
    }
}

/// What came of looking for slots.
enum Room {
    /// There are; the request now stands here in the running list.
    Found(usize),
    /// It had to go itself; the next request now stands here.
    GoneItself(usize),
}

impl Vllm {
    /// The tokens of an admission with one token left, padded to those of a decode request with drafts: `Some(None)` where it
    /// is not padded, `None` where it must wait because the padding does not fit.
    fn padded(&self, step: &Step, computed: u32, left: u32, limit: u32) -> Option<Option<u32>> {
        let padding = self.rules.pad_admissions;
        let decodes_only = !step.prefill_scheduled && (step.scheduled > 0 || computed > 0);
        let fits_model = computed + padding + 2 <= self.settings.max_model_len;
        if padding == 0 || left != 1 || !decodes_only || !fits_model {
            return Some(None);
        }
        (padding < limit).then_some(Some(1 + padding))
    }
}

impl Rules {
    /// `new` of the `left` tokens of a prompt, shortened so that the chunk does not end within the prefill lookahead of its
    /// end; 0 when nothing is left of it. Only drafters with several MTP modules look further ahead than 1.
    fn off_the_end(&self, left: u32, new: u32) -> u32 {
        let remaining = left.saturating_sub(new);
        if 0 < remaining && remaining < self.num_prefill_lookahead_tokens {
            return new.saturating_sub(self.num_prefill_lookahead_tokens - remaining);
        }
        new
    }
}

/// What the model and the drafter made of a step, request by request.
pub trait StepResult {
    /// Of `drafts` scheduled drafts of a request, how many its target accepted.
    fn accepted(&mut self, request: &RunningRequest, drafts: u32) -> u32;

    /// How many drafts a request gets that goes on and is not in the middle of its prompt.
    fn proposed(&mut self, request: &RunningRequest) -> u32;
}

impl Scheduler<'_> {
    /// Makes the step that ended at `end` part of the requests, as vLLM's `update_from_output` and `update_draft_token_ids` do.
    pub fn update_from_result(&mut self, result: &mut impl StepResult, end: Time) {
        let cache = self.vllm.as_ref().is_some_and(|v| v.rules.cache_when_verified);
        for r in self.running.iter_mut().filter(|r| r.num_scheduled_tokens > 0) {
            let computed = r.num_computed_tokens + std::mem::take(&mut r.num_scheduled_tokens);
            if computed < r.num_tokens {
                r.num_computed_tokens = computed;
                continue;
            }
            let drafts = computed - r.num_tokens;
            // What an admission was padded with stands for no draft.
            let accepted = result.accepted(r, if r.prefilling { 0 } else { drafts });
            r.prefilling = false;
            r.num_computed_tokens = r.num_tokens + accepted;
            let emitted = (1 + accepted).min(r.max_tokens - r.num_output_tokens);
            r.num_output_tokens += emitted;
            r.num_tokens += emitted;
            r.last_emit = end;
            if cache {
                r.num_cacheable_tokens = r.num_cacheable_tokens.max(r.num_tokens - 1);
            }
            if r.num_output_tokens < r.max_tokens {
                r.num_spec_tokens = result.proposed(r);
            }
        }
        self.remove_finished(end);
        self.last_end = end;
        self.current_step += 1;
    }
}
