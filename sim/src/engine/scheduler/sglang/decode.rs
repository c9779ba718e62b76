//! The decode step, and what happens when KV is short (`update_running_batch`, `retract_decode`).

use super::req::{Contents, Req};
use super::{Sglang, SglangRow};
use crate::config::RetractionPolicy;
use crate::engine::request::RejectReason;
use crate::workload::RequestId;
use std::cmp::Reverse;

/// Tokens for each request that stays, for which KV is freed when others lose theirs (`SGLANG_RETRACT_DECODE_STEPS`).
const RETRACT_DECODE_STEPS: u32 = 20;

impl Sglang {
    /// Fills `rows` with a step of all running requests; leaves it empty if no request decodes.
    pub(super) fn decodes(&mut self, contents: &impl Contents, rows: &mut Vec<SglangRow>) {
        if self.running.is_empty() {
            return;
        }
        let before = self.running.len();
        let ending = self.leave_out_ending();
        if self.running.is_empty() {
            self.full = false;
            return;
        }
        if self.has_room_to_decode(None) {
            self.ratio.decay();
        } else if ending {
            // The result in flight frees KV, so nothing is retracted and nothing decodes.
            self.full = false;
            return;
        } else {
            self.retract_decodes(contents);
        }
        self.full &= self.running.len() == before;
        self.prepare_decode();
        let unseen = u32::from(self.rules.reserve.is_none());
        for &id in &self.running {
            rows.push(SglangRow { id, past: self.reqs[id as usize].committed - unseen, new: 1, decodes: true });
        }
    }

    /// Leaves out the requests that surely end with the result in flight, since they reach the length that was asked
    /// for (`_reqs_finishing_inflight`). Returns whether there was one.
    pub(super) fn leave_out_ending(&mut self) -> bool {
        if !self.rules.overlap {
            return false;
        }
        let before = self.running.len();
        let (reqs, in_flight) = (&self.reqs, &self.in_flight);
        self.running.retain(|id| !(in_flight.contains(id) && reqs[*id as usize].ends_next()));
        self.running.len() < before
    }

    /// Whether KV suffices for the next decode step of the running requests, or of `some` of them.
    pub(super) fn has_room_to_decode(&mut self, some: Option<&[RequestId]>) -> bool {
        let page = self.kv.page;
        let need = |r: &Req| match self.rules.reserve {
            None => u32::from(r.committed.is_multiple_of(page)) * page,
            Some(reserve) => {
                let end = r.allocated.max(r.committed + reserve);
                self.kv.ceil(end) - self.kv.ceil(r.allocated)
            }
        };
        let tokens = some.unwrap_or(&self.running).iter().map(|&id| need(&self.reqs[id as usize])).sum();
        self.kv.has_room(tokens)
    }

    /// Takes KV slots for the next step of the running requests.
    pub(super) fn prepare_decode(&mut self) {
        let count = self.running.len();
        match self.rules.reserve {
            None => {
                self.kv.make_room_for_next(count);
                for &id in &self.running {
                    self.kv.take_next(&mut self.reqs[id as usize]);
                }
            }
            Some(reserve) => {
                let tokens: u32 =
                    self.running.iter().map(|&id| self.kv.lacks_for_drafts(&self.reqs[id as usize], reserve)).sum();
                self.kv.make_room_for_drafts(tokens, count);
                for &id in &self.running {
                    self.kv.take_drafts(&mut self.reqs[id as usize], reserve);
                }
            }
        }
    }

    /// Retracts requests until the others fit: those with the fewest output tokens, of these the longest prompts; with
    /// retraction by priority the least urgent come first. One stays; if it does not fit either, it is given up.
    fn retract_decodes(&mut self, contents: &impl Contents) {
        let mut kept = std::mem::take(&mut self.running);
        // Python's reversed sort keeps equal requests in their order.
        let low_first = self.rules.priority.is_some_and(|p| p.low_first);
        kept.sort_by_key(|&id| {
            let r = &self.reqs[id as usize];
            let urgency = match self.rules.retraction {
                RetractionPolicy::Length => 0,
                RetractionPolicy::Priority if low_first => -i64::from(r.asked.priority),
                RetractionPolicy::Priority => i64::from(r.asked.priority),
            };
            (Reverse(urgency), Reverse(r.outputs), r.asked.prompt)
        });
        let mut retracted = Vec::new();
        let mut first = true;
        while first || !self.has_room_to_decode(Some(&kept)) {
            if kept.len() == 1 {
                break;
            }
            first = false;
            let id = kept.pop().expect("more than one is kept");
            self.retract(contents, id, kept.len(), None);
            retracted.push(id);
        }
        if kept.len() <= 1 && !self.has_room_to_decode(Some(&kept)) {
            let id = kept.pop().expect("one is kept");
            self.retract(contents, id, 0, None);
            self.events.aborted.push((id, RejectReason::OutgrewPool));
        }
        self.running = kept;
        let (mut decoded, mut asked) = (0u64, 0u64);
        for &id in &self.running {
            decoded += u64::from(self.reqs[id as usize].outputs);
            asked += u64::from(self.reqs[id as usize].asked.max_new_tokens);
        }
        decoded += u64::from(RETRACT_DECODE_STEPS) * self.running.len() as u64;
        self.ratio.current = (decoded as f64 / (asked + 1) as f64).min(1.0);
        for id in retracted {
            self.join_again(id);
        }
    }

    /// Takes a request's KV, of which the tree keeps nothing new. `left` is the number of requests that stay.
    pub(super) fn retract(&mut self, contents: &impl Contents, id: RequestId, left: usize, by: Option<RequestId>) {
        self.events.freed.push((id, by));
        let r = &mut self.reqs[id as usize];
        self.kv.release(contents, id, r, false);
        self.free_rows += 1;
        self.kv.evict_to(left as u32 * RETRACT_DECODE_STEPS);
        r.reset();
    }
}
