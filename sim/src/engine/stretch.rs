//! Computes a stretch in one go. A stretch is a series of consecutive decode steps without drafting and without
//! decisions. Such steps need only sums over the batch.
//!
//! Between arrivals and completions the engine without a drafter repeats one step with a growing context. For each such
//! step the engine still asks the true latency model and adds to the totals in the same order as for a single step.
//! Only the update of the requests is postponed to the end of the stretch. Results are therefore equal byte for byte
//! with and without stretches (a property test checks this).

use super::collector::Collector;
use super::drafter::Drafter;
use super::pipeline::InFlight;
use super::request::RunningRequest;
use super::scheduler::{Order, Scheduler, Stretch};
use super::state::{Engine, Watch};
use crate::event_clock::EventClock;
use crate::executor::{Executor, Moment, StepPlan};
use crate::latency::PassShape;
use crate::policy::BatchView;
use crate::time::Time;
use crate::workload::RequestId;

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// If a stretch of decode steps begins with the next step, computes it, up to the next end or arrival of a request.
    /// Returns whether it computed any step.
    ///
    /// # Errors
    /// A pass failed; the executor's error.
    pub(super) fn skip_stretch(&mut self) -> Result<bool, E::Error> {
        let rules = self.scheduler.rules();
        if !E::SKIPS || !rules.skip_stretches || rules.drafter || self.out.wants_every_step() {
            return Ok(false);
        }
        match rules.order {
            Order::Async => self.skip_queued_steps(),
            Order::StepStart | Order::StepEnd => Ok(self.skip_steps()),
        }
    }

    /// Computes a stretch whose steps run one after the other, if such a stretch begins with the next step.
    fn skip_steps(&mut self) -> bool {
        let Some(Stretch { steps, requests, mut context }) = self.scheduler.stretch(0) else { return false };
        let until = self.arrivals.next_at();
        let begun = self.executor.now();
        let mut now = begun;
        let mut run = Skipped::new(requests, begun);
        while run.steps < steps && now < until {
            let start = now;
            let pairs = context + u64::from(requests);
            self.executor.plain_step(PassShape { requests: requests.into(), batched: requests.into(), context, pairs });
            now = self.executor.now();
            run.step(&mut self.out, &self.scheduler, context, (start, now));
            context += u64::from(requests);
        }
        run.end(&mut self.out, (begun, now), now - begun);
        let ended = self.scheduler.catch_up(run.steps);
        self.out.note_blocks(&self.scheduler);
        if ended > 0 {
            self.scheduler.remove_finished(ended);
        }
        self.act_on_output(now);
        self.tell_ended(self.pipeline.untold_ends.len());
        true
    }

    /// The only step in flight, if it gives each running request one token and nothing else.
    fn steady_step(&self) -> Option<&InFlight> {
        let step = self.pipeline.queue.front().filter(|_| self.pipeline.queue.len() == 1)?;
        let (ids, running) = (step.output.batch.ids(), self.scheduler.running());
        let steady = |(&id, r): (&RequestId, &RunningRequest)| id == r.id && r.num_cacheable_tokens + 1 == r.num_tokens;
        let plain = step.output.chunks.is_empty() && step.record.preempted == 0 && ids.len() == running.len();
        (plain && ids.iter().zip(running).all(steady)).then_some(step)
    }

    /// Computes a stretch under async scheduling, if such a stretch begins with the next step: in each turn of the loop
    /// a step is queued, and then the output of the step before it is taken. One step is in flight before the stretch
    /// and one after it, both with all running requests.
    fn skip_queued_steps(&mut self) -> Result<bool, E::Error> {
        if self.steady_step().is_none() {
            return Ok(false);
        }
        let Some(Stretch { steps, requests, mut context }) = self.scheduler.stretch(1) else { return Ok(false) };
        let Some(step) = self.pipeline.queue.front_mut() else { return Ok(false) };
        let until = self.arrivals.next_at();
        let begun = step.record.start.max(self.pipeline.last_end);
        let (mut end, mut verify_time) = (begun, Time::ZERO);
        let mut run = Skipped::new(requests, begun);
        self.scheduler.swap_output(&mut step.output);
        let plan = self.scheduler.step_plan();
        while run.steps < steps && self.executor.now() < until {
            let start = self.executor.now();
            self.executor.charge_decision(Moment::Schedule);
            let queued = self.executor.queued_until();
            let plan = StepPlan { batch: BatchView { context_sum: context, ..plan.batch }, ..plan };
            self.executor.verify(&plan, &mut step.spec.drafts, &mut step.spec.accepted)?;
            let ready = self.executor.queued_until();
            self.executor.wait_until(step.ready);
            let taken = self.executor.now();
            self.executor.charge_decision(Moment::Update);
            let now = self.executor.now();
            verify_time += step.record.verify_time + (now - taken);
            run.step(&mut self.out, &self.scheduler, step.record.context, (end, now));
            (step.record.start, step.record.verify_time, step.record.context) = (start, ready - queued, context);
            (step.ready, step.asked, end) = (ready, start, now);
            context += u64::from(requests);
        }
        run.end(&mut self.out, (begun, end), verify_time);
        (self.pipeline.last_end, self.pipeline.untold) = (end, false);
        self.out.totals.peak_blocks = self.out.totals.peak_blocks.max(step.record.used_blocks);
        // The blocks of the last step count when its output is taken.
        if run.steps > 1 {
            self.scheduler.catch_up(run.steps - 1);
            self.out.note_blocks(&self.scheduler);
        }
        self.scheduler.catch_up(1);
        step.record.step += u64::from(run.steps);
        step.record.waiting = 0;
        step.record.used_blocks = self.scheduler.used_blocks();
        self.scheduler.swap_output(&mut step.output);
        self.tell_ended(self.pipeline.untold_ends.len());
        Ok(true)
    }
}

/// The most steps that the search for a quiet time computes.
const FORESEEN: u32 = 64;

impl<'a, D: Drafter<EventClock<'a>>, W: Watch> Engine<'_, EventClock<'a>, D, W> {
    /// A time before which no request ends or emits its first token, if no further request is given; `Time::MAX` if
    /// none will. During a stretch this is later than the begin of the next step.
    pub(crate) fn quiet_until(&self) -> Time {
        let (next, rules) = (self.next_step(), self.scheduler.rules());
        if rules.drafter {
            let steps = self.scheduler.quiet_steps(self.pipeline.queue.len() as u32);
            return self.executor.after_passes(steps).min(self.arrivals.given_at()).max(next);
        }
        if !rules.skip_stretches || self.out.wants_every_step() || self.executor.now() != next {
            return next;
        }
        let in_flight = match (rules.order, self.steady_step()) {
            (Order::Async, None) => return next,
            (Order::Async, Some(step)) => Some(step.ready),
            _ => None,
        };
        let Some(stretch) = self.scheduler.stretch(in_flight.is_some().into()) else { return next };
        let stretch = Stretch { steps: stretch.steps.min(FORESEEN), ..stretch };
        self.executor.end_of_stretch(&stretch, in_flight).min(self.arrivals.given_at()).max(next)
    }
}

/// The steps of a stretch that are computed so far, and their sums that the results do not have yet.
struct Skipped {
    /// Number of running requests, each of which gets one token in each step.
    requests: u32,
    /// Number of steps so far.
    steps: u32,
    context_time: u128,
    /// The steps that have ended since this time belong to one time bin of the run's time series. They are added to
    /// this bin in one call.
    lump_start: Time,
    /// Number of steps that have ended since `lump_start`.
    lump_steps: u64,
    /// When the first step of the stretch ended.
    first_end: Time,
}

impl Skipped {
    fn new(requests: u32, begun: Time) -> Skipped {
        Skipped { requests, steps: 0, context_time: 0, lump_start: begun, lump_steps: 0, first_end: begun }
    }

    /// Records a step that lasted from `start`, the end of the step before it, to `end`. Its requests had `context`
    /// tokens in KV.
    #[inline(always)]
    fn step(&mut self, out: &mut Collector, scheduler: &Scheduler, context: u64, (start, end): (Time, Time)) {
        let took = end - start;
        self.context_time += u128::from(context) * u128::from(took.0);
        if end >= out.series.last_end() {
            out.series.lump(start, self.requests, self.lump_steps, start - self.lump_start);
            (self.lump_start, self.lump_steps) = (start, 0);
            out.series.lump(end, self.requests, 0, Time::ZERO);
        }
        self.lump_steps += 1;
        if self.steps == 0 {
            self.first_end = end;
            out.first_of_stretch(scheduler, end);
        } else {
            out.next_of_stretch(self.requests, took);
        }
        self.steps += 1;
    }

    /// Ends a stretch that lasted from `begun` to `end`. `verify_time`: the time of its target passes and of the host's
    /// work.
    fn end(&self, out: &mut Collector, (begun, end): (Time, Time), verify_time: Time) {
        if self.steps > 1 {
            out.end_of_stretch(self.first_end, end);
        }
        out.series.lump(end, self.requests, self.lump_steps, end - self.lump_start);
        let steps = self.steps.into();
        out.totals.plain_steps(self.requests, steps, (end - begun, verify_time), self.context_time);
    }
}
