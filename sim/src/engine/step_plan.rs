//! A scheduled step as policies and executors see it.

use super::scheduler::Scheduler;
use crate::config::DraftGap;
use crate::executor::StepPlan;
use crate::policy::BatchView;

impl Scheduler<'_> {
    /// The step as policies and executors see it.
    #[inline]
    pub fn step_plan(&self) -> StepPlan<'_> {
        let out = self.output();
        StepPlan {
            batch: BatchView {
                now: out.now,
                step: out.step,
                ids: out.batch.ids(),
                context: out.batch.context(),
                emitted: out.batch.emitted(),
                limit: out.batch.limit(),
                draft_gap: out.batch.draft_gap(),
                slo_tpot_s: out.batch.slo_tpot_s(),
                categories: self.categories(),
                context_sum: out.batch.context_sum(),
                prefill: out.prefill,
                draft_prefill: out.draft_prefill,
                always_extend: self.rules().draft_gap == DraftGap::AlwaysExtend,
                num_running: self.running().len() as u32,
                num_waiting: self.num_waiting() as u32,
            },
            padded: false,
            one_length: self.rules().one_plan,
            chunks: &out.chunks,
            block_tables: self.kv_cache_manager().tables(),
        }
    }
}
