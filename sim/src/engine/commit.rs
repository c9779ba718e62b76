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
        let end = record.end;
        let mut ended = 0;
        let mut since_last = 0;
        let columns = self.work.columns.at.iter().zip(&self.drafts.draft_len).zip(&self.drafts.verify_len);
        for (((&at, &drafted), &verified), &accepted) in columns.zip(&self.accepted) {
            let a = &mut self.running[at as usize];
            if D::ACTIVE {
                a.drafted += drafted;
                a.verified += verified;
                a.accepted += accepted;
                a.rounds += u32::from(verified > 0);
                record.drafted += drafted;
                record.verified += verified;
                record.accepted += accepted;
                // The draft saw the new token and all its drafts but the last; what was rejected is overwritten.
                match self.config.draft_gap {
                    _ if drafted > 0 => a.seen = a.computed + drafted.min(accepted + 1),
                    DraftGap::CatchUpNextUse => {}
                    DraftGap::AlwaysExtend => a.seen = a.computed,
                    DraftGap::Permanent => a.may_draft = false,
                }
            }
            self.out.totals.verified_accepted[verified as usize][accepted as usize] += 1;
            // Rollback: of verified + 1 scheduled tokens, accepted + 1 stay; the blocks are kept and overwritten.
            a.computed += accepted + 1;
            let emitted = (accepted + 1).min(a.stop_at - a.emitted);
            a.emitted += emitted;
            a.total += emitted;
            a.new = 0;
            record.emitted += emitted;
            if a.last_emit == self.last_end {
                since_last += 1;
            } else {
                self.out.totals.gap(end - a.last_emit, 1);
            }
            a.last_emit = end;
            ended += u32::from(a.emitted == a.stop_at);
        }
        if since_last > 0 {
            self.out.totals.gap(end - self.last_end, since_last);
        }
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
                // A draft that needs no prompt has no gap either.
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
                self.out.totals.gap(record.end - a.last_emit, 1);
            }
            a.last_emit = record.end;
            ended += u32::from(a.emitted == a.stop_at);
        }
        ended
    }

    fn remove_ended(&mut self, now: Time) {
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
