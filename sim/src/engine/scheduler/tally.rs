//! Appends the tokens that requests emit at the end of a step, and counts them.

use crate::engine::request::RunningRequest;

/// Counts over the requests of a step: their output tokens, and the requests that ended.
#[derive(Default)]
pub(super) struct Tally {
    /// Number of output tokens that the requests of the step emitted.
    pub(super) emitted: u32,
    /// Number of running requests that emitted their last token in the step.
    pub(super) ended: u32,
}

impl Tally {
    /// Appends `tokens` tokens to the output of a decode request, but at most as many as the request may still emit. If
    /// the request then has its whole output, counts it as ended. Resets the request's number of scheduled tokens.
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

    /// For steps without draft tokens: appends one token to the output of each of `requests`, and calls `advance` on
    /// each.
    #[inline(always)]
    pub(super) fn append_one(&mut self, requests: &mut [RunningRequest], advance: impl Fn(&mut RunningRequest)) {
        for r in requests.iter_mut() {
            advance(r);
            r.num_output_tokens += 1;
            r.num_tokens += 1;
            r.num_scheduled_tokens = 0;
            // The number of output tokens never exceeds `max_tokens`, so `==` would give the same. `>=` takes one
            // instruction less.
            self.ended += u32::from(r.num_output_tokens >= r.max_tokens);
        }
        self.emitted += requests.len() as u32;
    }

    /// Appends the token that a request emits when its prompt, or its recomputation after a preemption, is complete.
    pub(super) fn append_first(&mut self, r: &mut RunningRequest) {
        r.num_output_tokens += 1;
        r.num_tokens += 1;
        self.emitted += u32::from(!r.hands_over);
        self.ended += u32::from(r.num_output_tokens == r.max_tokens);
    }
}
