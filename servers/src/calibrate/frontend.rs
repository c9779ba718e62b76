//! The delay of a request on its way from a client to the scheduler and back (HTTP, tokenizer, processes).
//!
//! The delay can be read from a request that comes to an idle server. The step with its prompt begins when the
//! scheduler gets the request, so the time to first token is the sum of this step, the host's part of the step, and the
//! delay. On a busy server a request also waits for the running step, and the delay cannot be separated from this wait.

use crate::calibrate::source::Source;
use crate::recordings::request::Answer;
use crate::recordings::steps::{PlacedStep, step_of};
use foretoken_profiler::median;

/// The delay between client and scheduler is estimated only if at least this number of requests came to an idle server.
const FEW: usize = 5;

/// A delay between client and scheduler below this, in seconds, counts as 0. The log resolves 0.01 ms, and in a
/// simulation any delay above 0 makes a client of a closed loop miss a step.
const RESOLUTION: f64 = 1e-4;

/// Seconds from client to scheduler and back (HTTP, tokenizer, processes): the median over requests that came to an
/// idle server, minus `host_s`, the host's time for a step. A result below `RESOLUTION` counts as 0. `None` if fewer
/// than `FEW` requests came to an idle server.
pub fn frontend_s(sources: &[Source], host_s: f64) -> Option<f64> {
    let delays: Vec<f64> =
        sources.iter().flat_map(|s| s.run.answers.iter().filter_map(|a| delay_s(a, &s.run.steps))).collect();
    let delay = (delays.len() >= FEW).then(|| median(delays) - host_s)?;
    Some(if delay < RESOLUTION { 0.0 } else { delay })
}

/// Time to first token minus the worker's time for the prompt's step, in seconds. This is the delay between client and
/// scheduler plus the host's time for the step. `None` unless the request came to an idle server and one step ran its
/// whole prompt and nothing else.
fn delay_s(answer: &Answer, steps: &[PlacedStep]) -> Option<f64> {
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
    use crate::calibrate::source::open_all;
    use crate::calibrate::synthetic::LAW;

    /// The synthetic server sends its answer when it writes the step's log line, one host time after the pass. It
    /// adds no delay between client and scheduler. So `frontend_s` returns the host's time if `host_s` is 0, and
    /// returns 0 if `host_s` is the true host time.
    #[test]
    fn the_delay_is_read_from_first_tokens_of_an_idle_server() {
        let dir = tempfile::tempdir().unwrap();
        let one = open_all(&[LAW.write(dir.path(), 0, 1, 1)]).unwrap();
        let delay = |host_s| frontend_s(&one, host_s).unwrap();
        assert!((delay(0.0) - LAW.host_s).abs() < 1e-5 && delay(LAW.host_s) == 0.0, "{}", delay(0.0));
        // With eight clients the server is never idle when a request comes.
        let busy = open_all(&[LAW.write(dir.path(), 3, 8, 1)]).unwrap();
        assert_eq!(frontend_s(&busy, 0.0), None);
    }
}
