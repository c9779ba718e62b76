//! vLLM's step log (`--enable-logging-iteration-details`): one line a step, from `v1/metrics/loggers.py` of 0.32 and 0.33.
//!
//! A line counts the requests without output yet (context requests: prompts and their chunks) and the others (generation requests),
//! with the tokens scheduled for each; drafts that are verified count. Elapsed is the time from handing the step to the worker until
//! its output, drafting included; with asynchronous scheduling it is only what was left to wait for. The time before a line is when
//! the line was written: behind the step, by the server's front end.

use serde::{Deserialize, Serialize};

/// A step, as its line has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedStep {
    /// When the line was written, seconds since 1970; `None` where the log's times are not of that form.
    pub written_unix_s: Option<f64>,
    /// Its number, as the engine counts.
    pub iteration: u64,
    /// Requests without output yet.
    pub context_requests: u32,
    /// Prompt tokens in it.
    pub context_tokens: u64,
    /// Requests with output.
    pub generation_requests: u32,
    /// Their tokens: one each, and the drafts that are verified.
    pub generation_tokens: u64,
    /// How long it took, seconds.
    pub elapsed_s: f64,
    /// Share of the KV cache in use.
    pub kv_usage: f64,
}

impl LoggedStep {
    /// Reads a line of a log. `None`: it is of something else, or of a step that ran for nothing (a dummy).
    pub fn read(line: &str) -> Option<LoggedStep> {
        let at = line.find("Iteration(")?;
        let (before, step) = line.split_at(at);
        if step.contains(" (dummy)") {
            return None;
        }
        let (iteration, rest) = step.strip_prefix("Iteration(")?.split_once("): ")?;
        let mut parts = rest.split(", ");
        let mut counted = |unit: &str| parts.next()?.strip_suffix(unit)?.trim_end().parse::<u64>().ok();
        let context_requests = counted("context requests")?;
        let context_tokens = counted("context tokens")?;
        let generation_requests = counted("generation requests")?;
        let generation_tokens = counted("generation tokens")?;
        let elapsed = parts.next()?.strip_prefix("iteration elapsed time: ")?.strip_suffix(" ms")?;
        let usage = parts.next()?.rsplit_once("KV cache usage: ")?.1.strip_suffix('%')?;
        let (elapsed, usage) = (elapsed.parse::<f64>().ok()?, usage.parse::<f64>().ok()?);
        let sane = |x: f64| (x.is_finite() && x >= 0.0).then_some(x);
        Some(LoggedStep {
            written_unix_s: written(before),
            iteration: iteration.parse().ok()?,
            context_requests: u32::try_from(context_requests).ok()?,
            context_tokens,
            generation_requests: u32::try_from(generation_requests).ok()?,
            generation_tokens,
            elapsed_s: sane(elapsed)? / 1e3,
            kv_usage: sane(usage)? / 100.0,
        })
    }
}

/// Seconds since 1970 at the start of a line, as the shipped logging configuration writes them (`%(created).6f`).
fn written(before: &str) -> Option<f64> {
    let first = before.split_whitespace().find(|word| word.contains('.'))?;
    first.parse::<f64>().ok().filter(|s| s.is_finite() && *s > 1e9)
}

/// Is it a line of a step? What `observe` keeps of a log.
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
        let step = LoggedStep::read(line).unwrap();
        assert_eq!(step.written_unix_s, Some(1763840000.123456));
        assert_eq!((step.iteration, step.context_requests, step.context_tokens), (3, 0, 0));
        assert_eq!((step.generation_requests, step.generation_tokens), (1, 4));
        assert!((step.elapsed_s - 0.01935).abs() < 1e-12 && (step.kv_usage - 0.004).abs() < 1e-12);
        let usual =
            line.replace("1763840000.123456 INFO vllm", "(APIServer pid=7) INFO 11-21 20:16:22 [loggers.py:199]");
        assert_eq!(LoggedStep::read(&usual).unwrap().written_unix_s, None);
        let images = format!("{line}, encoder inputs: 1, encoder output embeddings: 5");
        assert_eq!(LoggedStep::read(&images).map(|s| s.iteration), Some(3));
    }

    #[test]
    fn other_lines_are_not() {
        let line = "1.5 Iteration(3): 0 context requests, 0 context tokens, 1 generation requests, 4 generation tokens, \
                    iteration elapsed time: 19.35 ms, CPU KV cache usage: 0.4%";
        assert!(is_step(line) && LoggedStep::read(line).is_some());
        for (from, to) in [
            ("19.35 ms", "19.35 ms (dummy)"),
            ("19.35", "NaN"),
            ("19.35", "-1"),
            ("1 generation requests", "x generation requests"),
            ("Iteration(3)", "Iteration"),
            ("0.4%", "0.4"),
            (", 4 generation tokens", ""),
        ] {
            assert_eq!(LoggedStep::read(&line.replace(from, to)), None, "{from} -> {to}");
        }
    }
}
