//! An engine to which a router gives requests while the engine runs.

use super::arrivals::Given;
use super::drafter::Drafter;
use super::request::Reserved;
use super::state::{Engine, Watch};
use crate::executor::Executor;
use crate::metrics::RequestRecords;
use crate::prompt_balance::Runnable;
use crate::time::Time;
use crate::workload::RequestId;

/// The load of an engine between two steps, as the engine reports it to a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of running requests.
    pub running: u32,
    /// Number of waiting requests, preempted ones included.
    pub waiting: u32,
    /// Prompt tokens of the waiting requests, and the output tokens that preempted requests had emitted.
    pub waiting_tokens: u64,
    /// Number of KV blocks that requests hold.
    pub used_blocks: u32,
    /// Number of KV blocks that requests can use.
    pub usable_blocks: u32,
    /// Output tokens emitted since the engine started.
    pub emitted: u64,
    /// Total time that the engine has spent in steps since it started.
    pub busy: Time,
    /// Number of steps since the engine started.
    pub steps: u64,
    /// Number of decode requests, summed over the steps since the engine started.
    pub request_steps: u64,
    /// Prompt tokens computed since the engine started.
    pub prefill_tokens: u64,
    /// Sum over the steps since the engine started: tokens that the step's decode requests have in KV, times the
    /// duration of the step; tokens × ps.
    pub context_time: u128,
}

impl Load {
    /// Share of the KV blocks that requests hold, from 0 to 1.
    pub fn kv_use(&self) -> f64 {
        if self.usable_blocks == 0 { 0.0 } else { f64::from(self.used_blocks) / f64::from(self.usable_blocks) }
    }
}

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// From now on requests come only from calls of [`give`](Engine::give), and none at an arrival time of the
    /// workload.
    pub fn be_fed(&mut self) {
        self.arrivals.be_fed();
    }

    /// Gives the engine a request. The caller must give requests in ascending order of `sent`.
    pub fn give(&mut self, given: Given) {
        self.arrivals.give(given);
    }

    /// Takes the list of requests whose KV comes from another engine and for which KV blocks were allocated since the
    /// last call.
    pub fn take_reserved(&mut self) -> impl Iterator<Item = Reserved> {
        self.scheduler.take_reserved()
    }

    /// Tells the engine that all KV of a request's prompt arrived at `at`, including the draft model's KV if `draft_kv`
    /// is true.
    pub fn kv_arrived(&mut self, id: RequestId, at: Time, draft_kv: bool) {
        self.scheduler.kv_arrived(id, at, draft_kv);
        self.go_on(at);
    }

    /// Tells the engine at `at` that the KV of a request's prompt will not come. The engine computes the prompt itself.
    pub fn computes_here(&mut self, id: RequestId, at: Time) {
        self.scheduler.computes_here(id);
        self.go_on(at);
    }

    /// Frees at time `at` the blocks of a request of which this engine computed only the prompt
    /// ([`Part::Prompt`](crate::Part)), because the prompt's KV has been transferred to another engine.
    pub fn release(&mut self, id: RequestId, at: Time) {
        self.scheduler.release_kept(id);
        self.go_on(at);
    }

    /// Requests may wait for the KV of their prompt from another engine, or keep blocks until another engine has their
    /// KV. If the engine stopped because only such requests are left, moves the engine's clock to `at` and lets the
    /// engine continue.
    fn go_on(&mut self, at: Time) {
        if std::mem::take(&mut self.stuck) {
            self.executor.wait_until(at);
        }
    }

    /// Runs steps as long as they begin before `until`; the last step may end later. With `to_the_next_end` the engine
    /// stops earlier: after the step in which a request ends, is rejected, or gets blocks for KV that comes from
    /// another engine. The caller may not later give a request that is sent before `until` or before the end of the
    /// last step.
    ///
    /// # Errors
    /// A pass failed; the executor's error.
    pub fn run_until(&mut self, until: Time, to_the_next_end: bool) -> Result<(), E::Error> {
        self.arrivals.know_until(until);
        while self.executor.now() < until {
            self.executor.begin_iteration();
            self.add_arrived();
            if self.has_work() && !self.stuck {
                self.turn()?;
            } else {
                self.scheduler.idle();
                match self.arrivals.next_at() {
                    at if at >= until => return Ok(()),
                    at => self.executor.wait_until(at),
                }
            }
            if to_the_next_end && (self.arrivals.has_ended() || self.scheduler.has_reserved()) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes the requests that have arrived by the engine's clock, if every later one comes at `until` or later.
    /// Returns whether the engine has work.
    pub(crate) fn receive(&mut self, until: Time) -> bool {
        self.arrivals.know_until(until);
        self.executor.begin_iteration();
        self.add_arrived();
        if !self.is_busy() {
            self.scheduler.idle();
        }
        self.is_busy()
    }

    /// Whether the engine has work, without the requests that it has not [received](Engine::receive).
    pub(crate) fn is_busy(&self) -> bool {
        self.has_work() && !self.stuck
    }

    /// Makes one turn of the loop.
    ///
    /// # Errors
    /// A pass failed; the executor's error.
    pub(crate) fn one_turn(&mut self) -> Result<(), E::Error> {
        self.turn()
    }

    /// What the next step could run; a dummy request if the engine has no work.
    pub(crate) fn runnable(&self) -> Runnable {
        let runnable = self.scheduler.runnable();
        if self.is_busy() { runnable } else { Runnable { prompts: false, decodes: 1, ..runnable } }
    }

    /// Whether steps have no prompts from now on.
    pub(crate) fn hold_prompts(&mut self, held: bool) {
        self.scheduler.hold_prompts(held);
    }

    /// From now on the engine computes each step by itself. Returns the executor.
    pub(crate) fn be_step_by_step(&mut self) -> &mut E {
        self.scheduler.be_step_by_step();
        &mut self.executor
    }

    /// Moves the engine's clock to `at`, if it is earlier.
    pub(crate) fn wait_until(&mut self, at: Time) {
        self.executor.wait_until(at);
    }

    /// Whether a request has ended since the ends were last taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.arrivals.has_ended()
    }

    /// The engine's clock. While the engine works, this is the end of the last step.
    pub fn now(&self) -> Time {
        self.executor.now()
    }

    /// Takes the requests that ended since the last call, each with the time of its end.
    pub fn take_ended(&mut self) -> impl Iterator<Item = (RequestId, Time)> {
        self.arrivals.take_ended()
    }

    /// Calls `each` for each request that ended since the last call, with the request's
    /// [number](crate::Workload::number), the time of its end, the records of all requests, and its index there. The
    /// request's record is complete.
    pub fn each_ended(&mut self, mut each: impl FnMut(RequestId, Time, &RequestRecords, usize)) {
        for (id, at) in self.arrivals.take_ended() {
            self.out.close(id);
            each(self.scheduler.workload().number(id), at, &self.out.records, id as usize);
        }
    }

    /// The records of all requests so far. Their numbers of rounds (steps with a verified draft token) and of draft
    /// tokens are written only when the run ends. Times may be later than the time up to which the engine was asked to
    /// run.
    pub fn records(&self) -> &RequestRecords {
        &self.out.records
    }

    /// The engine's load between two steps: its running and waiting requests, its KV blocks in use, and its sums since
    /// it started.
    pub fn load(&self) -> Load {
        let tokens = |id: RequestId| u64::from(self.scheduler.workload().prompt_len[id as usize]);
        Load {
            running: self.scheduler.running().len() as u32,
            waiting: self.scheduler.num_waiting() as u32,
            waiting_tokens: self.scheduler.waiting().map(|w| tokens(w.id) + u64::from(w.num_output_tokens)).sum(),
            used_blocks: self.scheduler.used_blocks(),
            usable_blocks: self.scheduler.usable_blocks(),
            emitted: self.out.totals.emitted,
            busy: self.out.totals.busy,
            steps: self.out.totals.steps,
            request_steps: self.out.totals.request_steps,
            prefill_tokens: self.out.totals.prefill_tokens,
            context_time: self.out.totals.context_time,
        }
    }
}
