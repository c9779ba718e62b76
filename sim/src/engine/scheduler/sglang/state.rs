//! What SGLang's scheduler holds between two batches, and what a batch is.

use super::kv::Kv;
use super::queue::Queue;
use super::ratio::NewTokenRatio;
use super::req::{Asked, Req};
use super::settings::SglangRules;
use crate::engine::request::RejectReason;
use crate::workload::RequestId;

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
    /// Requests that were given up, and why: even alone they do not fit, or too many waited. Requests that came since
    /// the last batch are among them.
    pub aborted: Vec<(RequestId, RejectReason)>,
    /// Requests that ended.
    pub ended: Vec<RequestId>,
}

impl Events {
    pub(super) fn clear(&mut self) {
        self.freed.clear();
        self.aborted.clear();
        self.ended.clear();
    }
}

/// SGLang's scheduler.
pub struct Sglang {
    pub(super) rules: SglangRules,
    /// The requests by id.
    pub(super) reqs: Vec<Req>,
    pub(super) queue: Queue,
    pub(super) kv: Kv,
    /// The requests that decode.
    pub(super) running: Vec<RequestId>,
    /// Whether no waiting request is tried until a running one leaves (`batch_is_full`).
    pub(super) full: bool,
    /// The request whose prompt is computed in part.
    pub(super) chunked: Option<RequestId>,
    /// The requests of the last batch if it had prompts, the one among them whose prompt goes on, and its new tokens.
    pub(super) last_extend: Option<(Vec<RequestId>, Option<RequestId>, u64)>,
    /// With overlap: the requests of the batch whose result is not read yet.
    pub(super) in_flight: Vec<RequestId>,
    /// Free rows of the table of running requests.
    pub(super) free_rows: u32,
    pub(super) ratio: NewTokenRatio,
    /// Number of prompt tokens scheduled so far, as SGLang counts them: a decode step adds the tokens of the batch of
    /// prompts that the running batch began as, each time again.
    pub(super) processed: u64,
    /// The tokens of that batch of prompts.
    pub(super) began_with: u64,
    /// Decode steps that must come before the next prompts.
    pub(super) defer: u32,
    /// Whether the last pass left the prompts out for that.
    pub(super) deferred: bool,
    /// Passes of the loop since it looked for new requests.
    pub(super) passes: u32,
    /// Whether the last batch had prompts.
    pub(super) after_prompts: bool,
    /// Whether the last call found that nothing will ever run.
    pub(super) hopeless: bool,
    /// Requests that found the queue full since the last batch, or made place in it.
    pub(super) turned_away: Vec<(RequestId, RejectReason)>,
    pub(super) events: Events,
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
            turned_away: Vec::new(),
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
        if let Some(gone) = self.join(id) {
            self.turned_away.push((gone, RejectReason::QueueFull));
        }
    }

    /// Adds a request at the end of the queue. If the queue is full, returns the request that is turned away: this one,
    /// or the least urgent one that waits, of these the last, if it is less urgent (`_abort_on_queued_limit`).
    pub(super) fn join(&mut self, id: RequestId) -> Option<RequestId> {
        let mut gone = None;
        if self.rules.max_queued.is_some_and(|most| self.queue.waiting.len() >= most as usize) {
            let sign = self.rules.priority.map_or(0, |p| if p.low_first { 1 } else { -1 });
            let urgency = |id: RequestId| i64::from(self.reqs[id as usize].asked.priority) * sign;
            let last = |&id: &RequestId| (urgency(id), self.reqs[id as usize].queued);
            let waits =
                self.queue.waiting.iter().copied().max_by_key(last).filter(|&other| urgency(other) > urgency(id));
            let out = waits.unwrap_or(id);
            self.queue.waiting.retain(|&waiting| waiting != out);
            let r = &mut self.reqs[out as usize];
            r.finished_len = Some(r.outputs);
            gone = Some(out);
        }
        if gone != Some(id) {
            self.queue.join(id, &mut self.reqs[id as usize], self.processed);
        }
        gone
    }

    /// Puts a request that lost its KV back into the queue.
    pub(super) fn join_again(&mut self, id: RequestId) {
        if let Some(gone) = self.join(id) {
            self.events.aborted.push((gone, RejectReason::QueueFull));
        }
    }

    /// What the last call of the scheduler did beside its batch.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The request `id`.
    pub fn req(&self, id: RequestId) -> &Req {
        &self.reqs[id as usize]
    }

    /// How many more requests may join `held` ones that have rows already.
    pub(super) fn allocatable(&self, held: usize) -> usize {
        let batch = (self.rules.max_running_requests as usize).saturating_sub(self.running.len());
        batch.min(self.free_rows as usize + held)
    }

    pub(super) fn preempts(&self) -> Option<i32> {
        self.rules.priority.and_then(|p| p.preempts_above)
    }

    pub(super) fn drop_finished(&mut self) {
        let before = self.running.len();
        self.running.retain(|&id| !self.reqs[id as usize].finished());
        self.full &= self.running.len() == before;
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
