//! The time between a client and the scheduler, there and back.
//!
//! It is visible for a request that comes to an idle server. The step with its prompt begins when the scheduler gets
//! the request, so the time to first token is this step, the host's part of it, and the way between client and
//! scheduler. On a busy server the wait for the running step hides it.

use crate::source::Source;
use foretoken_profiler::median;
use foretoken_recordings::request::Answer;
use foretoken_recordings::steps::{PlacedStep, step_of};

/// Fewest requests to an idle server from which the time is estimated.
const FEW: usize = 5;

/// Delays below this count as 0, in seconds. The log resolves 0.01 ms, and any delay above 0 makes a closed-loop client
/// miss a step.
const RESOLUTION: f64 = 1e-4;

/// Seconds between client and scheduler (HTTP, tokenizer, processes): the median over requests that came to an idle
/// server, minus the host's part of a step. `None` if fewer than `FEW` requests did.
pub fn frontend_s(sources: &[Source], host_s: f64) -> Option<f64> {
    let ways: Vec<f64> =
        sources.iter().flat_map(|s| s.run.answers.iter().filter_map(|a| way(a, &s.run.steps))).collect();
    let way = (ways.len() >= FEW).then(|| median(ways) - host_s)?;
    Some(if way < RESOLUTION { 0.0 } else { way })
}

/// The delay of a request that had the server to itself while its prompt ran in one piece.
fn way(answer: &Answer, steps: &[PlacedStep]) -> Option<f64> {
    let first = answer.chunks.first()?.0;
    let at = step_of(steps, first)?;
    let logged = &steps[at].logged;
    let alone = logged.context_requests == 1
        && logged.generation_requests == 0
        && logged.context_tokens == u64::from(answer.prompt_len());
    let idle = at == 0 || steps[at - 1].end <= answer.sent;
    let ttft = first.saturating_sub(answer.sent).as_s();
    (alone && idle && ttft > logged.elapsed_s).then_some(ttft - logged.elapsed_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::open_all;
    use crate::synthetic::LAW;

    /// The law answers when its step's line is written, a host's time behind the pass, and has no way besides.
    #[test]
    fn the_delay_is_read_from_first_tokens_of_an_idle_server() {
        let dir = tempfile::tempdir().unwrap();
        let one = open_all(&[LAW.write(dir.path(), 0, 1, 1)]).unwrap();
        let way = |host_s| frontend_s(&one, host_s).unwrap();
        assert!((way(0.0) - LAW.host_s).abs() < 1e-5 && way(LAW.host_s) == 0.0, "{}", way(0.0));
        // Of eight clients one sends when the other seven have just been answered: the server never idles.
        let busy = open_all(&[LAW.write(dir.path(), 3, 8, 1)]).unwrap();
        assert_eq!(frontend_s(&busy, 0.0), None);
    }
}
