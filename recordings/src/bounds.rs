//! Bounds on the numbers that a server says. A number beyond its bound stays in the recording, is named among the
//! findings, and counts as not said.

use crate::recording::{Ended, Event, Recording};
use foretoken_sim::MAX_SPEC_LEN;

/// Most tokens of a prompt or a context.
pub const MOST_TOKENS: u32 = 1 << 24;
/// Most requests in a step.
pub const MOST_REQUESTS: u32 = 1 << 16;
/// Most blocks of a KV pool.
pub const MOST_BLOCKS: u32 = 1 << 24;
/// Most tokens of a KV block.
pub const MOST_BLOCK_SIZE: u32 = 1 << 16;
/// Most that a counter may grow by: the whole numbers that a double has.
pub const MOST_COUNT: u64 = 1 << 53;
/// Longest time in a server's metrics of a request, seconds.
pub const LONGEST_S: f64 = 30.0 * 86_400.0;

/// Tokens that an answer has by the server's count. It cannot have more than were asked for.
pub fn answer_tokens(n: u32, asked: u32) -> Option<u32> {
    (n <= asked).then_some(n)
}

/// Tokens that a prompt has by the server's count.
pub fn prompt_tokens(n: u32) -> Option<u32> {
    (1..=MOST_TOKENS).contains(&n).then_some(n)
}

/// The longest request that a server takes; `None` where it does not say, or answered a longer one.
pub fn max_model_len(recording: &Recording) -> Option<u32> {
    let said = recording.head.server.max_model_len.and_then(prompt_tokens)?;
    (said >= longest_answer(recording)).then_some(said)
}

/// Tokens of the longest request that was answered, prompt and answer together.
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

/// Whole numbers from 0 to `most`.
pub(crate) fn whole(x: f64, most: u32) -> Option<u32> {
    (x >= 0.0 && x <= f64::from(most) && x.fract() == 0.0).then_some(x as u32)
}

/// Drafts of a round.
pub(crate) fn drafts(x: f64) -> Option<u32> {
    whole(x, MAX_SPEC_LEN)
}
