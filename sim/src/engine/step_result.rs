//! What became of a step's requests when its output was applied.

use super::request::RunningRequest;
use crate::workload::RequestId;

/// What became of a step's requests. A decode request that is not in `dropped` emitted its accepted drafts and one
/// token more; a prompt that ended emitted one token. Buffers are reused from step to step.
#[derive(Debug, Default)]
pub struct StepResult {
    /// Output tokens emitted. Tokens behind the end of a request do not count.
    pub emitted: u32,
    /// Requests that had ended before the step's output came. Their tokens are dropped.
    pub dropped: Vec<RequestId>,
    /// Requests that emitted their whole output in the step, in their last state.
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
