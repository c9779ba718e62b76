//! The engine loop: schedule, draft, verify, update, observe. The loop is the same for every clock.
//!
//! The phases of a step have two orders (ARCHITECTURE.md). In `step_start.rs` draft tokens are made at the start of the
//! step that verifies them. In `step_end.rs` they are made at the end of a step, for the next step. The loop is generic
//! over executor and drafter. It allocates no memory once its buffers have grown.

mod ahead;
mod arrivals;
mod collector;
mod draft_loop;
pub(crate) mod draft_passes;
mod draft_weights;
mod drafter;
mod fed;
mod held;
mod hooks;
mod ids;
mod input_batch;
mod kv_cache;
mod next_batch;
mod online;
mod pipeline;
mod request;
mod scheduler;
mod scheduler_output;
mod spec_decode;
mod state;
mod step_end;
mod step_plan;
mod step_result;
mod step_start;
mod streamed;
mod stretch;
mod weights;

#[cfg(test)]
mod tests;

pub use crate::config::BatchRange;
pub use arrivals::Given;
pub use collector::Collector;
pub(crate) use draft_loop::draft_at_start;
pub use draft_passes::passes_by_table;
pub use drafter::{ByOracle, ByPolicy, Drafter, NoDraft};
pub use fed::Load;
pub use hooks::Hooks;
pub use kv_cache::{BlockId, TablesOf};
pub use request::{Part, RejectReason, Reserved, RunningRequest, WaitingRequest};
pub(crate) use scheduler::Stretch;
pub use scheduler::{Lengths, Order, Rules, Scheduler, Sglang, SglangBatch, SpeculativeConfig};
pub use scheduler_output::SchedulerOutput;
pub use spec_decode::SpecDecode;
pub use state::{Engine, Watch};
pub use step_result::StepResult;
pub use streamed::Source;

use crate::executor::Executor;
use crate::patience::Patience;
use crate::time::Time;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a call of [`Engine::run`] came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every request has ended.
    Done,
    /// The caller asked to stop.
    Interrupted,
    /// The run ended early, because it became certain whether enough requests meet their latency bounds ([`Patience`]).
    Certain,
    /// The clock reached its maximum of 213 days, so some time in the settings or the workload is absurd.
    OutOfTime,
    /// A pass failed.
    Failed,
}

/// The results of a run that has ended, with the run's executor and with the watcher of its scheduler calls.
pub struct Finished<E, W> {
    /// Request records, totals, time series, step records and rejected requests of the run.
    pub out: Collector,
    /// The drafter's warnings for the user.
    pub warnings: Vec<String>,
    /// Number of KV blocks of the target's pool that requests can use.
    pub usable_blocks: u32,
    /// The executor, returned to the caller.
    pub executor: E,
    /// The watcher, which was called at each call of the scheduler. Returned to the caller.
    pub watch: W,
}

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// Runs until every request has ended, `interrupt` is set, it is certain whether enough requests meet their latency
    /// bounds ([`Patience`]), or the clock reaches its maximum. Returns which of these four events ended the run.
    ///
    /// # Errors
    /// A pass failed; the executor's error.
    pub fn run(&mut self, interrupt: &AtomicBool) -> Result<Ending, E::Error> {
        loop {
            if interrupt.load(Ordering::Relaxed) {
                return Ok(Ending::Interrupted);
            }
            if self.out.certain() {
                return Ok(Ending::Certain);
            }
            self.executor.begin_iteration();
            if self.executor.now() == Time::MAX {
                return Ok(Ending::OutOfTime);
            }
            self.add_arrived();
            if !self.has_work() {
                self.scheduler.idle();
                match self.arrivals.next_at() {
                    Time::MAX => return Ok(Ending::Done),
                    at => self.executor.wait_until(at),
                }
                continue;
            }
            self.turn()?;
        }
    }

    /// If a stretch (several decode steps that are computed in one go) begins with the next step, computes the stretch.
    /// Otherwise runs one step.
    #[inline(always)]
    fn turn(&mut self) -> Result<(), E::Error> {
        if self.skip_stretch()? {
            return Ok(());
        }
        match self.scheduler.rules().order {
            Order::StepStart => self.step(),
            Order::StepEnd | Order::Async => self.step_with_queue(),
        }
    }

    /// Lets the run end as soon as it is certain whether enough requests meet their latency bounds. `patience` has the
    /// bounds, and says which requests are judged by them.
    pub(crate) fn be_patient(&mut self, patience: Option<Patience>) {
        self.out.be_patient(patience);
    }

    /// Ends the run and returns its results. For each request that still runs, the record has the number of tokens that
    /// the request has emitted.
    pub fn finish(mut self) -> Finished<E, W> {
        let usable_blocks = self.scheduler.usable_blocks();
        self.scheduler.running().iter().for_each(|r| self.out.left(r));
        self.out.close_all();
        let warnings = self.drafter.warnings();
        Finished { out: self.out, warnings, usable_blocks, executor: self.executor, watch: self.watch }
    }

    /// Passes the requests that have arrived to the scheduler, if it looks for them in this turn of the loop.
    fn add_arrived(&mut self) {
        if self.looks() {
            self.take_arrived();
        }
    }

    /// Whether the scheduler looks for new requests in this turn of the loop. Ask once in a turn.
    fn looks(&mut self) -> bool {
        let idle = !self.has_work();
        self.scheduler.receives(idle)
    }

    /// Passes the requests that have arrived to the scheduler, and records their arrivals. Records the requests that
    /// the scheduler rejects.
    fn take_arrived(&mut self) {
        let now = self.executor.now();
        while let Some(Given { id, sent: at, since, part }) = self.arrivals.pop(now) {
            self.stuck = false;
            self.out.records.arrival[id as usize] = since;
            if let Err(reason) = self.scheduler.add_request(id, at, part) {
                self.out.reject((id, self.scheduler.workload().number(id)), at, reason);
                self.executor.end(id);
                self.arrivals.ended(id, at);
                self.ids.settle(&[id]);
            }
        }
    }
}
