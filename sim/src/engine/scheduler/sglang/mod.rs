//! SGLang's scheduler as of 0.5.23 (`managers/scheduler.py`): a step has prompts, or, if no prompt can begin or go on,
//! decode requests. `next_batch` decides, `apply` takes what a batch gave. `tests/sglang/` records SGLang's own
//! classes; the batches here are held against them.

mod adder;
mod content;
mod decode;
mod kv;
mod prompts;
mod queue;
mod radix_cache;
mod ratio;
mod req;
mod settings;
mod state;

pub(super) use content::{Run, Tokens};
pub(super) use req::{Asked, Contents};
pub use settings::SglangRules;
pub use state::{Events, Sglang, SglangBatch, SglangRow};

use crate::workload::RequestId;

impl Sglang {
    /// Fills `into` with the next batch, which is empty if nothing can run now (`get_next_batch_to_run`). Its result is
    /// in flight from now on.
    pub fn next_batch(&mut self, contents: &impl Contents, into: &mut SglangBatch) {
        let nothing_in_flight = self.in_flight.is_empty();
        into.rows.clear();
        into.extends = self.next(contents, &mut into.rows);
        self.after_prompts = into.extends;
        self.in_flight.clear();
        self.in_flight.extend(into.rows.iter().map(|row| row.id));
        self.hopeless = nothing_in_flight && into.rows.is_empty() && self.nothing_changes();
    }

    /// Whether a pass of the loop that found nothing to run will find nothing for ever, unless a request comes.
    fn nothing_changes(&self) -> bool {
        self.running.is_empty() && self.chunked.is_none() && !self.deferred && !self.queue.waiting.is_empty()
    }

    /// Takes out the first waiting request if SGLang would hang: nothing runs, and this request is never admitted.
    pub fn give_up(&mut self) -> Option<RequestId> {
        self.hopeless.then(|| self.queue.waiting.remove(0))
    }

    /// Whether prompts were left out for decode steps, although nothing decodes: the loop comes again at once.
    pub fn spins(&self) -> bool {
        self.deferred
    }

    /// Fills `rows` with the batch. Returns whether it has prompts.
    fn next(&mut self, contents: &impl Contents, rows: &mut Vec<SglangRow>) -> bool {
        self.events.clear();
        std::mem::swap(&mut self.events.aborted, &mut self.turned_away);
        let chunked = self.chunked;
        if let Some(id) = chunked {
            let r = &mut self.reqs[id as usize];
            if r.extend_end > r.prefix_len {
                self.kv.checkpoint_chunk(contents, id, r);
            }
        }
        if let Some((mut ids, goes_on, tokens)) = self.last_extend.take() {
            let before = ids.len();
            ids.retain(|&id| Some(id) != chunked && Some(id) != goes_on && !self.reqs[id as usize].finished());
            self.full &= ids.len() == before;
            if self.running.is_empty() && !ids.is_empty() {
                // The prompts' batch takes the place of the empty one, and its flag is not set.
                (self.full, self.began_with) = (false, tokens);
            }
            self.running.extend(ids);
        }
        self.drop_finished();
        if !self.defers_prompts() && self.prompts(contents, rows) {
            self.defer = self.rules.decode_interval;
            let tokens = rows.iter().map(|row| u64::from(row.new)).sum();
            self.processed += tokens;
            self.last_extend = Some((rows.iter().map(|row| row.id).collect(), self.chunked, tokens));
            return true;
        }
        self.decodes(contents, rows);
        if !rows.is_empty() {
            self.processed += self.began_with;
        }
        false
    }

    fn defers_prompts(&mut self) -> bool {
        if self.defer > 0 && (self.running.len() as u32) < self.rules.decode_interval_min {
            self.defer = 0;
        }
        let defers = self.defer > 0;
        self.defer -= u32::from(defers);
        self.deferred = defers;
        defers
    }

    /// Takes what a batch gave. `accepted` says how many drafts of a decode request were right.
    pub fn apply(
        &mut self,
        contents: &impl Contents,
        batch: &SglangBatch,
        accepted: impl Fn(RequestId) -> u32,
    ) -> &Events {
        self.events.clear();
        for row in &batch.rows {
            let r = &mut self.reqs[row.id as usize];
            if r.retracted || (r.finished() && r.middle_chunks == 0) {
                continue;
            }
            if batch.extends && r.middle_chunks > 0 {
                r.middle_chunks -= 1;
                continue;
            }
            let tokens = if batch.extends { 1 } else { 1 + accepted(row.id) };
            if self.rules.reserve.is_some() && !batch.extends {
                r.committed += tokens;
            }
            r.append(tokens);
            if batch.extends && row.decodes && self.rules.reserve.is_some() && !r.finished() {
                r.committed += 1;
            }
            if r.finished() {
                self.kv.release(contents, row.id, r, true);
                self.free_rows += 1;
                self.events.ended.push(row.id);
            } else if batch.extends && !row.decodes {
                self.kv.checkpoint_chunk(contents, row.id, r);
            }
        }
        &self.events
    }

    /// Takes a request away, wherever it is; the tree keeps nothing new of it.
    pub fn abort(&mut self, contents: &impl Contents, id: RequestId) {
        self.queue.waiting.retain(|&waiting| waiting != id);
        self.running.retain(|&running| running != id);
        self.chunked = self.chunked.filter(|&chunked| chunked != id);
        if let Some((ids, ..)) = &mut self.last_extend {
            ids.retain(|&running| running != id);
        }
        let r = &mut self.reqs[id as usize];
        if r.holds_row {
            self.kv.release(contents, id, r, false);
            self.free_rows += 1;
        }
        (r.finished_len, r.middle_chunks) = (Some(r.outputs), 0);
    }

    /// Whether the loop looks for new requests in this pass (`SchedulerRecvSkipper`). `idle` says that nothing is to be
    /// done, so that the loop spins until it looks.
    pub fn receives(&mut self, idle: bool) -> bool {
        self.passes += 1;
        let looks = self.after_prompts || self.passes >= self.rules.recv_interval;
        if idle && !looks {
            // The passes until it looks find nothing to do.
            self.idle();
        }
        if idle || looks {
            self.passes = 0;
        }
        idle || looks
    }

    /// Nothing runs and nothing is in flight: the loop has looked for a batch in vain. If no request is left, admission
    /// is as careful again as at the start.
    pub fn idle(&mut self) {
        if let Some((ids, ..)) = self.last_extend.take() {
            self.running.extend(ids);
        }
        self.drop_finished();
        self.in_flight.clear();
        if self.running.is_empty() && self.queue.waiting.is_empty() && self.chunked.is_none() {
            self.ratio.current = self.ratio.start;
        }
    }
}
