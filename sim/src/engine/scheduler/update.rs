//! After the target pass: tokens are appended, rejected drafts rolled back, prompts move on, requests end.

use super::Scheduler;
use crate::engine::request::RunningRequest;
use crate::engine::spec_decode::SpecDecode;
use crate::metrics::Totals;
use crate::{DraftGap, StepRecord, Time};

/// What a step's decode requests brought.
#[derive(Default)]
struct Sums {
    emitted: u32,
    drafted: u32,
    verified: u32,
    accepted: u32,
    finished: u32,
    /// Requests that also emitted at the end of the step before.
    since_last: u32,
}

impl Scheduler<'_> {
    /// vLLM's `update_draft_token_ids`: `drafts` says how many drafts each request of the running list holds from now on.
    pub fn update_draft_tokens(&mut self, mut drafts: impl FnMut(&RunningRequest) -> u32) {
        for r in self.running.iter_mut().filter(|r| !r.prefilling) {
            r.num_spec_tokens = drafts(r);
        }
    }

    /// Makes the step that ended at `end` part of the requests; returns what the scheduler knows of it.
    pub fn update_from_output(&mut self, spec: &SpecDecode, end: Time, totals: &mut Totals) -> StepRecord {
        let mut record = StepRecord {
            step: self.current_step,
            batch_size: self.output.batch.len() as u32,
            chunks: self.output.prefill.chunks,
            chunk_tokens: self.output.prefill.tokens,
            context: self.output.batch.context_sum(),
            waiting: self.waiting.len() as u32,
            draft_passes: spec.passes,
            used_blocks: self.kv_cache_manager.used(),
            preempted: self.output.preempted.len() as u32,
            ..StepRecord::default()
        };
        let sums = match self.drafting {
            true => self.update_drafted(spec, end, totals),
            false => self.update_plain(end, totals),
        };
        if sums.since_last > 0 {
            totals.gaps.record(end - self.last_end, sums.since_last);
        }
        (record.drafted, record.verified, record.accepted) = (sums.drafted, sums.verified, sums.accepted);
        let (emitted, finished) = self.update_chunks(end, totals);
        record.emitted = sums.emitted + emitted;
        if sums.finished + finished > 0 {
            self.remove_finished(end);
        }
        self.last_end = end;
        self.current_step += 1;
        record
    }

    /// Every decode request gets a token.
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

    /// Every decode request gets what was accepted and a token more.
    fn update_drafted(&mut self, spec: &SpecDecode, end: Time, totals: &mut Totals) -> Sums {
        let mut sums = Sums::default();
        let n = self.output.batch.len();
        let (drafts, accepted) = (&spec.drafts, &spec.accepted[..n]);
        let (drafted, verified, in_trees) = (&drafts.draft_len[..n], &drafts.verify_len[..n], drafts.in_trees());
        let (keeps_kv, gap) = (self.config.draft_prefill, self.config.draft_gap);
        for (i, &at) in self.output.batch.at().iter().enumerate() {
            let r = &mut self.running[at as usize];
            let (drafted, verified, accepted) = (drafted[i], verified[i], accepted[i]);
            let tokens = 1 + accepted;
            // Of a tree all tokens count as drafted and verified, whatever path they are on.
            let (all_drafted, all_verified) = if in_trees { drafts.tokens(i) } else { (drafted, verified) };
            r.done.drafted += all_drafted;
            r.done.verified += all_verified;
            r.done.accepted += accepted;
            r.done.rounds += u32::from(verified > 0);
            sums.drafted += all_drafted;
            sums.verified += all_verified;
            sums.accepted += accepted;
            totals.verified_accepted[verified as usize][accepted as usize] += 1;
            // The draft ran over the new token and over what it expanded: all its drafts but the last in a chain, none
            // where they came out of one pass. What was rejected is overwritten.
            let computed = r.num_computed_tokens;
            match gap {
                _ if !keeps_kv => r.num_draft_computed_tokens = computed + tokens,
                _ if drafted > 0 && spec.in_parallel => r.num_draft_computed_tokens = computed + 1,
                _ if drafted > 0 && in_trees => r.num_draft_computed_tokens = computed + 1 + drafts.trees[i].fed(),
                _ if drafted > 0 => r.num_draft_computed_tokens = computed + drafted.min(tokens),
                DraftGap::CatchUpNextUse => {}
                DraftGap::AlwaysExtend => r.num_draft_computed_tokens = computed,
                DraftGap::Permanent => r.may_draft = false,
            }
            append(r, tokens, (self.last_end, end), &mut sums, totals);
        }
        sums
    }

    /// Prompts move on; those that end emit a token. Returns tokens emitted and requests that ended.
    fn update_chunks(&mut self, end: Time, totals: &mut Totals) -> (u32, u32) {
        let (mut emitted, mut finished) = (0, 0);
        if self.output.chunks.is_empty() {
            return (0, 0);
        }
        for r in self.running.iter_mut().filter(|r| r.prefilling) {
            // What an admission was padded with stands for no token.
            let computed = r.num_computed_tokens + std::mem::take(&mut r.num_scheduled_tokens);
            r.num_computed_tokens = computed.min(r.num_tokens);
            if !(self.drafting && self.config.draft_prefill) {
                // A draft that keeps no KV has no gaps.
                r.num_draft_computed_tokens = r.num_computed_tokens;
            }
            if r.num_computed_tokens < r.num_tokens {
                continue;
            }
            r.prefilling = false;
            r.num_output_tokens += 1;
            r.num_tokens += 1;
            emitted += 1;
            if r.last_emit == Time::MAX {
                self.output.first_tokens.push(r.id);
            } else {
                totals.gaps.record(end - r.last_emit, 1);
            }
            r.last_emit = end;
            finished += u32::from(r.num_output_tokens == r.max_tokens);
        }
        (emitted, finished)
    }
}

/// Appends what a decode request emitted at the end of a step. `ends`: of the step before, and of this one.
#[inline(always)]
fn append(r: &mut RunningRequest, tokens: u32, (last_end, end): (Time, Time), sums: &mut Sums, totals: &mut Totals) {
    // Rollback: of verified + 1 scheduled tokens, accepted + 1 stay; the blocks are kept and overwritten.
    r.num_computed_tokens += tokens;
    let emitted = tokens.min(r.max_tokens - r.num_output_tokens);
    r.num_output_tokens += emitted;
    r.num_tokens += emitted;
    r.num_scheduled_tokens = 0;
    sums.emitted += emitted;
    if r.last_emit == last_end {
        sums.since_last += 1;
    } else {
        totals.gaps.record(end - r.last_emit, 1);
    }
    r.last_emit = end;
    sums.finished += u32::from(r.num_output_tokens == r.max_tokens);
}

/// Appends the one token that a decode request emits without drafts.
#[inline(always)]
fn append_one(r: &mut RunningRequest, (last_end, end): (Time, Time), sums: &mut Sums, totals: &mut Totals) {
    r.num_computed_tokens += 1;
    r.num_output_tokens += 1;
    r.num_tokens += 1;
    r.num_scheduled_tokens = 0;
    if r.last_emit == last_end {
        sums.since_last += 1;
    } else {
        totals.gaps.record(end - r.last_emit, 1);
    }
    r.last_emit = end;
    sums.finished += u32::from(r.num_output_tokens == r.max_tokens);
}
