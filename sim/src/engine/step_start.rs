//! Steps whose draft tokens are made at the start, in the step that verifies them: schedule, draft, verify, update.
//! This is the order of the papers' engine, of SGLang, and of every live run.

use super::collector::Collector;
use super::drafter::Drafter;
use super::state::{Engine, Watch};
use crate::executor::Executor;

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// Runs one step. If the scheduler schedules no tokens, the step ends once its rejections and preemptions are
    /// reported.
    pub(super) fn step(&mut self) -> Result<(), E::Error> {
        let start = self.executor.now();
        self.scheduler.notice_kv(start);
        let most = self.most_drafts(start);
        self.scheduler.schedule(start, most);
        self.watch.scheduled(&self.scheduler, start, start);
        self.act_on_schedule(start);
        self.scheduler.prepare_inputs();
        self.drafter.cap_draft_limits(&mut self.executor, &mut self.scheduler);
        let mut plan = self.scheduler.step_plan();
        if self.scheduler.rules().sglang.is_none()
            && let Some(n) = self.drafter.max_batch(&plan.batch)
        {
            self.scheduler.keep_first(n);
            plan = self.scheduler.step_plan();
        }
        if self.scheduler.output().is_empty() {
            // Nothing was scheduled. Either the scheduler rejected or preempted requests, and the loop's next turn
            // continues. Or all requests wait for other engines, and the loop is stuck until one of these acts.
            self.stuck = self.scheduler.waits_for_others();
            return Ok(());
        }

        let (most, in_parallel) = (self.config.max_draft_len, self.scheduler.rules().parallel_drafting);
        self.drafter.draft_at_start(&mut self.executor, (&plan, &plan.batch), most, in_parallel, &mut self.spec)?;
        let drafted = self.executor.now();
        if self.scheduler.rules().tops_up_chunks {
            self.scheduler.top_up_chunks(&self.spec.drafts);
            plan = self.scheduler.step_plan();
        }
        self.executor.verify(&plan, &mut self.spec.drafts, &mut self.spec.accepted)?;
        let end = self.executor.now();

        let mut record = Collector::begin(&self.scheduler);
        (record.start, record.end, record.draft_passes) = (start, end, self.spec.passes);
        (record.draft_time, record.verify_time) = (drafted - start, end - drafted);
        self.scheduler.update_from_output(&self.spec);
        self.out.step(&mut record, &self.scheduler, &self.spec);
        self.watch.emitted(&self.scheduler, &self.spec, end);
        self.act_on_output(end);
        let ids = self.scheduler.output().batch.ids();
        self.drafter.observe(&self.spec.outcome(ids, record.draft_time, record.verify_time));
        self.tell_ended(self.pipeline.untold_ends.len());
        self.watch.updated(&self.scheduler, end, end);
        Ok(())
    }
}
