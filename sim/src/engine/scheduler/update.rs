//! After the target pass: appends tokens, rolls back rejected drafts, advances prompts, ends requests.

use super::rules::Order;
use super::state::Scheduler;
use super::sums::{Sums, append, append_one, begin_output};
use crate::config::{DraftAt, DraftGap};
use crate::engine::request::RunningRequest;
use crate::engine::spec_decode::SpecDecode;
use crate::metrics::{StepRecord, Totals};
use crate::time::Time;

impl Scheduler<'_> {
    /// vLLM's `update_draft_token_ids`: `drafts` returns how many drafts each running request holds from now on.
    pub fn update_draft_tokens(&mut self, mut drafts: impl FnMut(&RunningRequest) -> u32) {
        for r in self.running.iter_mut().filter(|r| !r.prefilling) {
            r.num_spec_tokens = drafts(r);
        }
    }

    /// Begins the record of the step, with what is known before it runs.
    #[inline]
    pub fn begin_record(&mut self) -> StepRecord {
        self.current_step += 1;
        StepRecord {
            step: self.output.step,
            batch_size: self.output.batch.len() as u32,
            chunks: self.output.prefill.chunks,
            chunk_tokens: self.output.prefill.tokens,
            context: self.output.batch.context_sum(),
            waiting: self.waiting.len() as u32,
            used_blocks: self.kv_cache_manager.used(),
            preempted: self.output.preempted.len() as u32,
            ..StepRecord::default()
        }
    }

    /// Applies the step that ended at `end` to the requests, and completes its record.
    pub fn update_from_output(&mut self, spec: &SpecDecode, end: Time, totals: &mut Totals, record: &mut StepRecord) {
        let sums = match (self.rules.order, self.rules.drafter) {
            (Order::Async, _) => self.update_in_flight(spec, end, totals),
            (_, true) => self.update_drafted(spec, end, totals),
            (_, false) => self.update_plain(end, totals),
        };
        if sums.since_last > 0 {
            totals.gaps.record(end - self.last_end, sums.since_last);
        }
        (record.drafted, record.verified, record.accepted) = (sums.drafted, sums.verified, sums.accepted);
        let (emitted, finished) = match self.rules.order {
            Order::Async => self.update_chunks_in_flight(end, totals),
            _ => self.update_chunks(end, totals),
        };
        record.emitted = sums.emitted + emitted;
        if self.rules.order == Order::Async && self.rules.decodes_finish_prompts() {
            self.cache_verified();
        }
        if sums.finished + finished > 0 {
            self.remove_finished(end);
        }
        self.last_end = end;
    }

    /// Gives every decode request one token.
    fn update_plain(&mut self, end: Time, totals: &mut Totals) -> Sums {
        let (mut sums, ends, n) = (Sums::default(), (self.last_end, end), self.output.batch.len());
        if n == self.running.len() {
            self.running.iter_mut().for_each(|r| append_one(r, ends, &mut sums, totals));
        } else {
            let decodes = self.output.batch.at().iter();
            decodes.for_each(|&at| append_one(&mut self.running[at as usize], ends, &mut sums, totals));
        }
        sums.emitted = n as u32;
        totals.verified_accepted[0][0] += n as u64;
        sums
    }

    /// Gives every decode request its accepted drafts and one more token.
    fn update_drafted(&mut self, spec: &SpecDecode, end: Time, totals: &mut Totals) -> Sums {
        let mut sums = Sums::default();
        let n = self.output.batch.len();
        let drafts = &spec.drafts;
        // With drafts at the end of a step the draft runs over all tokens of the step.
        let keeps_kv = self.config.draft_prefill && self.rules.draft_at == DraftAt::StepStart;
        let (gap, ends) = (self.config.draft_gap, (self.last_end, end));
        let columns = drafts.draft_len[..n].iter().zip(&drafts.verify_len[..n]).zip(&spec.accepted[..n]);
        if n == self.running.len() && !keeps_kv && !drafts.in_trees() {
            for (r, ((&drafted, &verified), &accepted)) in self.running.iter_mut().zip(columns) {
                r.num_draft_computed_tokens = r.num_computed_tokens + 1 + accepted;
                sums.count(&mut r.done, drafted, verified, accepted);
                totals.verified_accepted[verified as usize][accepted as usize] += 1;
                r.num_computed_tokens += 1 + accepted;
                append(r, 1 + accepted, ends, &mut sums, totals);
            }
            return sums;
        }
        for (i, &at) in self.output.batch.at().iter().enumerate() {
            let r = &mut self.running[at as usize];
            let (verified, accepted) = (drafts.verify_len[i], spec.accepted[i]);
            draft_ran(r, spec, i, keeps_kv.then_some(gap));
            // All tokens of a tree count as drafted and verified, on any path.
            let (all_drafted, all_verified) = drafts.tokens(i);
            sums.count(&mut r.done, all_drafted, all_verified, accepted);
            totals.verified_accepted[verified as usize][accepted as usize] += 1;
            // Rollback: of verified + 1 scheduled tokens accepted + 1 stay; the blocks are kept and overwritten.
            r.num_computed_tokens += 1 + accepted;
            append(r, 1 + accepted, ends, &mut sums, totals);
        }
        sums
    }

    /// Advances the prompts; a prompt that ends emits a token. Returns the tokens emitted and the number of requests
    /// that ended.
    fn update_chunks(&mut self, end: Time, totals: &mut Totals) -> (u32, u32) {
        let (mut emitted, mut finished) = (0, 0);
        if self.output.chunks.is_empty() {
            return (0, 0);
        }
        for r in self.running.iter_mut().filter(|r| r.prefilling) {
            // The padding of an admitted request is not a token.
            let computed = r.num_computed_tokens + std::mem::take(&mut r.num_scheduled_tokens);
            r.num_computed_tokens = computed.min(r.num_tokens);
            if !(self.rules.drafter && self.config.draft_prefill && self.rules.draft_at == DraftAt::StepStart) {
                // A draft without KV has no gaps.
                r.num_draft_computed_tokens = r.num_computed_tokens;
            }
            if r.num_computed_tokens < r.num_tokens {
                continue;
            }
            r.prefilling = false;
            emitted += 1;
            finished += u32::from(begin_output(r, end, &mut self.output.first_tokens, totals));
        }
        (emitted, finished)
    }
}

/// Updates how many tokens of the `i`-th decode request are in the draft's own KV after a step; `r` is still in the
/// state before the step. The KV has the new token and the drafts that the draft ran over: all but the last in a chain,
/// and none if one pass gave all. Rejected tokens are overwritten. A draft without KV (`gap` is `None`) never falls
/// behind.
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
