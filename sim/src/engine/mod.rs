//! The engine loop: admit, schedule, draft, verify, commit, observe; the same for every clock.
//!
//! The order of a step is ARCHITECTURE.md's. The loop never asks which executor it drives and allocates nothing once
//! its buffers have grown.

mod arrivals;
mod collector;
mod commit;
mod drafter;
mod kv;
mod memory;
mod schedule_v0;
mod schedule_v1;
mod state;
mod stretch;
#[cfg(test)]
mod tests;
mod work;

pub use collector::Collector;
pub use drafter::{ByOracle, ByPolicy, Drafter, NoDraft};
pub use kv::{BlockId, BlockPool, BlockTable, Content};

use crate::executor::Executor;
use crate::{
    Arrivals, BudgetCharge, DraftPlan, DraftShape, Drafts, EngineConfig, RequestId, RequestTruth, Scheduler,
    StepOutcome, StepRecord, Time, Workload,
};
use arrivals::ArrivalStream;
use memory::Memory;
use state::{Active, Waiting};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use work::Work;

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
    executor: E,
    drafter: D,
    arrivals: ArrivalStream<'a>,
    slo_tpot_s: f64,
    waiting: VecDeque<Waiting>,
    running: Vec<Active>,
    memory: Memory<'a>,
    out: Collector,
    step: u64,
    /// End of the last step: most requests emitted then.
    last_end: Time,
    preempted: u32,
    /// Token budget left in this step.
    budget: u32,
    work: Work,
    plan: DraftPlan,
    drafts: Drafts,
    accepted: Vec<u32>,
}

impl<'a, E: Executor, D: Drafter<E>> Engine<'a, E, D> {
    /// An empty engine. `slo_tpot_s` is the run's TPOT limit shown to policies, seconds, infinity for none. Panics on a
    /// configuration that [`EngineConfig::check`] refuses.
    pub fn new(
        config: &'a EngineConfig,
        workload: &'a Workload,
        arrivals: Arrivals,
        slo_tpot_s: f64,
        executor: E,
        drafter: D,
        keep_steps: bool,
    ) -> Self {
        config.check().expect("the configuration was checked before");
        Engine {
            config,
            workload,
            executor,
            drafter,
            arrivals: ArrivalStream::new(workload, arrivals),
            slo_tpot_s,
            waiting: VecDeque::new(),
            running: Vec::new(),
            memory: Memory::new(config, workload, D::ACTIVE),
            out: Collector::new(workload.len(), keep_steps),
            step: 0,
            last_end: Time::ZERO,
            preempted: 0,
            budget: 0,
            work: Work::default(),
            plan: DraftPlan::default(),
            drafts: Drafts::default(),
            accepted: Vec::new(),
        }
    }

    /// Runs until every request has ended, `interrupt` is set, or the clock can go no further.
    pub fn run(&mut self, interrupt: &AtomicBool) -> Result<Ending, E::Error> {
        loop {
            if interrupt.load(Ordering::Relaxed) {
                return Ok(Ending::Interrupted);
            }
            self.executor.round();
            if self.executor.now() == Time::MAX {
                return Ok(Ending::OutOfTime);
            }
            self.admit_arrivals();
            if self.running.is_empty() && self.waiting.is_empty() {
                match self.arrivals.next_at() {
                    Time::MAX => return Ok(Ending::Done),
                    at => self.executor.wait_until(at),
                }
            } else if !self.skip_stretch() {
                self.one_step()?;
            }
        }
    }

    /// Ends it, with what the requests still running have done so far.
    pub fn finish(mut self) -> Finished<E> {
        for a in std::mem::take(&mut self.running) {
            self.flush(&a);
        }
        self.out.totals.gaps.flush();
        Finished {
            out: self.out,
            warnings: self.drafter.warnings(),
            usable_blocks: self.memory.usable(),
            executor: self.executor,
        }
    }

    fn admit_arrivals(&mut self) {
        let now = self.executor.now();
        while let Some((id, at)) = self.arrivals.pop(now) {
            self.out.records.arrival[id as usize] = at;
            if self.fits_at_all(id) {
                self.waiting.push_back(Waiting { id, emitted: 0, last_emit: Time::MAX, seen: 0, may_draft: true });
            } else {
                self.reject(id, at);
            }
        }
    }

    /// Could the prompt ever be scheduled? What only shows later (outputs that outgrow the pool) is caught there.
    fn fits_at_all(&self, id: RequestId) -> bool {
        let prompt = self.workload.prompt_len[id as usize];
        let whole = !self.config.chunked_prefill || self.config.scheduler == Scheduler::V0PrefillFirst;
        prompt < self.config.max_model_len
            && self.memory.could_hold(prompt)
            && (!whole || prompt <= self.config.max_num_batched_tokens)
    }

    fn reject(&mut self, id: RequestId, at: Time) {
        self.out.reject(id, at);
        self.executor.end(id);
        self.arrivals.ended(at);
    }

    fn one_step(&mut self) -> Result<(), E::Error> {
        let start = self.executor.now();
        self.begin_step();
        match self.config.scheduler {
            Scheduler::V1 => self.schedule_v1(),
            Scheduler::V0PrefillFirst => self.schedule_v0(),
        }
        self.work.gather(&mut self.running, D::ACTIVE, self.config.draft_prefill);
        if D::ACTIVE {
            let (ids, emitted, limit) = self.work.columns.limits();
            self.executor.proposable(ids, emitted, limit);
            let view = self.work.plan(self.config, self.step, start, self.running.len(), self.waiting.len());
            if let Some(first) = self.drafter.prefix(&view.batch) {
                self.work.columns.keep_first(first, &mut self.running);
            }
        }
        let n = self.work.columns.len();
        if n == 0 && self.work.chunks.is_empty() {
            // Scheduling only rejected or preempted; the next round goes on from there.
            return Ok(());
        }
        if D::ACTIVE {
            self.drafts.reset(n, self.config.max_draft_len);
            self.plan.shape = DraftShape::Chain;
            self.plan.draft_len.clear();
            self.plan.draft_len.resize(n, 0);
            self.accepted.resize(n, 0);
        }

        let plan = self.work.plan(self.config, self.step, start, self.running.len(), self.waiting.len());
        self.drafter.speculate(&mut self.executor, &plan, &mut self.plan, &mut self.drafts)?;
        let drafted = self.executor.now();
        if D::ACTIVE && self.config.budget_charge == BudgetCharge::Trimmed {
            self.top_up_chunks();
            let plan = self.work.plan(self.config, self.step, start, self.running.len(), self.waiting.len());
            self.executor.verify(&plan, &mut self.drafts, &mut self.accepted)?;
        } else {
            self.executor.verify(&plan, &mut self.drafts, &mut self.accepted)?;
        }
        let end = self.executor.now();
        let mut record = StepRecord {
            step: self.step,
            start,
            end,
            draft_time: drafted - start,
            verify_time: end - drafted,
            batch_size: n as u32,
            chunks: self.work.prefill.chunks,
            chunk_tokens: self.work.prefill.tokens,
            context: self.work.context_sum(),
            waiting: self.waiting.len() as u32,
            draft_passes: match self.executor.drafts_in_parallel() {
                true => self.drafts.passes.min(1),
                false => self.drafts.passes,
            },
            used_blocks: self.memory.used(),
            preempted: self.preempted,
            ..StepRecord::default()
        };
        self.commit(&mut record);
        self.out.step(&record);
        if D::ACTIVE {
            if self.drafts.wants.confidence && !self.drafts.in_trees() {
                self.out.totals.calibration.step(&self.drafts, &self.accepted);
            }
            self.drafter.observe(&StepOutcome {
                ids: self.work.columns.ids(),
                drafted: &self.drafts.draft_len,
                verified: &self.drafts.verify_len,
                accepted: &self.accepted,
                drafts: &self.drafts,
                draft_time: record.draft_time,
                verify_time: record.verify_time,
            });
        }
        self.last_end = end;
        self.step += 1;
        Ok(())
    }

    fn begin_step(&mut self) {
        self.preempted = 0;
        self.budget = self.config.max_num_batched_tokens;
    }

    /// On a request's first scheduling its truth is drawn and its queueing ends.
    fn first_scheduled(&mut self, id: RequestId, cached: u32) {
        let i = id as usize;
        if self.out.records.first_scheduled[i] == Time::MAX {
            self.out.records.first_scheduled[i] = self.executor.now();
            self.out.records.cached_tokens[i] = cached;
            self.executor.start(RequestTruth {
                id,
                // Beyond the model's length nothing is emitted, so no truth is needed either.
                output_len: self.workload.output_len[i].min(self.config.max_model_len - self.workload.prompt_len[i]),
                category: self.workload.category[i],
                recording: self.workload.recording.get(i).copied().filter(|&r| r != u32::MAX),
            });
        }
    }
}
