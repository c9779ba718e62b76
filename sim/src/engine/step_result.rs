//! What happened to a step's requests when the step's output was applied.

use super::request::RunningRequest;
use crate::workload::RequestId;

/// What happened to a step's requests. A decode request that is not in `dropped` emitted its accepted draft tokens and
/// one more token. A prompt that ended emitted one token. Buffers are reused from step to step.
#[derive(Debug, Default)]
pub struct StepResult {
    /// Number of output tokens that the step emitted. Tokens beyond the end of a request do not count.
    pub emitted: u32,
    /// Requests that had ended before the step's output came. The tokens that the step gave them are dropped.
    pub dropped: Vec<RequestId>,
    /// Requests that emitted their last token in the step, each with its last state.
    pub finished: Vec<RunningRequest>,
}

impl StepResult {
    /// Empties the result for the next step. Keeps the buffers.
    #[inline]
    pub fn clear(&mut self) {
        self.emitted = 0;
        self.dropped.clear();
        self.finished.clear();
    }
}
