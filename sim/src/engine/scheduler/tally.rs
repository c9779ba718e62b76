//! Appends the tokens that requests emit at the end of a step, and sums over the step's requests.

use crate::engine::request::RunningRequest;

/// Counts over the requests of a step: their output tokens, and how many of them ended.
#[derive(Default)]
pub(super) struct Tally {
    /// Number of output tokens.
    pub(super) emitted: u32,
    /// Number of running requests that ended.
    pub(super) ended: u32,
}

impl Tally {
    /// Appends `tokens` tokens to the output of a decode request, or fewer if it ends before. Then no tokens of the
    /// request are scheduled any more.
    #[inline(always)]
    pub(super) fn append(&mut self, r: &mut RunningRequest, tokens: u32) {
        let left = r.max_tokens - r.num_output_tokens;
        let ends = tokens >= left;
        let emitted = if ends { left } else { tokens };
        r.num_output_tokens += emitted;
        r.num_tokens += emitted;
        r.num_scheduled_tokens = 0;
        self.emitted += emitted;
        self.ended += u32::from(ends);
    }

    /// Appends the one token that each of `requests` emits without drafts, and calls `advance` on each.
    #[inline(always)]
    pub(super) fn append_one(&mut self, requests: &mut [RunningRequest], advance: impl Fn(&mut RunningRequest)) {
        for r in requests.iter_mut() {
            advance(r);
            r.num_output_tokens += 1;
            r.num_tokens += 1;
            r.num_scheduled_tokens = 0;
            // `>=` is one instruction less than `==`.
            self.ended += u32::from(r.num_output_tokens >= r.max_tokens);
        }
        self.emitted += requests.len() as u32;
    }

    /// Appends the one token that a request emits at the end of its prompt, or at the end of recomputation.
    pub(super) fn append_first(&mut self, r: &mut RunningRequest) {
        r.num_output_tokens += 1;
        r.num_tokens += 1;
        self.emitted += u32::from(!r.hands_over);
        self.ended += u32::from(r.num_output_tokens == r.max_tokens);
    }
}
