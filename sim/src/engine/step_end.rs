//! Steps whose draft tokens are made at the end, for the next step to verify: schedule, verify, draft, update (vLLM's
//! `step` and `post_step`). With async scheduling the next step is scheduled and queued before the update
//! (`step_with_batch_queue`). The device works through its queue without the host; the host waits only for tokens.

use super::ahead::{Ahead, Verifies};
use super::collector::Collector;
use super::draft_loop::{clamp, draft_at_end, select};
use super::draft_passes::Ran;
use super::drafter::Drafter;
use super::held::HeldDrafts;
use super::pipeline::InFlight;
use super::scheduler::Order;
use super::state::{Engine, Watch};
use crate::config::{DeliverAt, DraftAt};
use crate::executor::{Executor, Moment, StepPlan};
use crate::latency::ContextReads;
use crate::policy::{ChunkTotals, DraftShape};
use crate::shape;
use crate::time::Time;

/// How long vLLM's loop sleeps (1 ms) if it ran no model and requests are left.
const IDLE: Time = Time(1_000_000_000);

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// Whether there is work: a request runs or waits, an end of a request is not reported yet, or a step is in flight.
    /// If false, the engine waits for the next request.
    pub(super) fn has_work(&self) -> bool {
        self.has_requests() || !self.pipeline.queue.is_empty()
    }

    /// When the next step begins, if no further request is given; `Time::MAX` if no step follows.
    pub fn next_step(&self) -> Time {
        match self.has_work() && !self.stuck {
            true => self.executor.now(),
            false => self.arrivals.given_at().max(self.executor.now()),
        }
    }

    /// vLLM's `has_requests`: there are unfinished requests, or finished requests that no scheduler call has reported
    /// yet.
    fn has_requests(&self) -> bool {
        let asks_again = self.pipeline.room > 0 && self.scheduler.rules().sglang.is_none();
        !self.scheduler.is_idle() || (self.pipeline.untold && asks_again)
    }

    /// One turn of the loop: schedules and queues a step. Then takes the output of the oldest step in flight if no
    /// other step may be queued or no request is left to schedule. If the new step runs nothing and requests are left,
    /// sleeps as vLLM's loop does.
    pub(super) fn step_with_queue(&mut self) -> Result<(), E::Error> {
        let runs = self.has_requests() && self.launch()?;
        let mut landed = false;
        if self.pipeline.queue.len() == self.pipeline.room || !(runs || self.has_requests()) {
            landed = self.pipeline.queue.front().is_some_and(|step| step.runs);
            self.land();
        }
        // SGLang's loop does not sleep: what ran has just been taken, or the next turn may run what this one may not.
        let goes_on = self.scheduler.rules().sglang.is_some() && (landed || self.scheduler.spins());
        if !runs && self.has_requests() && !goes_on {
            self.executor.wait_until(self.executor.now() + IDLE);
        }
        Ok(())
    }

    /// Schedules a step, and queues its target pass and, after that pass, its draft passes. Returns whether the step
    /// runs at least one token.
    fn launch(&mut self) -> Result<bool, E::Error> {
        let start = self.executor.now();
        self.pipeline.untold = false;
        self.scheduler.schedule(start, self.drafter.num_spec_tokens(self.config.max_draft_len));
        self.executor.charge_decision(Moment::Schedule);
        self.watch.scheduled(&self.scheduler, start, self.executor.now());
        self.act_on_schedule(start);
        self.scheduler.prepare_inputs();
        if self.scheduler.rules().sglang.is_none()
            && let Some(n) = self.drafter.max_batch(&self.scheduler.step_plan().batch)
        {
            self.scheduler.keep_first(n);
        }
        let mut step = self.pipeline.spare.pop().unwrap_or_default();
        step.runs = !self.scheduler.output().is_empty();
        (step.ready, step.asked) = (Time::ZERO, start);
        if step.runs {
            let at_start = self.scheduler.rules().draft_at == DraftAt::StepStart;
            match at_start {
                true => self.draft_and_verify(&mut step, start)?,
                false => self.verify(&mut step, start)?,
            }
            let rules = self.scheduler.rules();
            let (order, delivers) = (rules.order, rules.deliver_at);
            if rules.num_speculative_tokens > 0 && !at_start {
                self.draft_next(&mut step)?;
            }
            if delivers == DeliverAt::Drafted {
                step.ready = self.executor.queued_until();
            }
            if order == Order::Async {
                self.scheduler.advance();
            }
        }
        let runs = step.runs;
        self.scheduler.swap_output(&mut step.output);
        self.pipeline.queue.push_back(step);
        Ok(runs)
    }

    /// Takes the draft tokens that the step's requests hold, queues the target pass that verifies them, and begins the
    /// step's record.
    fn verify(&mut self, step: &mut InFlight, start: Time) -> Result<(), E::Error> {
        let ahead = &mut self.pipeline.ahead;
        let batch = self.scheduler.step_plan().batch;
        step.spec.reset(batch.len(), self.config.max_draft_len);
        step.spec.passes = 0;
        step.verifies = self.drafter.take_held(ahead, &batch, self.scheduler.workload(), &mut step.spec.drafts);
        if step.verifies.trimmed {
            self.scheduler.top_up_chunks(&step.spec.drafts);
        }
        step.record = Collector::begin(&self.scheduler);
        step.record.start = start;
        let begun = self.executor.queued_until();
        let plan = self.scheduler.step_plan();
        let batch = self.drafter.on_device(ahead, &plan.batch);
        let plan = StepPlan { batch, padded: step.verifies.padded, ..plan };
        self.executor.verify(&plan, &mut step.spec.drafts, &mut step.spec.accepted)?;
        step.ready = self.executor.queued_until();
        step.record.verify_time = step.ready - begun;
        let output = self.scheduler.output();
        self.drafter.sampled(ahead, output.batch.ids(), &step.spec.accepted, &output.chunks);
        Ok(())
    }

    /// For steps whose draft tokens are made at the start: queues the draft passes and the target pass that verifies
    /// their tokens, and begins the step's record.
    fn draft_and_verify(&mut self, step: &mut InFlight, start: Time) -> Result<(), E::Error> {
        let (most, in_parallel) = (self.config.max_draft_len, self.scheduler.rules().parallel_drafting);
        let ahead = &mut self.pipeline.ahead;
        let plan = self.scheduler.step_plan();
        ahead.device.fill(plan.batch.ids, &self.scheduler.workload().prompt_len, &ahead.sampled);
        let on_device = StepPlan { batch: self.drafter.on_device(ahead, &plan.batch), ..plan };
        step.record = Collector::begin(&self.scheduler);
        step.record.start = start;
        let begun = self.executor.queued_until();
        step.spec.reset(plan.batch.len(), most);
        let views = (&on_device, &plan.batch);
        self.drafter.draft_at_start(&mut self.executor, views, most, in_parallel, &mut step.spec)?;
        let drafted = self.executor.queued_until();
        self.executor.verify(&on_device, &mut step.spec.drafts, &mut step.spec.accepted)?;
        step.ready = self.executor.queued_until();
        step.verifies = Verifies { drafting: drafted - begun, trimmed: false, padded: false };
        (step.record.draft_time, step.record.verify_time) = (drafted - begun, step.ready - drafted);
        let output = self.scheduler.output();
        self.drafter.sampled(&mut self.pipeline.ahead, output.batch.ids(), &step.spec.accepted, &output.chunks);
        Ok(())
    }

    /// Queues the draft passes at the end of a step, and sets how many draft tokens each request holds for the next
    /// step.
    fn draft_next(&mut self, step: &mut InFlight) -> Result<(), E::Error> {
        let rules = self.scheduler.rules();
        let (passes, most, longest) = (rules.draft_passes, rules.num_speculative_tokens, rules.drafts_until);
        let (one_plan, one_length, loses_drafts) = (rules.one_plan, rules.one_length, rules.loses_drafts);
        let sampled_at = step.ready;
        let output = self.scheduler.output();
        let asked = if output.skip_drafts { 0 } else { output.num_spec_tokens_to_schedule };
        let ran = self.ran(step);
        let Ahead { next, fresh, held, device, sampled } = &mut self.pipeline.ahead;
        self.scheduler.gather_next(asked, next);
        fresh.begin(next, self.scheduler.workload().len(), self.config.max_draft_len);
        let fits = passes.ends_early.is_none_or(|more| self.scheduler.longest() + most + more <= longest);
        let plan = self.scheduler.step_plan();
        let batch = next.view(&plan.batch);
        device.fill(batch.ids, &self.scheduler.workload().prompt_len, sampled);
        let on_device = device.view(&batch);
        self.drafter.propose(&mut self.executor, &batch, &on_device, &mut fresh.plan, &mut fresh.drafts);
        let (_, depth) = clamp(batch.limit, &mut fresh.plan, &mut fresh.drafts);
        if one_plan && fresh.plan.shape == DraftShape::Chain {
            fresh.plan.draft_len.fill(depth);
        }
        let k = if batch.is_empty() { asked } else { depth };
        let mut slots = k;
        // If the drafter declined all requests of the step, no pass runs.
        if fits && (ran.requests > 0 || !self.scheduler.declines()) {
            self.executor.cap_draft_limits(batch.ids, on_device.emitted, &mut fresh.plan.draft_len);
            let plan = StepPlan { batch: on_device, chunks: &[], ..plan };
            let views = (&plan, &batch);
            let HeldDrafts { plan, drafts, .. } = &mut **fresh;
            let behind = (&passes, &ran, k);
            step.spec.passes = draft_at_end(&mut self.drafter, &mut self.executor, views, behind, plan, drafts)?;
        }
        fresh.drafts.verify_all();
        fresh.trimmed = fresh.drafts.draft_len.iter().any(|&d| d > 0)
            && select(&mut self.drafter, &mut self.executor, &batch, &mut fresh.drafts, None);
        if fresh.drafts.in_trees() {
            // With draft trees, a request is scheduled with one token for every node that is to be verified. All
            // requests get the number of tokens of the request with the most nodes.
            slots = (0..batch.len()).map(|i| fresh.drafts.tokens(i).1).max().unwrap_or(0);
        }
        fresh.time = self.executor.queued_until() - sampled_at;
        step.record.draft_time = fresh.time;
        match (one_length, fits) {
            (true, _) => self.scheduler.hold_drafts(next, None, slots),
            (false, true) => self.scheduler.hold_drafts(next, Some(&fresh.drafts), 0),
            // Near the drafter's `max_model_len` vLLM verifies padding tokens up to its longest draft length and
            // accepts none of them.
            (false, false) => self.scheduler.hold_drafts(next, None, most),
        }
        if !loses_drafts {
            fresh.keep(held);
        }
        std::mem::swap(fresh, held);
        Ok(())
    }

    /// The token counts of the step for the first draft pass at its end. Prompt tokens are left out if the draft model
    /// does not process prompts, and all tokens of requests that the drafter has declined.
    fn ran(&self, step: &InFlight) -> Ran {
        let plan = self.scheduler.step_plan();
        let mut batch = self.pipeline.ahead.device.view(&plan.batch);
        let chunks = if self.config.draft_prefill { plan.chunks } else { &[] };
        if !self.config.draft_prefill {
            batch.prefill = ChunkTotals::default();
        }
        for (has, lacks) in self.scheduler.draft_lacks() {
            batch.prefill.add(has, lacks);
            // `add` counts a further chunk. But the request already has a prefill chunk in the step, so the number of
            // chunks is lowered again.
            batch.prefill.chunks -= 1;
        }
        let spec = &step.spec;
        let lens: &[u32] = if self.scheduler.rules().draft_passes.unseen {
            &spec.accepted
        } else if step.verifies.trimmed {
            &spec.drafts.verify_len
        } else {
            batch.limit
        };
        let trees = spec.drafts.in_trees() && !self.scheduler.rules().draft_passes.unseen;
        let tokens = match trees {
            true => shape::verify_tree_pass(&batch, &spec.drafts.trees[..batch.len()], ContextReads::Once),
            false => shape::verify_pass(&batch, lens, ContextReads::Once),
        };
        let decodes: u64 = spec.accepted.iter().map(|&accepted| u64::from(1 + accepted)).sum();
        let prompts: u64 = chunks.iter().map(|chunk| u64::from(chunk.computed + chunk.tokens)).sum();
        let context = batch.context_sum + decodes + prompts;
        let mut ran = Ran { tokens, requests: (batch.len() + chunks.len()) as u64, context };
        for i in self.scheduler.declined_rows() {
            let drafts = if trees { 0 } else { lens[i] };
            ran.leave_out(batch.context[i], 1 + drafts, 1 + spec.accepted[i]);
        }
        for chunk in chunks.iter().filter(|chunk| self.scheduler.is_declined(chunk.request)) {
            ran.leave_out(chunk.computed, chunk.tokens, chunk.tokens);
        }
        ran
    }

    /// Waits for the output of the oldest step in flight, applies the output to the requests, and reports it to
    /// collector, drafter and watcher.
    fn land(&mut self) {
        let Some(mut step) = self.pipeline.queue.pop_front() else { return };
        self.executor.wait_until(step.ready);
        let start = self.executor.now();
        self.executor.charge_decision(Moment::Update);
        let end = self.executor.now();
        self.scheduler.swap_output(&mut step.output);
        let ended_before = self.pipeline.untold_ends.len();
        if step.runs {
            let InFlight { spec, record, verifies, .. } = &mut *step;
            // If the step was queued behind another step, its time counts from the moment at which the output of that
            // other step was taken. Otherwise the overlap of the two steps would count twice.
            record.start = record.start.max(self.pipeline.last_end);
            record.verify_time += end - start;
            (record.end, record.draft_passes) = (end, spec.passes);
            self.scheduler.update_from_output(spec);
            self.out.step(record, &self.scheduler, spec);
            self.watch.emitted(&self.scheduler, spec, end);
            self.act_on_output(end);
            let ids = self.scheduler.output().batch.ids();
            self.drafter.observe(&spec.outcome(ids, verifies.drafting, record.verify_time));
            self.pipeline.last_end = end;
        }
        self.scheduler.notice_kv(step.asked);
        // A step that is still queued may contain requests that ended in this step. Their ends are reported to the
        // drafter later.
        let none_queued = self.pipeline.queue.is_empty();
        self.tell_ended(if none_queued { self.pipeline.untold_ends.len() } else { ended_before });
        self.watch.updated(&self.scheduler, start, end);
        self.scheduler.swap_output(&mut step.output);
        self.pipeline.spare.push(step);
    }
}
