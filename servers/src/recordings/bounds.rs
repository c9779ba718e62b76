//! The largest plausible values of numbers that a server reports. A number above its bound stays in the recording, but
//! is not used, and a finding reports it.

use crate::recordings::recording::{Ended, Event, Recording};
use foretoken_sim::MAX_SPEC_LEN;

/// Most tokens of a prompt or of a context that a server can plausibly report; a larger number counts as impossible.
pub const MOST_TOKENS: u32 = 1 << 24;
/// Most requests in one step that a server can plausibly report; a larger number counts as impossible.
pub const MOST_REQUESTS: u32 = 1 << 16;
/// Most blocks of a KV cache that a server can plausibly report; a larger number counts as impossible.
pub const MOST_BLOCKS: u32 = 1 << 24;
/// Most tokens of one KV block that a server can plausibly report; a larger number counts as impossible.
pub const MOST_BLOCK_SIZE: u32 = 1 << 16;
/// Largest plausible growth of one of the server's counters during a run; a larger growth counts as impossible. (A
/// double cannot hold every whole number above 2⁵³.)
pub const MOST_COUNT: u64 = 1 << 53;
/// Longest time in a server's metrics of a request, in seconds (30 days). A longer time counts as impossible.
pub const LONGEST_S: f64 = 30.0 * 86_400.0;

/// The server's count `n` of an answer's tokens; `None` if `n` exceeds `asked`, the number of requested tokens.
pub fn answer_tokens(n: u32, asked: u32) -> Option<u32> {
    (n <= asked).then_some(n)
}

/// The server's count `n` of a prompt's tokens; `None` if `n` is not from 1 to [`MOST_TOKENS`].
pub fn prompt_tokens(n: u32) -> Option<u32> {
    (1..=MOST_TOKENS).contains(&n).then_some(n)
}

/// The server's `max_model_len`, in tokens. `None` if the server does not state it, if the stated value is not from 1
/// to [`MOST_TOKENS`], or if the server answered a longer request.
pub fn max_model_len(recording: &Recording) -> Option<u32> {
    let said = recording.head.server.max_model_len.and_then(prompt_tokens)?;
    (said >= longest_answer(recording)).then_some(said)
}

/// Largest sum of prompt and answer tokens over the answered requests, by the server's counts. An impossible count is
/// taken as 0. The result is 0 if no request was answered.
pub(crate) fn longest_answer(recording: &Recording) -> u32 {
    let tokens = |event: &Event| match event {
        Event::Ended {
            request, how: Ended::Finished { prompt_tokens: prompt, completion_tokens: answer, .. }, ..
        } => {
            let asked = &recording.head.asked[*request as usize];
            let answer = answer.and_then(|n| answer_tokens(n, asked.output_len)).unwrap_or(0);
            Some(prompt.and_then(prompt_tokens).unwrap_or(0) + answer)
        }
        _ => None,
    };
    recording.events.iter().filter_map(tokens).max().unwrap_or(0)
}

/// The number `x`, which a server reported, as a whole number; `None` if it is not a whole number from 0 to `most`.
pub(crate) fn whole(x: f64, most: u32) -> Option<u32> {
    (x >= 0.0 && x <= f64::from(most) && x.fract() == 0.0).then_some(x as u32)
}

/// The number `x`, which a server reported, as the number of draft tokens of a request in a step; `None` if it is not a
/// whole number from 0 to the largest draft length that Foretoken allows.
pub(crate) fn drafts(x: f64) -> Option<u32> {
    whole(x, MAX_SPEC_LEN)
}
