//! Appends the tokens that requests emit at the end of a step, and sums over the step's requests.

use crate::engine::request::RunningRequest;

/// What the requests of a step emitted, summed.
#[derive(Default)]
pub(super) struct Tally {
    /// Number of output tokens.
    pub(super) emitted: u32,
    /// Number of running requests that ended.
    pub(super) ended: u32,
}

impl Tally {
    /// Appends `tokens` tokens to the output of a decode request, or fewer if it ends before.
    #[inline(always)]
    pub(super) fn append(&mut self, r: &mut RunningRequest, tokens: u32) {
        let emitted = tokens.min(r.max_tokens - r.num_output_tokens);
        r.num_output_tokens += emitted;
        r.num_tokens += emitted;
        r.num_scheduled_tokens = 0;
        self.emitted += emitted;
        self.ended += u32::from(r.num_output_tokens == r.max_tokens);
    }

    /// Appends the one token that a decode request emits without drafts.
    #[inline(always)]
    pub(super) fn append_one(&mut self, r: &mut RunningRequest) {
        r.num_output_tokens += 1;
        r.num_tokens += 1;
        r.num_scheduled_tokens = 0;
        self.emitted += 1;
        self.ended += u32::from(r.num_output_tokens == r.max_tokens);
    }

    /// Appends the one token that a request emits at the end of its prompt, or at the end of recomputation.
    pub(super) fn append_first(&mut self, r: &mut RunningRequest) {
        r.num_output_tokens += 1;
        r.num_tokens += 1;
        self.emitted += 1;
        self.ended += u32::from(r.num_output_tokens == r.max_tokens);
    }
}
