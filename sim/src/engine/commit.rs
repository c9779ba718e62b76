//! After the target pass: tokens are appended, rejected drafts rolled back, prompts move on, requests end.

use super::{Drafter, Engine};
use crate::executor::Executor;
use crate::{DraftGap, StepRecord, Time};

impl<E: Executor, D: Drafter<E>> Engine<'_, E, D> {
    /// Commits the step that ended at `record.end`; fills the record's token counts.
    pub(super) fn commit(&mut self, record: &mut StepRecord) {
        let ended = self.commit_decodes(record) + self.commit_chunks(record);
        if ended > 0 {
            self.remove_ended(record.end);
        }
    }

    fn commit_decodes(&mut self, record: &mut StepRecord) -> u32 {
        let (end, last_end, gap) = (record.end, self.last_end, self.config.draft_gap);
        let keeps_kv = self.config.draft_prefill;
        // Locals, so that the sums stay in registers.
        let mut sum = StepRecord::default();
        let (mut ended, mut since_last) = (0, 0);
        let n = self.work.columns.len();
        let filled = if D::ACTIVE { n } else { 0 };
        let (drafted, verified) = (&self.drafts.draft_len[..filled], &self.drafts.verify_len[..filled]);
        let (drafts, in_trees) = (&self.drafts, D::ACTIVE && self.drafts.in_trees());
        let parallel = self.executor.drafts_in_parallel();
        let (accepted, totals) = (&self.accepted[..filled], &mut self.out.totals);
        for (i, &at) in self.work.columns.at().iter().enumerate() {
            let a = &mut self.running[at as usize];
            let mut tokens = 1;
            if D::ACTIVE {
                let (drafted, verified, accepted) = (drafted[i], verified[i], accepted[i]);
                tokens += accepted;
                // Of a tree all tokens count as drafted and verified, whatever path they are on.
                let (all_drafted, all_verified) = if in_trees { drafts.tokens(i) } else { (drafted, verified) };
                a.drafted += all_drafted;
                a.verified += all_verified;
                a.accepted += accepted;
                a.rounds += u32::from(verified > 0);
                sum.drafted += all_drafted;
                sum.verified += all_verified;
                sum.accepted += accepted;
                totals.verified_accepted[verified as usize][accepted as usize] += 1;
                // The draft ran over the new token and over what it expanded: all its drafts but the last in a chain, none
                // where they came out of one pass. What was rejected is overwritten.
                match gap {
                    _ if !keeps_kv => a.seen = a.computed + tokens,
                    _ if drafted > 0 && parallel => a.seen = a.computed + 1,
                    _ if drafted > 0 && in_trees => a.seen = a.computed + 1 + drafts.trees[i].fed(),
                    _ if drafted > 0 => a.seen = a.computed + drafted.min(tokens),
                    DraftGap::CatchUpNextUse => {}
                    DraftGap::AlwaysExtend => a.seen = a.computed,
                    DraftGap::Permanent => a.may_draft = false,
                }
            }
            // Rollback: of verified + 1 scheduled tokens, accepted + 1 stay; the blocks are kept and overwritten.
            a.computed += tokens;
            let emitted = tokens.min(a.stop_at - a.emitted);
            a.emitted += emitted;
            a.total += emitted;
            a.new = 0;
            sum.emitted += emitted;
            if a.last_emit == last_end {
                since_last += 1;
            } else {
                totals.gaps.record(end - a.last_emit, 1);
            }
            a.last_emit = end;
            ended += u32::from(a.emitted == a.stop_at);
        }
        if !D::ACTIVE {
            totals.verified_accepted[0][0] += n as u64;
        }
        if since_last > 0 {
            totals.gaps.record(end - last_end, since_last);
        }
        record.drafted = sum.drafted;
        record.verified = sum.verified;
        record.accepted = sum.accepted;
        record.emitted = sum.emitted;
        ended
    }

    fn commit_chunks(&mut self, record: &mut StepRecord) -> u32 {
        let mut ended = 0;
        if self.work.chunks.is_empty() {
            return 0;
        }
        for a in self.running.iter_mut().filter(|a| a.prefilling) {
            a.computed += std::mem::take(&mut a.new);
            if !(D::ACTIVE && self.config.draft_prefill) {
                // A draft that keeps no KV has no gaps.
                a.seen = a.computed;
            }
            if a.computed < a.total {
                continue;
            }
            a.prefilling = false;
            a.emitted += 1;
            a.total += 1;
            record.emitted += 1;
            let first = &mut self.out.records.first_token[a.id as usize];
            if *first == Time::MAX {
                *first = record.end;
            } else {
                self.out.totals.gaps.record(record.end - a.last_emit, 1);
            }
            a.last_emit = record.end;
            ended += u32::from(a.emitted == a.stop_at);
        }
        ended
    }

    /// Ends the requests that emitted their whole output; the others keep their order.
    pub(super) fn remove_ended(&mut self, now: Time) {
        let mut kept = 0;
        for at in 0..self.running.len() {
            if self.running[at].emitted == self.running[at].stop_at {
                self.finish_request(at, now);
            } else {
                self.running.swap(kept, at);
                kept += 1;
            }
        }
        self.running.truncate(kept);
    }
}
