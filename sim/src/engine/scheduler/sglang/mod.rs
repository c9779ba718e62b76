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

pub(super) use content::{Run, Tokens};
pub(super) use req::{Asked, Contents};
pub use settings::SglangRules;

pub use req::Req;

use crate::workload::RequestId;
use kv::Kv;
use queue::Queue;
use ratio::NewTokenRatio;

/// A request of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SglangRow {
    pub id: RequestId,
    /// Number of tokens before the tokens of this batch.
    pub past: u32,
    /// Number of new tokens: of the prompt, or 1 without the drafts.
    pub new: u32,
    /// Whether the row decodes.
    pub decodes: bool,
}

/// What runs in a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SglangBatch {
    /// Whether prompts run. Decode requests beside them have one token each and no drafts.
    pub extends: bool,
    /// The requests of the batch.
    pub rows: Vec<SglangRow>,
}

/// What a call of the scheduler did beside its batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Requests that lost their KV, and for each the request of higher priority that took its place, if one did.
    pub freed: Vec<(RequestId, Option<RequestId>)>,
    /// Requests that were given up, since even alone they do not fit.
    pub aborted: Vec<RequestId>,
    /// Requests that ended.
    pub ended: Vec<RequestId>,
}

impl Events {
    fn clear(&mut self) {
        self.freed.clear();
        self.aborted.clear();
        self.ended.clear();
    }
}

/// SGLang's scheduler.
pub struct Sglang {
    rules: SglangRules,
    /// The requests by id.
    reqs: Vec<Req>,
    queue: Queue,
    kv: Kv,
    /// The requests that decode.
    running: Vec<RequestId>,
    /// Whether no waiting request is tried until a running one leaves (`batch_is_full`).
    full: bool,
    /// The request whose prompt is computed in part.
    chunked: Option<RequestId>,
    /// The requests of the last batch if it had prompts, the one among them whose prompt goes on, and its new tokens.
    last_extend: Option<(Vec<RequestId>, Option<RequestId>, u64)>,
    /// With overlap: the requests of the batch whose result is not read yet.
    in_flight: Vec<RequestId>,
    /// Free rows of the table of running requests.
    free_rows: u32,
    ratio: NewTokenRatio,
    /// Number of prompt tokens scheduled so far, as SGLang counts them: a decode step adds the tokens of the batch of
    /// prompts that the running batch began as, each time again.
    processed: u64,
    /// The tokens of that batch of prompts.
    began_with: u64,
    /// Decode steps that must come before the next prompts.
    defer: u32,
    /// Whether the last pass left the prompts out for that.
    deferred: bool,
    /// Passes of the loop since it looked for new requests.
    passes: u32,
    /// Whether the last batch had prompts.
    after_prompts: bool,
    /// Whether the last call found that nothing will ever run.
    hopeless: bool,
    events: Events,
}

impl Sglang {
    /// A scheduler without requests.
    pub fn new(rules: SglangRules) -> Sglang {
        Sglang {
            reqs: Vec::new(),
            queue: Queue::new(),
            kv: Kv::new(&rules),
            running: Vec::new(),
            full: false,
            chunked: None,
            last_extend: None,
            in_flight: Vec::new(),
            free_rows: rules.max_running_requests,
            ratio: NewTokenRatio::new(rules.conservativeness),
            processed: 0,
            began_with: 0,
            defer: 0,
            deferred: false,
            passes: 0,
            hopeless: false,
            after_prompts: false,
            events: Events::default(),
            rules,
        }
    }

    /// Adds a request to the queue.
    pub fn add(&mut self, id: RequestId, asked: Asked) {
        let (at, empty) = (id as usize, Req::new(asked));
        if self.reqs.len() <= at {
            self.reqs.resize(at + 1, empty.clone());
        }
        self.reqs[at] = empty;
        self.queue.join(id, &mut self.reqs[at], self.processed);
    }

    /// What the last call of the scheduler did beside its batch.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The request `id`.
    pub fn req(&self, id: RequestId) -> &Req {
        &self.reqs[id as usize]
    }

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

    fn drop_finished(&mut self) {
        let before = self.running.len();
        self.running.retain(|&id| !self.reqs[id as usize].finished());
        self.full &= self.running.len() == before;
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

    /// How many more requests may join `held` ones that have rows already.
    fn allocatable(&self, held: usize) -> usize {
        let batch = (self.rules.max_running_requests as usize).saturating_sub(self.running.len());
        batch.min(self.free_rows as usize + held)
    }

    fn preempts(&self) -> Option<i32> {
        self.rules.priority.and_then(|p| p.preempts_above)
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

    /// Free KV slots, and slots that eviction could free.
    pub fn memory(&self) -> (u32, u32) {
        (self.kv.available(), self.kv.evictable())
    }

    /// The waiting requests in their order.
    pub fn waiting(&self) -> &[RequestId] {
        &self.queue.waiting
    }

    /// The request whose prompt is computed in part.
    pub fn chunked(&self) -> Option<RequestId> {
        self.chunked
    }

    /// The requests that decode.
    pub fn running(&self) -> &[RequestId] {
        &self.running
    }

    /// Whether no waiting request is tried until a running one leaves.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// The share of the outputs that admission expects running requests to make.
    pub fn new_token_ratio(&self) -> f64 {
        self.ratio.current
    }
}
