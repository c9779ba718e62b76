//! The engine loop: schedule, draft, verify, update, observe; the same for every clock.
//!
//! The order of a step is ARCHITECTURE.md's. The loop never asks which executor it drives or whether there is a drafter,
//! and allocates nothing once its buffers have grown.

mod arrivals;
mod collector;
mod drafter;
mod input_batch;
mod kv_cache;
mod request;
mod scheduler;
mod scheduler_output;
mod spec_decode;
mod stretch;
#[cfg(test)]
mod tests;

pub use collector::Collector;
pub use drafter::{ByOracle, ByPolicy, Drafter, NoDraft};
pub use kv_cache::{BlockId, TablesOf};
pub use request::{RejectReason, RunningRequest};
pub use scheduler::{BatchRange, Rules, Scheduler, SpeculativeConfig};
pub use scheduler_output::SchedulerOutput;
pub use spec_decode::SpecDecode;

use crate::executor::Executor;
use crate::{Arrivals, EngineConfig, RequestId, RequestTruth, Time, Workload};
use arrivals::ArrivalStream;
use std::sync::atomic::{AtomicBool, Ordering};

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
pub struct Finished<E> {
    /// The facts.
    pub out: Collector,
    /// The drafter's warnings.
    pub warnings: Vec<String>,
    /// Blocks of the target's pool that requests can use.
    pub usable_blocks: u32,
    /// The executor, given back.
    pub executor: E,
}

/// The engine, over an executor and a drafter.
pub struct Engine<'a, E, D> {
    config: &'a EngineConfig,
    workload: &'a Workload,
    arrivals: ArrivalStream<'a>,
    scheduler: Scheduler<'a>,
    drafter: D,
    executor: E,
    spec: SpecDecode,
    out: Collector,
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
        Engine {
            config,
            workload,
            arrivals: ArrivalStream::new(workload, arrivals),
            scheduler: Scheduler::new(config, workload, rules, slo_tpot_s),
            drafter,
            executor,
            spec: SpecDecode::default(),
            out: Collector::new(workload.len(), keep_steps),
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
            if self.scheduler.is_idle() {
                match self.arrivals.next_at() {
                    Time::MAX => return Ok(Ending::Done),
                    at => self.executor.wait_until(at),
                }
            } else if !self.skip_stretch() {
                self.step()?;
            }
        }
    }

    /// Ends it, with what the requests still running have done so far.
    pub fn finish(mut self) -> Finished<E> {
        let usable_blocks = self.scheduler.kv_cache_manager().usable();
        self.scheduler.into_running().iter().for_each(|r| self.out.left(r));
        self.out.totals.gaps.flush();
        Finished { out: self.out, warnings: self.drafter.warnings(), usable_blocks, executor: self.executor }
    }

    fn step(&mut self) -> Result<(), E::Error> {
        let start = self.executor.now();
        self.scheduler.schedule(start, self.drafter.num_spec_tokens(self.config.max_draft_len));
        self.act_on_schedule(start);
        self.scheduler.prepare_inputs();
        let (ids, emitted, limit) = self.scheduler.draft_limits();
        self.drafter.cap_draft_limits(&mut self.executor, ids, emitted, limit);
        if let Some(n) = self.drafter.max_batch(&self.scheduler.step_plan().batch) {
            self.scheduler.keep_first(n);
        }
        if self.scheduler.output().is_empty() {
            // Scheduling only rejected or preempted; the next iteration goes on from there.
            return Ok(());
        }

        let plan = self.scheduler.step_plan();
        self.drafter.draft(&mut self.executor, &plan, self.config.max_draft_len, &mut self.spec)?;
        let drafted = self.executor.now();
        self.scheduler.top_up_chunks(&self.spec.drafts);
        let plan = self.scheduler.step_plan();
        self.executor.verify(&plan, &mut self.spec.drafts, &mut self.spec.accepted)?;
        let end = self.executor.now();

        let mut record = self.scheduler.update_from_output(&self.spec, end, &mut self.out.totals);
        (record.start, record.end) = (start, end);
        (record.draft_time, record.verify_time) = (drafted - start, end - drafted);
        self.act_on_output(end);
        self.out.step(&record, &self.spec);
        let batch = self.scheduler.step_plan().batch;
        self.drafter.observe(&self.spec.outcome(&batch, record.draft_time, record.verify_time));
        Ok(())
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
        }
        for r in &output.rejected {
            if let Some(ran) = &r.ran {
                self.out.left(ran);
            }
            self.out.reject(r.id, now, r.reason);
            self.executor.end(r.id);
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
            self.drafter.request_finished(r.id);
            self.arrivals.ended(end);
        }
    }
}
