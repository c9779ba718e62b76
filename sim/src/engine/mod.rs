//! The engine loop: schedule, draft, verify, update, observe; the same for every clock.
//!
//! The orders of a step are ARCHITECTURE.md's: [`step_start`] and [`step_end`] have the phases in one each. The loop never asks which executor it drives or whether there is a drafter,
//! and allocates nothing once its buffers have grown.

mod arrivals;
mod collector;
mod draft_loop;
pub(crate) mod draft_passes;
mod drafter;
mod held;
mod input_batch;
mod kv_cache;
mod next_batch;
mod request;
mod scheduler;
mod scheduler_output;
mod spec_decode;
mod step_end;
mod step_start;
mod stretch;
#[cfg(test)]
mod tests;

pub use collector::Collector;
pub(crate) use draft_loop::draft_at_start;
pub use drafter::{ByOracle, ByPolicy, Drafter, NoDraft};
pub use kv_cache::{BlockId, TablesOf};
pub use request::{RejectReason, RunningRequest, WaitingRequest};
pub use scheduler::{BatchRange, Lengths, Order, Rules, Scheduler, SpeculativeConfig};
pub use scheduler_output::SchedulerOutput;
pub use spec_decode::SpecDecode;

use crate::executor::Executor;
use crate::{Arrivals, EngineConfig, RequestId, RequestTruth, Time, Workload};
use arrivals::ArrivalStream;
use std::sync::atomic::{AtomicBool, Ordering};
use step_end::Pipeline;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every request has ended.
    Done,
    /// Asked to stop.
    Interrupted,
    /// The clock ran past its 213 days: some time it was given is absurd.
    OutOfTime,
    /// A pass failed.
    Failed,
}

/// What a run leaves behind.
pub struct Finished<E, W> {
    /// The facts.
    pub out: Collector,
    /// The drafter's warnings.
    pub warnings: Vec<String>,
    /// Blocks of the target's pool that requests can use.
    pub usable_blocks: u32,
    /// The executor, given back.
    pub executor: E,
    /// Who watched.
    pub watch: W,
}

/// Sees each call of the scheduler. Nobody looks in ordinary runs.
pub trait Watch {
    /// A step was decided: a call of the scheduler that began at `start` and ended at `end`.
    fn scheduled(&mut self, _scheduler: &Scheduler, _start: Time, _end: Time) {}

    /// A step's output, the scheduler's output at hand, was taken between `start` and `end`.
    fn updated(&mut self, _scheduler: &Scheduler, _start: Time, _end: Time) {}
}

impl Watch for () {}

/// The engine, over an executor and a drafter.
pub struct Engine<'a, E, D, W = ()> {
    config: &'a EngineConfig,
    workload: &'a Workload,
    arrivals: ArrivalStream<'a>,
    scheduler: Scheduler<'a>,
    drafter: D,
    executor: E,
    spec: SpecDecode,
    pipeline: Pipeline,
    out: Collector,
    watch: W,
}

impl<'a, E: Executor, D: Drafter<E>> Engine<'a, E, D> {
    /// An empty engine. `slo_tpot_s` is the run's TPOT limit shown to policies, seconds, infinity for none. Panics on a
    /// configuration that [`Rules::of`] refuses.
    pub fn new(
        config: &'a EngineConfig,
        workload: &'a Workload,
        arrivals: Arrivals,
        slo_tpot_s: f64,
        executor: E,
        drafter: D,
        keep_steps: bool,
    ) -> Self {
        let speculation = drafter.speculative_config(config.max_draft_len, executor.drafts_in_parallel());
        let rules = Rules::of(config, &speculation).expect("the configuration was checked before");
        Engine::by_rules(config, workload, arrivals, slo_tpot_s, rules, executor, drafter, keep_steps, ())
    }
}

impl<'a, E: Executor, D: Drafter<E>, W: Watch> Engine<'a, E, D, W> {
    /// As [`new`](Engine::new), with rules of one's own, watched by `watch`.
    #[allow(clippy::too_many_arguments, reason = "those of `new`, and two")]
    pub fn by_rules(
        config: &'a EngineConfig,
        workload: &'a Workload,
        arrivals: Arrivals,
        slo_tpot_s: f64,
        rules: Rules,
        executor: E,
        drafter: D,
        keep_steps: bool,
        watch: W,
    ) -> Self {
        Engine {
            config,
            workload,
            arrivals: ArrivalStream::new(workload, arrivals),
            pipeline: Pipeline::new(&rules, workload.len()),
            scheduler: Scheduler::new(config, workload, rules, slo_tpot_s, !E::SKIPS),
            drafter,
            executor,
            spec: SpecDecode::default(),
            out: Collector::new(workload.len(), keep_steps),
            watch,
        }
    }

    /// Runs until every request has ended, `interrupt` is set, or the clock can go no further.
    ///
    /// # Errors
    /// The executor's, from a pass that failed.
    pub fn run(&mut self, interrupt: &AtomicBool) -> Result<Ending, E::Error> {
        loop {
            if interrupt.load(Ordering::Relaxed) {
                return Ok(Ending::Interrupted);
            }
            self.executor.begin_iteration();
            if self.executor.now() == Time::MAX {
                return Ok(Ending::OutOfTime);
            }
            self.add_arrived();
            if !self.has_work() {
                match self.arrivals.next_at() {
                    Time::MAX => return Ok(Ending::Done),
                    at => self.executor.wait_until(at),
                }
                continue;
            }
            let order = self.scheduler.rules().order;
            match order {
                Order::StepStart | Order::StepEnd if self.skip_stretch() => {}
                Order::StepStart => self.step()?,
                Order::StepEnd | Order::Async => self.step_with_queue()?,
            }
        }
    }

    /// Ends it, with what the requests still running have done so far.
    pub fn finish(mut self) -> Finished<E, W> {
        let usable_blocks = self.scheduler.kv_cache_manager().usable();
        self.scheduler.into_running().iter().for_each(|r| self.out.left(r));
        let warnings = self.drafter.warnings();
        Finished { out: self.out, warnings, usable_blocks, executor: self.executor, watch: self.watch }
    }

    /// Hands the scheduler what has arrived.
    fn add_arrived(&mut self) {
        let now = self.executor.now();
        while let Some((id, at)) = self.arrivals.pop(now) {
            self.out.records.arrival[id as usize] = at;
            if let Err(reason) = self.scheduler.add_request(id, at) {
                self.out.reject(id, at, reason);
                self.executor.end(id);
                self.arrivals.ended(at);
            }
        }
    }

    /// Tells executor, drafter and collector what scheduling did to requests.
    #[inline]
    fn act_on_schedule(&mut self, now: Time) {
        let output = self.scheduler.output();
        if !output.admitted.is_empty() {
            self.start_admitted(now);
        }
        let output = self.scheduler.output();
        for r in &output.preempted {
            self.out.preempt(r);
            self.executor.preempted(r.id);
            self.pipeline.forget(r.id);
        }
        for r in &output.rejected {
            if let Some(ran) = &r.ran {
                self.out.left(ran);
            }
            self.out.reject(r.id, now, r.reason);
            self.executor.end(r.id);
            self.pipeline.forget(r.id);
            self.drafter.request_finished(r.id);
            self.arrivals.ended(now);
        }
    }

    /// On a request's first scheduling its truth is drawn and its queueing ends.
    fn start_admitted(&mut self, now: Time) {
        for index in 0..self.scheduler.output().admitted.len() {
            let admission = self.scheduler.output().admitted[index];
            if !self.out.admit(admission, now) {
                continue;
            }
            if self.config.draft_prefill && !self.drafter.drafts_for_next() {
                self.scheduler.never_draft_for(index);
            }
            self.executor.start(self.truth_of(admission.id));
        }
    }

    fn truth_of(&self, id: RequestId) -> RequestTruth {
        let (i, w) = (id as usize, self.workload);
        RequestTruth {
            id,
            // Beyond the model's length nothing is emitted, so no truth is needed either.
            output_len: self.scheduler.max_tokens(id),
            category: w.category[i],
            recording: w.recording.get(i).copied().filter(|&r| r != u32::MAX),
        }
    }

    /// Tells executor, drafter and collector what a step's output did to requests.
    #[inline]
    fn act_on_output(&mut self, end: Time) {
        let output = self.scheduler.output();
        for &id in &output.first_tokens {
            self.out.records.first_token[id as usize] = end;
        }
        for r in &output.finished {
            self.out.finish(r, end);
            self.executor.end(r.id);
            self.pipeline.ended(r.id);
            self.drafter.request_finished(r.id);
            self.arrivals.ended(end);
        }
    }
}
