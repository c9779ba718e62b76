//! The simulated executor: computes the time of each pass from a latency model and looks up which draft tokens are
//! accepted.

use crate::acceptance::{AcceptanceSource, Hidden, Truths};
use crate::barrier::{Barrier, Planned};
use crate::drafts::Drafts;
use crate::engine::Stretch;
use crate::executor::{DecisionTime, DraftPass, Executor, Moment, PassCost, RequestTruth, StepPlan};
use crate::host::{Host, HostStep, HostTime};
use crate::latency::{ContextReads, Drafting, LatencyModel, PassShape};
use crate::ledger::Ledger;
use crate::luck::{Luck, Stream};
use crate::metrics::Spent;
use crate::noise::Noise;
use crate::oracle::Truth;
use crate::policy::BatchView;
use crate::shape;
use crate::time::Time;
use crate::workload::RequestId;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::rc::Weak;

/// The true values of a simulation, which policies do not see: how long passes and host work take, and which draft
/// tokens are right.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// The latency model that gives the true time of a draft pass.
    pub draft: &'a dyn LatencyModel,
    /// The latency model that gives the true time of a target pass.
    pub target: &'a dyn LatencyModel,
    /// Whether the target reads a request's context once in a verify pass, or once for each verified position.
    pub context_reads: ContextReads,
    /// Whether the draft model makes a request's draft tokens of a step in one pass for each token, or in one pass for
    /// all.
    pub drafting: Drafting,
    /// The source that decides which draft tokens are right.
    pub acceptance: &'a dyn AcceptanceSource,
    /// The constant part of the host time of a step.
    pub overhead: Time,
    /// The part of the host time of a step that depends on the step's requests and tokens.
    pub host: Host,
    /// Host time of each kind of work other than passes: calling the scheduler, taking the output of a step, and the
    /// decisions of the policy.
    pub decision_time: DecisionTime,
    /// Coefficient of variation of the random noise on each pass time; 0 for no noise.
    pub noise_cv: f64,
    /// Seed of the noise, and of the draws that decide whether a draft model on its own device guesses correctly what
    /// the target accepts.
    pub seed: u64,
    /// The most draft tokens of a request in a step. The acceptance source must know which draft tokens are right up to
    /// this number of tokens beyond an output's end.
    pub max_draft_len: u32,
    /// Whether the device has a queue, so that the host goes on while the device runs passes. A caller that needs a
    /// pass's result then waits for it.
    pub queues: bool,
}

/// An executor on a clock that jumps from event to event.
pub struct EventClock<'a> {
    world: World<'a>,
    now: Time,
    /// When the device will have run all queued passes. If this time is before `now`, the device is idle.
    device: Time,
    /// Whether every pass goes through the slow path [`note`](EventClock::note). It does in six cases: noise on the
    /// pass times, a ledger (a record of how the device spends its time), host times from `engine.host`, a draft model
    /// on its own device, piecewise CUDA graphs that lengthen passes, or data-parallel ranks in lock step.
    noted: bool,
    /// For each queued step: how long the host will work on the step's output, by the setting `engine.host`; `None` if
    /// this setting is not used.
    host_work: Option<VecDeque<Time>>,
    /// The draft model's own device; `None` if draft model and target share a device.
    draft_device: Option<DraftBeside>,
    /// If a draft model drafts beside a prompt lookup: the most passes of the draft model in a step. `None` otherwise.
    model_passes: Option<u32>,
    /// Time that every target pass takes longer because it runs in piecewise CUDA graphs; 0 if it runs in full CUDA
    /// graphs.
    piecewise: Time,
    /// Number of target passes so far. Counted only if passes take the slow path ([`note`](EventClock::note)), for
    /// example because of noise.
    step: u64,
    noise: Option<Noise>,
    /// A time below that of every target pass; zero if the latency model knows none, or if noise may shorten a pass.
    least_pass: Time,
    truths: Truths<'a>,
    /// How long the device ran decodes, prompts, draft passes and rejected tokens so far; `None` if the run does not
    /// record this.
    ledger: Option<Box<Ledger>>,
    /// The data-parallel rank that this clock's engine is, and the barrier at which the ranks' target passes meet;
    /// `None` for an engine without ranks.
    rank: Option<(usize, Weak<dyn Barrier + 'a>)>,
    /// When the target pass that comes next ends, if the ranks of a server agreed on it.
    agreed: Option<Time>,
    /// Buffer of [`truth`](EventClock::truth): for each decode request, how many of its next draft tokens are right in
    /// a row.
    runs: Vec<u32>,
}

impl<'a> EventClock<'a> {
    /// An event clock at time zero, for a workload of `requests` requests.
    pub fn new(world: World<'a>, requests: usize) -> EventClock<'a> {
        EventClock {
            world,
            now: Time::ZERO,
            device: Time::ZERO,
            noted: world.noise_cv > 0.0 || !world.host.is_none(),
            // The engine queues at most two steps on the device, so a queue with room for four entries never grows.
            host_work: (!world.host.is_none()).then(|| VecDeque::with_capacity(4)),
            draft_device: None,
            model_passes: Some(world.acceptance.drafts_without_match()).filter(|&passes| passes > 0),
            piecewise: Time::ZERO,
            step: 0,
            noise: (world.noise_cv > 0.0).then(|| Noise::new(world.noise_cv, world.seed)),
            least_pass: if world.noise_cv > 0.0 { Time::ZERO } else { world.target.least() },
            truths: Truths::new(world.acceptance, world.max_draft_len, requests),
            ledger: None,
            rank: None,
            agreed: None,
            runs: Vec::new(),
        }
    }

    /// Keeps a ledger of how the device spends its time, for `requests` requests. Call this before the run.
    pub fn keep_ledger(&mut self, requests: usize) {
        self.ledger = Some(Box::new(Ledger::new(requests)));
        self.noted = true;
    }

    /// Makes draft passes run at the same time as target passes, on a device of their own. `guessed` is the share of
    /// rounds (a request's draft tokens of one step), [0, 1], in which the draft model guesses correctly what the
    /// target accepts in the request's previous round. Call this before the run.
    pub fn draft_on_own_device(&mut self, guessed: f64) {
        self.draft_device = Some(DraftBeside { covered: Time::ZERO, guessed, seed: self.world.seed });
        self.noted = true;
    }

    /// Makes every target pass take `longer` more time, because full CUDA graphs cannot be used. Call this before the
    /// run.
    pub fn leave_full_graphs(&mut self, longer: Time) {
        self.piecewise = longer;
        self.noted |= longer > Time::ZERO;
    }

    /// Makes the clock's engine a data-parallel rank. The target passes of all ranks meet at `barrier`. Call this
    /// before the run.
    pub(crate) fn be_rank(&mut self, rank: usize, barrier: Weak<dyn Barrier + 'a>) {
        self.rank = Some((rank, barrier));
        self.noted = true;
    }

    /// Counts a position as right if the target's token is among the draft model's best `guesses` guesses there. Call
    /// this before the run.
    pub(crate) fn count_guesses(&mut self, guesses: u32) {
        self.truths.count_guesses(guesses);
    }

    /// The values of a batch that only oracles may see: how many of each request's next draft tokens would be accepted,
    /// and the true pass times.
    pub(crate) fn truth(&mut self, batch: &BatchView) -> Truth<'_> {
        self.runs.clear();
        for ((&id, &emitted), &limit) in batch.ids.iter().zip(batch.emitted).zip(batch.limit) {
            self.runs.push(self.truths.row(id).run(emitted, limit));
        }
        Truth {
            run: &self.runs,
            draft: self.world.draft,
            target: self.world.target,
            context_reads: self.world.context_reads,
            drafting: self.world.drafting,
            overhead: self.world.overhead,
            hidden: Some(Hidden::new(self.world.acceptance, &self.truths)),
            host: self.world.host,
        }
    }

    #[inline]
    fn advance(&mut self, pass: Time, which: u64) {
        let pass = self.with_noise(pass, which);
        match self.world.queues {
            true => self.device = self.queued_until() + pass,
            false => self.now += pass,
        }
    }

    /// The time of a pass. `pass` is the time that the latency model gives; [`note`](EventClock::note) changes it if
    /// passes take the slow path. `which` is 0 for a target pass. For a draft pass it is 1 plus the pass's number,
    /// which is 0 for a pass that drafts nothing and counts from 1 otherwise.
    #[inline]
    fn with_noise(&mut self, pass: Time, which: u64) -> Time {
        match self.noted {
            false => pass,
            true => self.note(pass, which),
        }
    }

    /// The slow path of a pass: returns its changed time, and adds the pass to the ledger (the record of how the device
    /// spends its time). Noise multiplies the time `pass`. A target pass also takes the time that piecewise CUDA graphs
    /// add. A draft pass on its own device takes only the part that does not overlap with the target pass. `which` is 0
    /// for a target pass. For a draft pass it is 1 plus the pass's number, which is 0 for a pass that drafts nothing
    /// and counts from 1 otherwise.
    #[cold]
    #[inline(never)]
    fn note(&mut self, pass: Time, which: u64) -> Time {
        let pass = if which == 0 { pass + self.piecewise } else { pass };
        let mut pass = self.noise.as_ref().map_or(pass, |noise| noise.apply(pass, self.step, which));
        if let Some(device) = &mut self.draft_device {
            pass = device.beside(pass, which == 0);
        }
        let start = self.begins();
        if let Some(end) = self.agreed.take() {
            pass = end - start;
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.pass(self.now, start, start + pass, which == 0);
        }
        self.step += u64::from(which == 0);
        pass
    }

    /// When a pass that is queued now begins.
    fn begins(&self) -> Time {
        if self.world.queues { self.queued_until() } else { self.now }
    }

    /// Runs the target pass of a step, and looks up which draft tokens it accepts. If the device has no queue, the
    /// clock also advances by the constant host time of a step. Returns the model's time of the pass.
    #[inline(always)]
    fn run(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Time {
        let drafting = self.world.max_draft_len > 0;
        let time = self.target_pass(step.target_shape(drafts, drafting, self.world.context_reads));
        if !self.world.queues {
            self.now += self.world.overhead;
        }
        if drafting {
            self.truths.accept(&step.batch, drafts, accepted);
        }
        time
    }

    /// The slow path of [`run`](EventClock::run). It also charges the host times of the setting `engine.host`, rejects
    /// the draft tokens of a draft model on its own device that guessed wrongly what the target accepts, and divides
    /// the pass time into its parts (decodes, prompts, …) for the ledger. It is a function of its own, so that runs
    /// without these features pay only for one branch.
    #[cold]
    #[inline(never)]
    fn run_and_note(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) {
        let shape = step.target_shape(drafts, self.world.max_draft_len > 0, self.world.context_reads);
        let host = self.host_time(shape, step.batch.len() as u64, step.batch.prefill.tokens);
        self.wait_for_launches(host.launch);
        if let Some((rank, barrier)) = &self.rank {
            let noise = self.noise.as_ref().map_or(1.0, |noise| noise.factor(self.step, 0));
            let planned = Planned { start: self.begins(), shape, longer: self.piecewise, noise };
            self.agreed = barrier.upgrade().map(|barrier| barrier.meet(*rank, planned));
        }
        let whole = self.run(step, drafts, accepted);
        match (self.world.queues, &mut self.host_work) {
            (false, _) => self.now += host.work,
            (true, Some(queued)) => *queued.back_mut().expect("the step was scheduled") = host.work,
            (true, None) => {}
        }
        if let Some(device) = self.draft_device.as_ref().filter(|device| device.guessed < 1.0) {
            device.lose(&step.batch, accepted, |id| self.truths.request(id).id);
        }
        if let Some(ledger) = &mut self.ledger {
            let accepted = accepted.iter().map(|&accepted| u64::from(accepted)).sum();
            ledger.split(self.world.target, (shape, whole), step, accepted);
        }
    }

    /// The part of a step's host time that depends on the step's numbers of requests and tokens.
    fn host_time(&self, shape: PassShape, decodes: u64, prompt_tokens: u64) -> HostTime {
        let drafts = shape.batched.saturating_sub(decodes + prompt_tokens);
        self.world.host.time(HostStep { decodes, requests: shape.requests, tokens: shape.batched, drafts })
    }

    /// Delays the next pass by `launch`, the time that the host takes to launch its kernels while the device waits.
    fn wait_for_launches(&mut self, launch: Time) {
        match self.world.queues {
            true => self.device = self.queued_until() + launch,
            false => self.now += launch,
        }
    }

    /// Runs a step that is only a target pass, on the slow path. The step's kernel launches come before the pass, the
    /// host's other work of the step after it.
    #[cold]
    #[inline(never)]
    fn plain_step_and_note(&mut self, shape: PassShape) {
        let host = self.host_time(shape, shape.requests, 0);
        self.wait_for_launches(host.launch);
        self.target_pass(shape);
        self.now = self.queued_until() + self.world.overhead + host.work;
    }

    /// When a step is scheduled, adds an entry for the step's host work to the queue. When the step's output is taken,
    /// removes the entry and advances the clock by the host work's time.
    #[cold]
    #[inline(never)]
    fn queue_host_work(&mut self, moment: Moment) {
        if let Some(queued) = &mut self.host_work {
            match moment {
                Moment::Schedule => queued.push_back(Time::ZERO),
                _ => self.now += queued.pop_front().expect("its step was scheduled"),
            }
        }
    }

    /// When the last step of `stretch`, which begins now, will end; now, if pass times are not the model's. Nothing
    /// runs. `in_flight`: under async scheduling, when the tokens of the step in flight are ready.
    pub(crate) fn end_of_stretch(&self, stretch: &Stretch, in_flight: Option<Time>) -> Time {
        let (World { target, decision_time, overhead, .. }, n) = (&self.world, u64::from(stretch.requests));
        let (mut now, mut device, mut context) = (self.now, self.device, stretch.context);
        let (mut ready, queues) = (in_flight, self.world.queues);
        let exact = self.noise.is_none() && self.host_work.is_none() && self.piecewise == Time::ZERO;
        for _ in 0..if exact { stretch.steps } else { 0 } {
            let pass = target.pass(PassShape { requests: n, batched: n, context, pairs: context + n });
            match &mut ready {
                Some(ready) => {
                    now += decision_time.schedule;
                    device = now.max(device) + pass;
                    now = now.max(std::mem::replace(ready, device)) + decision_time.update;
                }
                None => now = if queues { now.max(device) } else { now } + pass + *overhead,
            }
            context += n;
        }
        now
    }

    /// A time before which `passes` further target passes cannot have ended; now, if the least time of a pass is not
    /// known.
    pub(crate) fn after_passes(&self, passes: u32) -> Time {
        if self.rank.is_none() { self.now + self.least_pass * u64::from(passes) } else { self.now }
    }

    /// Advances the clock (or the device's queue) by the time of a target pass. `shape` says how many tokens the pass
    /// processes and how many KV tokens it reads. Returns the model's time, without noise.
    fn target_pass(&mut self, shape: PassShape) -> Time {
        let time = self.world.target.pass(shape);
        self.advance(time, 0);
        time
    }
}

impl Executor for EventClock<'_> {
    type Error = Infallible;
    const SKIPS: bool = true;

    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    fn queued_until(&self) -> Time {
        self.now.max(self.device)
    }

    fn begin_iteration(&mut self) {}

    fn wait_until(&mut self, at: Time) {
        self.now = self.now.max(at);
    }

    fn start(&mut self, request: RequestTruth) {
        self.start_as(request.id, request);
    }

    fn start_as(&mut self, id: RequestId, request: RequestTruth) {
        self.truths.start_as(id, request);
        if let Some(ledger) = &mut self.ledger {
            ledger.start(id);
        }
    }

    fn preempted(&mut self, id: RequestId) {
        if let Some(ledger) = &mut self.ledger {
            ledger.lost(id);
        }
    }

    fn end(&mut self, id: RequestId) {
        self.truths.end(id);
    }

    fn cap_draft_limits(&mut self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]) {
        self.truths.cap_draft_limits(ids, emitted, limit);
    }

    fn drafts_in_parallel(&self) -> bool {
        self.world.drafting == Drafting::Parallel
    }

    fn charge_decision(&mut self, moment: Moment) {
        let time = self.world.decision_time.of(moment);
        match moment {
            // Both decisions read confidences of the pass before them. So they begin when the device has run all
            // queued passes, and the next pass begins after the decision: the next draft pass, or the target pass that
            // verifies the selected tokens.
            Moment::KeepDrafting | Moment::Select if self.world.queues => self.device = self.queued_until() + time,
            _ => self.now += time,
        }
        if matches!(moment, Moment::Schedule | Moment::Update) && self.noted {
            self.queue_host_work(moment);
        }
    }

    fn draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), Infallible> {
        let batch = &step.batch;
        let by_pass = || match (pass.pass, self.world.drafting) {
            (1, Drafting::Parallel) => Some(shape::draft_block(batch, pass.draft_len)),
            (2.., Drafting::Parallel) => None,
            _ => Some(pass.shape(batch, &out.trees)),
        };
        let shape = match pass.cost {
            PassCost::ByPass => by_pass(),
            PassCost::Given(shape) | PassCost::Context(shape) => Some(shape),
            PassCost::Free => None,
        };
        // Tokens that a lookup copies need no draft pass. So the draft model runs only if some request of the batch has
        // no match, and then at most `passes` passes.
        let copied = self
            .model_passes
            .is_some_and(|passes| pass.pass > passes || pass.pass > 0 && self.truths.all_matched(batch));
        if let Some(shape) = shape.filter(|_| !copied) {
            let time = match pass.cost {
                PassCost::Context(_) => self.world.draft.context_pass(shape),
                _ => self.world.draft.pass(shape),
            };
            self.advance(time, u64::from(pass.pass) + 1);
        }
        self.truths.reveal(batch, pass, out);
        Ok(())
    }

    fn verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), Infallible> {
        match self.noted {
            false => _ = self.run(step, drafts, accepted),
            true => self.run_and_note(step, drafts, accepted),
        }
        Ok(())
    }

    fn spent(&mut self, at: Time) -> Option<Spent> {
        self.ledger.as_mut().map(|ledger| ledger.until(at))
    }

    #[inline]
    fn plain_step(&mut self, shape: PassShape) {
        if self.noted {
            return self.plain_step_and_note(shape);
        }
        let pass = self.world.target.pass(shape);
        // The step has only a target pass, and no other step is in flight. So the host goes on only after the pass has
        // ended, even if the device has a queue.
        let begun = if self.world.queues { self.queued_until() } else { self.now };
        self.now = begun + pass + self.world.overhead;
    }
}

/// A draft model on its own device. Its passes run at the same time as the target's passes.
struct DraftBeside {
    /// The part of the last target pass's time with which no draft pass has overlapped yet.
    covered: Time,
    /// Share of rounds (a request's draft tokens of one step), [0, 1], in which the draft model guesses correctly what
    /// the target accepts in the request's previous round.
    guessed: f64,
    seed: u64,
}

impl DraftBeside {
    /// The time by which a pass delays the step. A target pass delays it by its whole time. A draft pass delays it by
    /// the part that does not overlap with the last target pass.
    fn beside(&mut self, pass: Time, target: bool) -> Time {
        if target {
            self.covered = pass;
            return pass;
        }
        let hidden = pass.min(self.covered);
        self.covered = self.covered - hidden;
        pass - hidden
    }

    /// Sets the number of accepted tokens of a request to 0 if the draft model guessed wrongly what the target accepts
    /// in the request's previous round. Draws for each request whether the guess was wrong, except for its first round,
    /// which has no previous round. The draw is keyed by the request's number (`number(id)`) and by its output
    /// position.
    fn lose(&self, batch: &BatchView, accepted: &mut [u32], number: impl Fn(RequestId) -> RequestId) {
        for ((&id, &emitted), accepted) in batch.ids.iter().zip(batch.emitted).zip(accepted) {
            let luck = Luck::new(self.seed, Stream::Guess, number(id).into());
            if emitted > 1 && luck.unit(emitted.into()) >= self.guessed {
                *accepted = 0;
            }
        }
    }
}
