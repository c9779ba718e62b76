//! The scheduler decides how many tokens of each request run in a step, and applies a step's output to the requests.
//!
//! It knows nothing of clocks, executors, policies and metrics (`tests/tests/whole/rooms/walls.rs` checks its imports).
//! It writes its decisions into its [`SchedulerOutput`], and what happened to a step's requests into its
//! [`StepResult`](super::StepResult). The engine acts on both.

mod admission;
mod asked;
mod by_sglang;
mod derived;
mod hand_over;
mod handed;
mod in_flight;
mod lifecycle;
mod pace;
mod queue;
mod refusals;
mod rules;
mod running;
mod scratch;
mod sglang;
mod speculative_config;
mod state;
mod stretch;
mod tally;
mod top_up;
mod update;
mod v0;
mod waiting;

pub(in crate::engine) use derived::Derived;
pub use rules::{Order, Rules};
pub use sglang::{Sglang, SglangBatch};
pub use speculative_config::{Lengths, SpeculativeConfig};
pub use state::Scheduler;
pub use stretch::Stretch;

use super::request::RunningRequest;
use super::scheduler_output::SchedulerOutput;
use crate::config::DraftAt;
use crate::time::Time;

impl Scheduler<'_> {
    /// Decides which tokens run in a step that begins at `now`. Each request gets at most `num_spec_tokens` draft
    /// tokens. They are made in this step if draft tokens are made at the start of a step, and otherwise at the end of
    /// this step for the next step.
    pub fn schedule(&mut self, now: Time, num_spec_tokens: u32) -> &SchedulerOutput {
        debug_assert!(num_spec_tokens <= self.rules.num_speculative_tokens);
        self.scratch.begin(&self.rules, num_spec_tokens);
        self.output.clear();
        (self.output.now, self.output.step) = (now, self.current_step);
        self.output.num_spec_tokens_to_schedule = match self.rules.draft_at {
            DraftAt::StepStart => self.rules.num_speculative_tokens,
            DraftAt::StepEnd => num_spec_tokens,
        };
        match self.rules.release.prefills_apart {
            _ if self.sglang.is_some() => self.schedule_sglang(),
            true => self.schedule_v0(),
            false => self.schedule_v1(),
        }
        &self.output
    }

    /// vLLM V1 has no separate decode phase and prefill phase. Each request has a number of computed tokens, and the
    /// scheduler gives the request its remaining tokens and its draft tokens. The running requests come first, in the
    /// order of the running list, then the waiting requests. A step that preempted a request admits no request.
    fn schedule_v1(&mut self) {
        self.scratch.threshold = self.rules.threshold(self.running.len() + self.waiting.len());
        self.pace.begin(&self.rules, &self.running);
        let running = self.schedule_running();
        if self.output.preempted.is_empty() {
            self.schedule_waiting(running);
        }
        let scheduled = running + self.output.admitted.len();
        self.pace.end(&self.rules, scheduled > 0);
        if let Some(table) = &self.rules.per_batch_size
            && scheduled > 0
        {
            let most = self.output.num_spec_tokens_to_schedule;
            self.output.num_spec_tokens_to_schedule = table[scheduled.min(table.len() - 1)].min(most);
        }
        if self.rules.can_skip_drafts {
            self.output.skip_drafts =
                !self.scratch.drafts_needed && !self.running.iter().any(RunningRequest::can_use_drafts);
        }
        if self.rules.guarded && (self.handed.is_empty() || !self.resolves_held()) {
            self.reject_hopeless();
        }
    }
}
