//! A step of prompts: which begin, which go on, and which running requests make way for one of higher priority
//! (`_get_new_batch_prefill_raw`, `preempt_to_schedule`, `mix_with_running`).

use super::adder::{Added, Adder};
use super::req::{Contents, Req};
use super::{Sglang, SglangRow};
use crate::workload::RequestId;

impl Sglang {
    /// Fills `rows` with a batch of prompts (`_get_new_batch_prefill_raw`). Returns false if none can begin or go on.
    pub(super) fn prompts(&mut self, contents: &impl Contents, rows: &mut Vec<SglangRow>) -> bool {
        if self.preempts().is_some() || self.running.is_empty() {
            self.full = false;
        }
        if (self.full || self.queue.waiting.is_empty()) && self.chunked.is_none() {
            return false;
        }
        if self.allocatable(0) == 0 && self.chunked.is_none() && self.preempts().is_none() {
            self.full = true;
            return false;
        }
        self.queue.sort(&self.rules, &mut self.kv, &mut self.reqs, contents, self.processed);
        let mixed = if self.rules.mixed_chunk { self.running.len() as u32 } else { 0 };
        let running = self.running.iter().map(|&id| &self.reqs[id as usize]);
        let mut adder = Adder::new(&self.rules, self.ratio.current, mixed, running);
        if let Some(id) = self.chunked {
            let limit = self.queue.chunk_limit(&self.rules, &self.reqs[id as usize], &self.reqs, adder.chunk_left());
            let goes_on = adder.go_on(&self.kv, id, &mut self.reqs[id as usize], limit);
            self.chunked = goes_on.then_some(id);
        }
        self.try_waiting(contents, &mut adder);
        let Adder { can_run, new_chunked, preempted, .. } = adder;
        self.queue.waiting.retain(|id| !can_run.contains(id));
        for id in preempted {
            self.join_again(id);
        }
        if can_run.is_empty() {
            return false;
        }
        self.chunked = new_chunked.or(self.chunked);
        if let Some(id) = self.chunked {
            self.reqs[id as usize].middle_chunks += 1;
        }
        self.extend(can_run, rows);
        true
    }

    fn try_waiting(&mut self, contents: &impl Contents, adder: &mut Adder) {
        for at in 0..self.queue.waiting.len() {
            let id = self.queue.waiting[at];
            if adder.state(&self.kv) == Added::Other {
                return;
            }
            let held = adder.can_run.iter().filter(|&&id| self.reqs[id as usize].holds_row).count();
            if adder.can_run.len() >= self.allocatable(held) {
                self.full = true;
            }
            if self.full && !self.make_way(contents, adder, id) {
                return;
            }
            let r = &mut self.reqs[id as usize];
            r.seen = r.tokens();
            let mut tokens = contents.tokens(id, r.tokens());
            tokens.truncate(r.tokens() - 1);
            let found = self.kv.match_prefix(&tokens);
            (r.prefix_len, r.last_node, r.protected, r.matched) =
                (found.tokens, found.node, found.tokens, found.tokens);
            let others = match r.asked.ignore_eos && self.kv.tree.is_none() {
                true => self.running.iter().chain(&adder.can_run).map(|&id| self.reqs[id as usize].clone()).collect(),
                false => Vec::new(),
            };
            let chunked = self.chunked.is_some();
            let added = adder.begin(&self.rules, &mut self.kv, id, &mut self.reqs[id as usize], chunked, &others);
            if added == Added::NoToken {
                self.full = !adder.can_run.is_empty() || !self.running.is_empty();
            }
            if added != Added::Continue {
                return;
            }
        }
    }

    /// Evicts running requests of lower priority, if that makes room for a waiting one (`preempt_to_schedule`).
    fn make_way(&mut self, contents: &impl Contents, adder: &mut Adder, id: RequestId) -> bool {
        let (Some(above), Some(rule)) = (self.preempts(), self.rules.priority) else { return false };
        // Higher urgency goes first.
        let urgency = |r: &Req| if rule.low_first { -i64::from(r.asked.priority) } else { i64::from(r.asked.priority) };
        let waiting = &self.reqs[id as usize];
        let mut victims: Vec<RequestId> =
            self.running.iter().copied().filter(|&id| !self.reqs[id as usize].finished()).collect();
        victims.sort_by_key(|&id| (urgency(&self.reqs[id as usize]), std::cmp::Reverse(self.reqs[id as usize].queued)));
        let need = i64::from(waiting.seen) - i64::from(waiting.prefix_len) + i64::from(waiting.clipped_max_new());
        let mut lacking = need as f64 - adder.rem_total(&self.kv);
        let mut count = 0;
        for &victim in &victims {
            let r = &self.reqs[victim as usize];
            if urgency(waiting) - urgency(r) <= i64::from(above) {
                break;
            }
            lacking -= adder.may_still_take(r);
            count += 1;
            if lacking <= 0.0 {
                break;
            }
        }
        if count == 0 || lacking > 0.0 {
            return false;
        }
        victims.truncate(count);
        let mut left = self.running.len();
        for at in 0..self.running.len() {
            let victim = self.running[at];
            if victims.contains(&victim) {
                left -= 1;
                adder.forget(&self.reqs[victim as usize]);
                self.retract(contents, victim, left, Some(id));
                adder.preempted.push(victim);
            }
        }
        self.running.retain(|id| !victims.contains(id) && !self.reqs[*id as usize].finished());
        true
    }

    /// Makes the batch of the chosen prompts, with the decode requests beside them if chunks are mixed.
    fn extend(&mut self, can_run: Vec<RequestId>, rows: &mut Vec<SglangRow>) {
        let chunks: Vec<(u32, u32)> =
            can_run.iter().map(|&id| &self.reqs[id as usize]).map(|r| (r.prefix_len, r.extend_end)).collect();
        self.kv.take_chunks(&chunks);
        for id in can_run {
            let r = &mut self.reqs[id as usize];
            if !r.holds_row {
                r.holds_row = true;
                self.free_rows -= 1;
            }
            (r.allocated, r.committed, r.retracted) = (r.extend_end, r.extend_end, false);
            rows.push(SglangRow { id, past: r.prefix_len, new: r.extend_len(), decodes: false });
        }
        if self.rules.mixed_chunk && !self.running.is_empty() {
            self.mix_decodes(rows);
        }
    }

    /// The decode requests join a batch of prompts with one token each, if KV suffices (`mix_with_running`).
    fn mix_decodes(&mut self, rows: &mut Vec<SglangRow>) {
        if self.leave_out_ending() {
            self.full = false;
        }
        if self.running.is_empty() || !self.has_room_to_decode(None) {
            return;
        }
        self.prepare_decode();
        for &id in &self.running {
            let r = &mut self.reqs[id as usize];
            r.seen = r.tokens();
            let past = if self.rules.reserve.is_some() { r.tokens() - 1 } else { r.committed - 1 };
            rows.push(SglangRow { id, past, new: 1, decodes: true });
        }
        self.running.clear();
        self.began_with = 0;
    }
}
