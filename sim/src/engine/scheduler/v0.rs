//! vLLM v0's scheduler, on which the papers ran (policies.md 14): a step is a prefill step (waiting prompts, whole,
//! never speculating) or, when none can start, a decode step of all running requests.

use super::Scheduler;

impl Scheduler<'_> {
    pub(super) fn schedule_v0(&mut self) {
        let running = self.running.len();
        self.schedule_waiting(true);
        if self.running.len() == running {
            // All of them take part, so the budget caps their drafts.
            let each = self.token_budget / (running as u32).max(1);
            self.schedule_running(self.num_spec_tokens.min(each.saturating_sub(1)));
        }
        // Only where admission had the empty pool to itself: what a decode step frees is for the next one.
        if running == 0 {
            self.reject_hopeless();
        }
    }
}
