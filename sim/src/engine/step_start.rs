//! Drafts at the start of the step that verifies them: schedule, draft, verify, update. Used by the papers' engine,
//! SGLang, and every live run.

use super::draft_loop::draft_at_start;
use super::drafter::Drafter;
use super::state::{Engine, Watch};
use crate::executor::Executor;

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// Runs one step.
    pub(super) fn step(&mut self) -> Result<(), E::Error> {
        let start = self.executor.now();
        self.scheduler.schedule(start, self.drafter.num_spec_tokens(self.config.max_draft_len));
        self.act_on_schedule(start);
        self.scheduler.prepare_inputs();
        if D::ACTIVE {
            let (ids, emitted, limit) = self.scheduler.draft_limits();
            self.executor.cap_draft_limits(ids, emitted, limit);
        }
        if let Some(n) = self.drafter.max_batch(&self.scheduler.step_plan().batch) {
            self.scheduler.keep_first(n);
        }
        if self.scheduler.output().is_empty() {
            // Scheduling only rejected or preempted requests; the next iteration continues.
            return Ok(());
        }

        let plan = self.scheduler.step_plan();
        draft_at_start(&mut self.drafter, &mut self.executor, &plan, self.config.max_draft_len, &mut self.spec)?;
        let drafted = self.executor.now();
        self.scheduler.top_up_chunks(&self.spec.drafts);
        let plan = self.scheduler.step_plan();
        self.executor.verify(&plan, &mut self.spec.drafts, &mut self.spec.accepted)?;
        let end = self.executor.now();

        let mut record = self.scheduler.begin_record();
        self.scheduler.update_from_output(&self.spec, end, &mut self.out.totals, &mut record);
        (record.start, record.end, record.draft_passes) = (start, end, self.spec.passes);
        (record.draft_time, record.verify_time) = (drafted - start, end - drafted);
        self.act_on_output(end);
        self.out.step(&record, &self.spec);
        let batch = self.scheduler.step_plan().batch;
        self.drafter.observe(&self.spec.outcome(&batch, record.draft_time, record.verify_time));
        Ok(())
    }
}
