//! An executor that tells what another one does: every step, as the engine asked for it and as it was answered.
//!
//! It stands in front of a device and of the event clock alike and reads its time from them, so that what is compared later was
//! written down by the same hand. What it costs is host time of the run it watches: it copies a few numbers a request.

use super::tape::{Pass, Piece, Round, Step};
use foretoken_sim::executor::{DraftPass, Executor, Moment, StepPlan};
use foretoken_sim::{ContextReads, Drafting, Drafts, PassShape, RequestId, RequestTruth, Time, Wants, shape};

/// Who listens.
pub trait Listener {
    /// A step has ended.
    fn step(&mut self, step: Step);

    /// Nothing is left to do until `at`.
    fn idle(&mut self, _now: Time, _until: Time) {}

    /// A request has ended; one that was never `started` could not fit.
    fn ended(&mut self, _request: RequestId, _started: bool) {}
}

/// Watches `inner`.
pub struct Watched<E, L> {
    inner: E,
    listener: L,
    context_reads: ContextReads,
    drafting: Drafting,
    /// The plain engine asks for no drafts: its target passes carry one token a request.
    plain: bool,
    step: Step,
    /// End of the last pass or wait.
    free_since: Time,
    started: Vec<bool>,
}

impl<E: Executor, L: Listener> Watched<E, L> {
    /// Watches `inner` on behalf of `listener`, for a workload of `requests` requests. `plain`: is there no drafter?
    pub fn new(inner: E, listener: L, reads: ContextReads, drafting: Drafting, plain: bool, requests: usize) -> Self {
        let free_since = inner.now();
        Watched {
            inner,
            listener,
            context_reads: reads,
            drafting,
            plain,
            step: Step::default(),
            free_since,
            started: vec![false; requests],
        }
    }

    /// What was watched, and who listened.
    pub fn into_parts(self) -> (E, L) {
        (self.inner, self.listener)
    }

    /// A pass begins: the time since the last one went to scheduler and policy.
    fn begin(&mut self) -> Time {
        let now = self.inner.now();
        self.step.host += now.saturating_sub(self.free_since);
        now
    }

    /// A pass that began at `began` has ended.
    fn end(&mut self, began: Time) -> Time {
        self.free_since = self.inner.now();
        self.free_since.saturating_sub(began)
    }

    fn draft_shape(&self, step: &StepPlan, pass: &DraftPass, out: &Drafts) -> Option<PassShape> {
        let batch = &step.batch;
        match (pass.pass, self.drafting) {
            (0, _) => shape::draft_idle_pass(batch),
            (1, Drafting::Parallel) => Some(shape::draft_block(batch, pass.draft_len)),
            (_, Drafting::Parallel) => None,
            (n, _) if pass.growth.is_some() => Some(shape::draft_tree_pass(batch, pass.draft_len, n, &out.trees)),
            (n, _) => Some(shape::draft_pass(batch, pass.draft_len, n)),
        }
    }

    fn verify_shape(&self, step: &StepPlan, drafts: &Drafts) -> PassShape {
        let batch = &step.batch;
        match self.plain {
            true => shape::plain_pass(batch),
            false if drafts.in_trees() => {
                shape::verify_tree_pass(batch, &drafts.trees[..batch.len()], self.context_reads)
            }
            false => shape::verify_pass(batch, &drafts.verify_len, self.context_reads),
        }
    }

    fn note(&mut self, step: &StepPlan, drafts: &Drafts, accepted: &[u32]) {
        let batch = &step.batch;
        let wants = drafts.wants;
        for (i, (&request, &start)) in batch.ids.iter().zip(batch.emitted).enumerate() {
            let mut round = Round { request, start, ..Round::default() };
            if !self.plain {
                round.limit = batch.limit[i];
                round.drafted = drafts.draft_len[i];
                round.verified = drafts.verify_len[i];
                round.accepted = accepted[i];
                if drafts.in_trees() {
                    round.nodes = (drafts.trees[i].nodes().len() as u32, drafts.trees[i].kept());
                } else {
                    told(&mut round, i, drafts, wants);
                }
            }
            self.step.rounds.push(round);
        }
        let piece = |c: &foretoken_sim::executor::Chunk| Piece {
            request: c.request,
            computed: c.computed,
            tokens: c.tokens,
            last: c.last,
        };
        self.step.chunks.extend(step.chunks.iter().map(piece));
    }
}

/// What the policy was told of the chain at batch index `i`.
fn told(round: &mut Round, i: usize, drafts: &Drafts, wants: Wants) {
    let drafted = 0..round.drafted as usize;
    if wants.confidence {
        round.confidence = drafted.clone().map(|j| drafts.confidence(i, j) as f32).collect();
    }
    if wants.entropy {
        round.entropy = drafted.map(|j| drafts.entropy(i, j) as f32).collect();
    }
    if wants.divergence {
        let known = round.verified.min(round.accepted + 1) as usize;
        round.divergence = (0..known).map(|j| drafts.divergence(i, j) as f32).collect();
    }
}

impl<E: Executor, L: Listener> Executor for Watched<E, L> {
    type Error = E::Error;

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn wait_until(&mut self, at: Time) {
        self.listener.idle(self.inner.now(), at);
        self.inner.wait_until(at);
        self.free_since = self.inner.now();
    }

    fn start(&mut self, request: RequestTruth) {
        self.started[request.id as usize] = true;
        self.inner.start(request);
    }

    fn end(&mut self, id: RequestId) {
        self.listener.ended(id, self.started[id as usize]);
        self.inner.end(id);
    }

    fn proposable(&mut self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]) {
        self.inner.proposable(ids, emitted, limit);
    }

    fn drafts_in_parallel(&self) -> bool {
        self.inner.drafts_in_parallel()
    }

    fn deliberated(&mut self, moment: Moment) {
        self.inner.deliberated(moment);
    }

    fn draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), E::Error> {
        // Before the pass: it grows the trees whose width it runs over.
        let shape = self.draft_shape(step, pass, out);
        let began = self.begin();
        let result = self.inner.draft(step, pass, out);
        let time = self.end(began);
        self.step.draft.extend(shape.map(|shape| Pass::new(shape, time)));
        result
    }

    fn verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), E::Error> {
        let shape = self.verify_shape(step, drafts);
        let began = self.begin();
        let result = self.inner.verify(step, drafts, accepted);
        let time = self.end(began);
        let batch = &step.batch;
        self.step.verify = Pass::new(shape, time);
        (self.step.step, self.step.start, self.step.end) = (batch.step, batch.now, self.free_since);
        (self.step.running, self.step.waiting) = (batch.num_running, batch.num_waiting);
        if result.is_ok() {
            self.note(step, drafts, accepted);
            self.listener.step(std::mem::take(&mut self.step));
        }
        result
    }
}
