//! Parses vLLM's step log (`--enable-logging-iteration-details`), which has one line per step, written by
//! `v1/metrics/loggers.py` of 0.32 and 0.33.
//!
//! A line counts two kinds of requests: requests without output yet (context requests: prompts and their chunks) and
//! requests with output (generation requests). It also counts the tokens that were scheduled for each kind, draft
//! tokens to verify included. The elapsed time goes from handing the step to the worker until its output and includes
//! drafting. With asynchronous scheduling, it is only the part of this time for which the engine had to wait. The line
//! starts with the time at which the server's front end wrote the line, after the step.

use crate::recordings::bounds::{LONGEST_S, MOST_COUNT, MOST_REQUESTS, MOST_TOKENS};
use foretoken_sim::MAX_SPEC_LEN;
use serde::{Deserialize, Serialize};

/// A step of a vLLM server as its log line describes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedStep {
    /// When the server wrote the line, seconds since 1970; `None` if the log's times have another format.
    pub written_unix_s: Option<f64>,
    /// The number that the engine gave the step.
    pub iteration: u64,
    /// Number of the step's requests without output yet (prompts and their chunks).
    pub context_requests: u32,
    /// Number of prompt tokens that the step computes.
    pub context_tokens: u64,
    /// Number of the step's requests that have output.
    pub generation_requests: u32,
    /// Number of tokens of the requests with output: one per request plus the draft tokens to verify.
    pub generation_tokens: u64,
    /// Time that the engine's worker took for the step, drafting included, in seconds.
    pub elapsed_s: f64,
    /// Share of the server's KV cache in use, from 0 to 1.
    pub kv_usage: f64,
}

impl LoggedStep {
    /// Parses a line of a vLLM server's log. `None` if the line is not about a step, or if the line says that the step
    /// is a dummy (vLLM writes `(dummy)`).
    pub fn read(line: &str) -> Result<Option<LoggedStep>, String> {
        LoggedStep::parse(line).map(|step| step.possible().map(|()| step)).transpose()
    }

    fn parse(line: &str) -> Option<LoggedStep> {
        let at = line.find("Iteration(")?;
        let (before, step) = line.split_at(at);
        if step.contains(" (dummy)") {
            return None;
        }
        let (iteration, rest) = step.strip_prefix("Iteration(")?.split_once("): ")?;
        let mut parts = rest.split(", ");
        // A number of more than 64 bits in the log line becomes the largest 64-bit number. The function `possible`
        // then refuses this number.
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty() {
            true => Some(digits.parse::<u64>().unwrap_or(u64::MAX)),
            false => None,
        };
        let mut counted = |unit: &str| number(parts.next()?.strip_suffix(unit)?.trim_end());
        let context_requests = counted("context requests")?;
        let context_tokens = counted("context tokens")?;
        let generation_requests = counted("generation requests")?;
        let generation_tokens = counted("generation tokens")?;
        let elapsed = parts.next()?.strip_prefix("iteration elapsed time: ")?.strip_suffix(" ms")?;
        let usage = parts.next()?.rsplit_once("KV cache usage: ")?.1.strip_suffix('%')?;
        let (elapsed, usage) = (elapsed.parse::<f64>().ok()?, usage.parse::<f64>().ok()?);
        Some(LoggedStep {
            written_unix_s: written(before),
            iteration: number(iteration)?,
            context_requests: u32::try_from(context_requests).unwrap_or(u32::MAX),
            context_tokens,
            generation_requests: u32::try_from(generation_requests).unwrap_or(u32::MAX),
            generation_tokens,
            elapsed_s: elapsed / 1e3,
            kv_usage: usage / 100.0,
        })
    }

    /// Checks that the numbers in a step's log line are plausible.
    fn possible(&self) -> Result<(), String> {
        let LoggedStep { iteration, context_requests, context_tokens, generation_requests, generation_tokens, .. } =
            *self;
        let of_requests = |requests: u32, most: u64| u64::from(requests.min(MOST_REQUESTS)) * most;
        let counts = [
            ("iterations", iteration, MOST_COUNT),
            ("context requests", context_requests.into(), MOST_REQUESTS.into()),
            ("context tokens", context_tokens, of_requests(context_requests, MOST_TOKENS.into())),
            ("generation requests", generation_requests.into(), MOST_REQUESTS.into()),
            ("generation tokens", generation_tokens, of_requests(generation_requests, u64::from(MAX_SPEC_LEN) + 1)),
        ];
        if let Some((what, n, most)) = counts.into_iter().find(|(_, n, most)| n > most) {
            return Err(format!("a step of {n} {what}, where {most} are the most"));
        }
        let numbers = [
            ("elapsed time", self.elapsed_s, LONGEST_S, "s"),
            ("KV cache usage", 100.0 * self.kv_usage, MOST_USAGE, "%"),
        ];
        match numbers.into_iter().find(|(_, x, most, _)| !(0.0..=*most).contains(x)) {
            Some((what, x, most, unit)) => {
                Err(format!("a step of {x:e} {unit} {what}, where 0 to {most} are possible"))
            }
            None => Ok(()),
        }
    }
}

/// Highest plausible usage of the KV cache in a log line, percent: a full cache plus rounding.
const MOST_USAGE: f64 = 101.0;

/// Seconds since 1970 at the start of a log line. `before` is the text in front of the message. The time must have the
/// format `%(created).6f` of the logging configuration that Foretoken ships.
fn written(before: &str) -> Option<f64> {
    let first = before.split_whitespace().find(|word| word.contains('.'))?;
    first.parse::<f64>().ok().filter(|s| s.is_finite() && *s > 1e9)
}

/// True if the line of the server's log is about a step. `foretoken observe` keeps only such lines.
pub fn is_step(line: &str) -> bool {
    line.contains("Iteration(") && line.contains("iteration elapsed time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_steps_are_read() {
        let line = "1763840000.123456 INFO vllm.v1.metrics.loggers Engine 000: Iteration(3): 0 context requests, 0 context tokens, \
                    1 generation requests, 4 generation tokens, iteration elapsed time: 19.35 ms, CPU KV cache usage: 0.4%";
        let step = LoggedStep::read(line).unwrap().unwrap();
        assert_eq!(step.written_unix_s, Some(1763840000.123456));
        assert_eq!((step.iteration, step.context_requests, step.context_tokens), (3, 0, 0));
        assert_eq!((step.generation_requests, step.generation_tokens), (1, 4));
        assert!((step.elapsed_s - 0.01935).abs() < 1e-12 && (step.kv_usage - 0.004).abs() < 1e-12);
        let usual =
            line.replace("1763840000.123456 INFO vllm", "(APIServer pid=7) INFO 11-21 20:16:22 [loggers.py:199]");
        assert_eq!(LoggedStep::read(&usual).unwrap().unwrap().written_unix_s, None);
        let images = format!("{line}, encoder inputs: 1, encoder output embeddings: 5");
        assert_eq!(LoggedStep::read(&images).unwrap().map(|s| s.iteration), Some(3));
    }

    #[test]
    fn other_lines_are_not() {
        let line = "1.5 Iteration(3): 0 context requests, 0 context tokens, 1 generation requests, 4 generation tokens, \
                    iteration elapsed time: 19.35 ms, CPU KV cache usage: 0.4%";
        assert!(is_step(line) && LoggedStep::read(line).unwrap().is_some());
        for (from, to) in [
            ("19.35 ms", "19.35 ms (dummy)"),
            ("1 generation requests", "x generation requests"),
            ("Iteration(3)", "Iteration"),
            ("0.4%", "0.4"),
            (", 4 generation tokens", ""),
        ] {
            assert_eq!(LoggedStep::read(&line.replace(from, to)), Ok(None), "{from} -> {to}");
        }
    }

    #[test]
    fn impossible_steps_are_refused_with_a_reason() {
        let line = "1.5 Iteration(3): 1 context requests, 9 context tokens, 2 generation requests, 8 generation tokens, \
                    iteration elapsed time: 19.35 ms, CPU KV cache usage: 0.4%";
        assert!(LoggedStep::read(line).unwrap().is_some());
        for (from, to, said) in [
            ("19.35", "NaN", "a step of NaN s elapsed time"),
            ("19.35", "-1", "a step of -1e-3 s elapsed time"),
            ("19.35", "1e300", "a step of 1e297 s elapsed time"),
            ("8 gen", "18446744073709551615 gen", "a step of 18446744073709551615 generation tokens, where 66 are"),
            ("8 gen", "67 gen", "a step of 67 generation tokens"),
            ("9 con", "99999999999999999999999 con", "a step of 18446744073709551615 context tokens"),
            ("2 gen", "4294967296 gen", "a step of 4294967295 generation requests"),
            ("1 con", "65537 con", "a step of 65537 context requests"),
            ("0.4%", "4e9%", "KV cache usage"),
            ("n(3", "n(18446744073709551615", "a step of 18446744073709551615 iterations"),
        ] {
            let why = LoggedStep::read(&line.replace(from, to)).unwrap_err();
            assert!(why.contains(said), "{from} -> {to}: {why}");
        }
    }
}
