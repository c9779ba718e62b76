//! vLLM v0's scheduler, on which the papers ran (policies.md 14): a step is a prefill step (waiting prompts, whole,
//! never speculating) or, when none can start, a decode step of all running requests.

use super::{Drafter, Engine};
use crate::executor::Executor;

impl<E: Executor, D: Drafter<E>> Engine<'_, E, D> {
    pub(super) fn schedule_v0(&mut self) {
        let running = self.running.len();
        self.admit_waiting(true);
        if self.running.len() == running {
            self.schedule_running();
        }
        // Only where admission had the empty pool to itself: what a decode step frees is for the next one.
        if running == 0 {
            self.reject_hopeless();
        }
    }
}
