//! SGLang's scheduler as of 0.5.23 (`managers/scheduler.py`): a step has prompts, or, if no prompt can begin or go on,
//! decode requests. `next_batch` decides, `apply` takes what a batch gave. `tests/sglang/` records SGLang's own
//! classes; the batches here are held against them.

mod adder;
mod content;
mod decode;
mod kv;
mod queue;
mod radix_cache;
mod req;
mod settings;

pub(super) use content::{Run, Tokens};
pub(super) use req::{Asked, Contents};
pub use settings::SglangRules;

pub use req::Req;

use crate::workload::RequestId;
use adder::{Added, Adder};
use kv::Kv;
use queue::Queue;

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
    began_with: u64,
    /// Decode steps that must come before the next prompts.
    defer: u32,
    /// Whether the last pass left the prompts out for that.
    deferred: bool,
    /// Passes of the loop since it looked for new requests, and whether the last one had a batch of prompts.
    passes: u32,
    /// Whether the last call found that nothing will ever run.
    hopeless: bool,
    after_prompts: bool,
    events: Events,
}

impl Sglang {
    /// A scheduler without requests.
    pub fn new(rules: SglangRules) -> Sglang {
        Sglang {
            reqs: Vec::new(),
            queue: Queue::new(),
            kv: Kv::new(rules.kv_tokens, rules.page_size, rules.radix_cache, rules.pairs),
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

    /// The next batch; `None` if nothing can run now (`get_next_batch_to_run`).
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

    /// Fills `rows` with a batch of prompts (`_get_new_batch_prefill_raw`). Returns false if none can begin or go on.
    fn prompts(&mut self, contents: &impl Contents, rows: &mut Vec<SglangRow>) -> bool {
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
            self.queue.join(id, &mut self.reqs[id as usize], self.processed);
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

/// How much of their outputs running requests are expected to make (`NewTokenRatioTracker`).
struct NewTokenRatio {
    start: f64,
    least: f64,
    decay: f64,
    current: f64,
}

impl NewTokenRatio {
    fn new(conservativeness: f64) -> NewTokenRatio {
        let start = (0.7 * conservativeness).min(1.0);
        let least = (start * 0.14).min(1.0);
        NewTokenRatio { start, least, decay: (start - least) / 600.0, current: start }
    }

    fn decay(&mut self) {
        self.current = (self.current - self.decay).max(self.least);
    }
}
