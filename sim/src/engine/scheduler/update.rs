//! After the target pass: appends tokens, rolls back rejected draft tokens, advances prompts, and ends requests.

use super::rules::Order;
use super::state::Scheduler;
use super::tally::Tally;
use crate::config::{DraftAt, DraftGap};
use crate::engine::request::RunningRequest;
use crate::engine::spec_decode::SpecDecode;
use crate::engine::step_result::StepResult;

impl Scheduler<'_> {
    /// vLLM's `update_draft_token_ids`: sets the number of draft tokens that each running request holds, except
    /// requests in prefill. `drafts` returns this number for a request.
    pub fn update_draft_tokens(&mut self, mut drafts: impl FnMut(&RunningRequest) -> u32) {
        for r in self.running.iter_mut().filter(|r| !r.prefilling) {
            r.num_spec_tokens = drafts(r);
        }
    }

    /// Applies the output of a step to the step's requests. Returns what happened to them.
    pub fn update_from_output(&mut self, spec: &SpecDecode) -> &StepResult {
        self.result.clear();
        let mut tally = Tally::default();
        self.apply_to_sglang(spec);
        match (self.rules.order, self.rules.drafter) {
            (Order::Async, _) => self.update_in_flight(spec, &mut tally),
            (_, true) => self.update_drafted(spec, &mut tally),
            (_, false) => self.update_plain(&mut tally),
        }
        match self.rules.order {
            _ if self.output.chunks.is_empty() => {}
            Order::Async => self.update_chunks_in_flight(&mut tally),
            _ => self.update_chunks(&mut tally),
        }
        self.result.emitted = tally.emitted;
        if self.rules.order == Order::Async && self.rules.decodes_finish_prompts() {
            self.cache_verified();
        }
        if tally.ended > 0 {
            self.remove_finished(tally.ended);
        }
        &self.result
    }

    /// For a step without a drafter: gives every decode request one token.
    fn update_plain(&mut self, tally: &mut Tally) {
        let n = self.output.batch.len();
        let advance = |r: &mut RunningRequest| r.num_computed_tokens += 1;
        if self.output.batch.leads() {
            return tally.append_one(&mut self.running[..n], advance);
        }
        for &at in self.output.batch.at() {
            tally.append_one(std::slice::from_mut(&mut self.running[at as usize]), advance);
        }
    }

    /// For a step with a drafter: gives every decode request its accepted draft tokens and one more token.
    fn update_drafted(&mut self, spec: &SpecDecode, tally: &mut Tally) {
        let n = self.output.batch.len();
        // If draft tokens are made at the end of a step, the draft model processes all tokens of the step, so it never
        // misses tokens.
        let keeps_kv = self.rules.draft_prefill && self.rules.draft_at == DraftAt::StepStart;
        if self.output.batch.leads() && !keeps_kv {
            let gaps = self.rules.draft_gaps;
            for (r, &accepted) in self.running[..n].iter_mut().zip(&spec.accepted[..n]) {
                r.num_computed_tokens += 1 + accepted;
                if gaps {
                    r.num_draft_computed_tokens = r.num_computed_tokens;
                }
                tally.append(r, 1 + accepted);
            }
            return;
        }
        let gap = keeps_kv.then_some(self.rules.draft_gap);
        for (i, &at) in self.output.batch.at().iter().enumerate() {
            let r = &mut self.running[at as usize];
            draft_ran(r, spec, i, gap);
            // Rollback: the step computed KV for 1 + verified tokens, and 1 + accepted of them stay. The blocks are
            // kept, and the KV of rejected draft tokens is overwritten.
            r.num_computed_tokens += 1 + spec.accepted[i];
            tally.append(r, 1 + spec.accepted[i]);
        }
    }

    /// Advances the prompts of the step's chunks. A prompt that ends emits a token.
    fn update_chunks(&mut self, tally: &mut Tally) {
        let draft_keeps_up =
            !(self.rules.drafter && self.rules.draft_prefill && self.rules.draft_at == DraftAt::StepStart);
        for r in self.running.iter_mut().filter(|r| r.prefilling) {
            // The padding tokens of an admitted request do not count as computed.
            let computed = r.num_computed_tokens + std::mem::take(&mut r.num_scheduled_tokens);
            r.num_computed_tokens = computed.min(r.num_tokens);
            if draft_keeps_up {
                // A drafter without KV, or a drafter that drafts at the end of a step, misses no tokens.
                r.num_draft_computed_tokens = r.num_computed_tokens;
            }
            if r.num_computed_tokens == r.num_tokens {
                r.prefilling = false;
                tally.append_first(r);
            }
        }
    }
}

/// After a step: updates how many tokens of the `i`-th decode request the draft model has processed. `r` still has the
/// counts from before the step.
///
/// If the request drafted, the draft model has processed the step's new token and some of the draft tokens: all but the
/// last of a chain, the accepted nodes of a tree that were expanded, none if one pass gave all draft tokens. Tokens
/// that the target rejected do not count. If the request did not draft, `gap` says whether the draft model misses the
/// tokens for now, has processed them, or never drafts for the request again. `gap` is `None` for a drafter without KV
/// or one that drafts at the end of a step; such a drafter never misses tokens.
#[inline]
fn draft_ran(r: &mut RunningRequest, spec: &SpecDecode, i: usize, gap: Option<DraftGap>) {
    let (computed, drafted, accepted) = (r.num_computed_tokens, spec.drafts.draft_len[i], spec.accepted[i]);
    match gap {
        None => r.num_draft_computed_tokens = computed + 1 + accepted,
        _ if drafted > 0 && spec.in_parallel => r.num_draft_computed_tokens = computed + 1,
        _ if drafted > 0 && spec.drafts.in_trees() => {
            r.num_draft_computed_tokens = computed + 1 + spec.drafts.trees[i].fed();
        }
        _ if drafted > 0 => r.num_draft_computed_tokens = computed + drafted.min(1 + accepted),
        Some(DraftGap::CatchUpNextUse) => {}
        Some(DraftGap::AlwaysExtend) => r.num_draft_computed_tokens = computed,
        Some(DraftGap::Permanent) => r.may_draft = false,
    }
}
