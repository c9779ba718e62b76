//! The parts of the engine. The engine reports the scheduler's decisions and the results of a step to the executor, the
//! drafter and the collector of results.

use super::arrivals::ArrivalStream;
use super::collector::Collector;
use super::drafter::Drafter;
use super::ids::Ids;
use super::pipeline::Pipeline;
use super::scheduler::{Rules, Scheduler};
use super::spec_decode::SpecDecode;
use super::weights::Weights;
use crate::config::EngineConfig;
use crate::executor::{Executor, RequestTruth};
use crate::time::Time;
use crate::workload::{Arrivals, RequestId, Workload};
use std::borrow::Cow;

/// Observes each call of the scheduler, for servers and tests. Ordinary runs use `()`.
pub trait Watch {
    /// Called when the scheduler has decided a step. The scheduler call lasted from `start` to `end`.
    fn scheduled(&mut self, _scheduler: &Scheduler, _start: Time, _end: Time) {}

    /// Called at `now`, when the sampled tokens of a step were added to the requests and are sent to the clients. The
    /// scheduler's [output](Scheduler::output) then has the decisions for this step. `spec` has the step's draft
    /// tokens.
    fn emitted(&mut self, _scheduler: &Scheduler, _spec: &SpecDecode, _now: Time) {}

    /// Called when the host has added the sampled tokens of a step to the requests; it did so from `start` to `end`.
    /// The scheduler's [output](Scheduler::output) then has the decisions for this step. If the step ran anything, the
    /// scheduler's [result](Scheduler::result) says what happened to its requests.
    fn updated(&mut self, _scheduler: &Scheduler, _start: Time, _end: Time) {}
}

impl Watch for () {}

/// The engine with its executor and drafter.
pub struct Engine<'a, E, D, W = ()> {
    pub(super) config: &'a EngineConfig,
    pub(super) arrivals: ArrivalStream<'a>,
    pub(super) scheduler: Scheduler<'a>,
    pub(super) drafter: D,
    pub(super) executor: E,
    pub(super) spec: SpecDecode,
    /// The draft model's weights, if they may be given up.
    pub(super) weights: Option<Weights>,
    pub(super) pipeline: Pipeline,
    /// Whether nothing can be scheduled until a request arrives, KV arrives, or blocks are released. Always false if
    /// draft tokens are made at the end of a step: then the loop continues and sleeps, as vLLM's loop does.
    pub(super) stuck: bool,
    /// The ids of requests that come while the engine runs.
    pub(super) ids: Ids,
    pub(super) out: Collector,
    pub(super) watch: W,
}

impl<'a, E: Executor, D: Drafter<E>, W: Watch> Engine<'a, E, D, W> {
    /// An engine before the first arrival. If `workload` is owned, its requests do not arrive by themselves: they must
    /// be [given](Engine::give). `rules` follow from `config` and `drafter`. `slo_tpot_s` is the run's TPOT limit that
    /// policies see, seconds; infinity for none. `keep_steps` says whether to keep a record of every step. `watch`
    /// observes the scheduler; `()` for none.
    #[allow(clippy::too_many_arguments, reason = "every part of an engine, once")]
    pub fn new(
        config: &'a EngineConfig,
        workload: Cow<'a, Workload>,
        arrivals: Arrivals,
        slo_tpot_s: f64,
        rules: Rules,
        executor: E,
        drafter: D,
        keep_steps: bool,
        watch: W,
    ) -> Self {
        let (requests, way) = (workload.len(), Time::from_s(config.frontend_s));
        let weights = Weights::of(config, rules.drafter);
        let known = match workload {
            Cow::Borrowed(workload) => Some(workload),
            Cow::Owned(_) => None,
        };
        Engine {
            config,
            arrivals: ArrivalStream::new(known, arrivals, way),
            pipeline: Pipeline::new(&rules, requests),
            scheduler: Scheduler::new(config, workload, rules, slo_tpot_s, !E::SKIPS),
            drafter,
            executor,
            spec: SpecDecode::default(),
            weights,
            stuck: false,
            ids: Ids::default(),
            out: Collector::new(requests, keep_steps),
            watch,
        }
    }

    /// Reports to executor and collector which requests the scheduler admitted, preempted and rejected. Drops the draft
    /// tokens that preempted and rejected requests hold. Reports the ended requests to the drafter, if no step is in
    /// flight.
    #[inline]
    pub(super) fn act_on_schedule(&mut self, now: Time) {
        let output = self.scheduler.output();
        if !output.admitted.is_empty() {
            self.start_admitted(now);
        }
        let output = self.scheduler.output();
        for r in &output.preempted {
            self.out.preempt(r, now, self.executor.spent(now));
            self.executor.preempted(r.id);
            if self.scheduler.rules().sglang.is_some() && self.pipeline.room > 0 {
                // The device's tokens that the scheduler has not read yet are dropped.
                self.pipeline.ahead.drop_unread(r.id, r.num_output_tokens);
            }
            self.pipeline.forget(r.id);
        }
        for r in &output.rejected {
            if let Some(ran) = &r.ran {
                self.out.left(ran);
            }
            self.out.reject((r.id, self.scheduler.workload().number(r.id)), now, r.reason);
            self.executor.end(r.id);
            self.pipeline.forget(r.id);
            self.pipeline.untold_ends.push(r.id);
            self.arrivals.ended(r.id, now);
        }
        if self.pipeline.queue.is_empty() {
            self.tell_ended(self.pipeline.untold_ends.len());
        }
    }

    /// Records the admissions of the step. If a request is scheduled for the first time, also starts it in the
    /// executor. If the draft model processes prompts, the drafter is asked first whether to draft for the request.
    fn start_admitted(&mut self, now: Time) {
        for index in 0..self.scheduler.output().admitted.len() {
            let admission = self.scheduler.output().admitted[index];
            if !self.out.admit(admission, now, self.executor.spent(now)) {
                continue;
            }
            if self.config.draft_prefill && !self.drafter.drafts_for_next(&self.scheduler.new_request(index)) {
                self.scheduler.never_draft_for(index);
            }
            self.executor.start_as(admission.id, self.truth_of(admission.id));
        }
    }

    fn truth_of(&self, id: RequestId) -> RequestTruth {
        // A request emits no token beyond the model's longest length. Beyond it, the acceptance source need not draw
        // which draft tokens are right.
        RequestTruth { output_len: self.scheduler.max_tokens(id), ..RequestTruth::of(self.scheduler.workload(), id) }
    }

    /// Reports the requests that finished in a step to the executor, the collector of results and the arrivals. Drops
    /// the draft tokens that these requests hold. [`tell_ended`](Engine::tell_ended) reports the requests to the
    /// drafter later, after the drafter has observed the step.
    #[inline]
    pub(super) fn act_on_output(&mut self, end: Time) {
        for r in &self.scheduler.result().finished {
            match self.scheduler.gets_nothing(r.id) {
                Some(reason) => self.out.end_with_nothing(r, self.scheduler.workload().number(r.id), end, reason),
                None if r.hands_over => self.out.hand_over(r, end),
                None => self.out.finish(r, end, self.executor.spent(end)),
            }
            self.executor.end(r.id);
            self.pipeline.ended(r.id);
            self.pipeline.untold_ends.push(r.id);
            self.arrivals.ended(r.id, end);
        }
    }

    /// Reports to the drafter the ends of the first `count` requests of the list of ended requests. The drafter must
    /// already have observed the outcomes of all steps in which these requests ran.
    #[inline]
    pub(super) fn tell_ended(&mut self, count: usize) {
        // In most steps no request has ended, so this case returns at once.
        if count == 0 {
            return;
        }
        self.ids.settle(&self.pipeline.untold_ends[..count]);
        for id in self.pipeline.untold_ends.drain(..count) {
            self.drafter.request_finished(id);
        }
    }
}
