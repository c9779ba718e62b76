//! The steps of observed runs in the form to which costs are fitted: requests, tokens, context, time.

use crate::calibrate::source::Source;
use crate::calibrate::step_lengths::step_lengths;
use crate::recordings::request::Answer;
use foretoken_sim::config::DraftMethod;
use foretoken_sim::engine::passes_by_table;
use foretoken_sim::{EngineConfig, Time};

/// Which passes of a step a measured time covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The time covers the target's pass and the draft model's passes after it.
    Step,
    /// The time covers the target's pass alone.
    Target,
}

/// A timed step of a server, or a part of a step: its requests, tokens and time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRow {
    /// Index of the observed run, or of the vLLM or SGLang file, that the step comes from. The indices count the
    /// observed runs first, then the files.
    pub source: usize,
    /// Which passes of the step the time `elapsed_s` covers.
    pub part: Part,
    /// End of the step as a share of its run's duration, from 0 to 1; 0 if the step comes from a vLLM or SGLang file.
    pub when: f64,
    /// Number of draft passes after the target's pass. Each draft pass runs over one token per request. The first
    /// draft pass also runs over the tokens of the target's pass. If `in_one_pass`, the number of draft tokens.
    pub k: u32,
    /// Does one pass make all draft tokens of the step, as with block drafters (DFlash, DSpark) and lookups?
    pub in_one_pass: bool,
    pub decodes: u32,
    /// Tokens of the decoding requests in the target pass: one per request, and their verified draft tokens.
    pub verified: u64,
    /// Number of prompts or prompt chunks that run in the step.
    pub prompts: u32,
    /// Tokens of the step's prompts or prompt chunks, summed.
    pub prompt_tokens: u64,
    /// Tokens in KV before the step, summed over the step's decoding requests. If the step comes from a vLLM or SGLang
    /// file, the KV tokens of its prompts count too.
    pub context: u64,
    /// The time that `part` of the step took, seconds. In a step log this is the time of the engine's worker.
    pub elapsed_s: f64,
    /// The host's time for the step in seconds: the time from the previous step's log line to this step's log line,
    /// minus the worker's time. `None` if the difference is not above 0, if the server may have been idle before the
    /// step, or if the time is so long that the host was interrupted.
    pub host_s: Option<f64>,
}

/// A step's host time above this multiple of the median host time counts as an interruption.
const INTERRUPTED: f64 = 10.0;
/// Largest plausible number of tokens in a step. A log line with a larger number is damaged.
const MOST_TOKENS: u64 = 1 << 20;
/// Longest plausible time of a step, in seconds. A log line with a longer time is damaged.
const LONGEST_S: f64 = 3600.0;

/// The logged steps of all runs, except three kinds. The first step of a run is left out, because it warms up. Steps of
/// damaged log lines are left out. In a run with several draft lengths, a step is left out if the log does not show how
/// many tokens were drafted after it.
///
/// `engine` has the server's settings, which decide how many draft passes a step makes. With asynchronous scheduling,
/// the time of a step includes its host time.
pub fn rows(sources: &[Source], engine: &EngineConfig) -> Vec<StepRow> {
    let mut all = Vec::new();
    for (source, s) in sources.iter().enumerate() {
        let steps = &s.run.steps;
        let context = context(&s.run.answers);
        let last = steps.last().map_or(Time::ZERO, |s| s.end).as_s().max(f64::MIN_POSITIVE);
        let passes = draft_passes(s, engine);
        for (i, (before, step)) in steps.iter().zip(steps.iter().skip(1)).enumerate() {
            let Some(k) = passes[i + 1] else { continue };
            let logged = step.logged;
            // True if the step `step` has a decoding request. This request was already running in the step `before`,
            // so the server was not idle between these two steps.
            let busy =
                logged.generation_requests > 0 && before.logged.iteration.checked_add(1) == Some(logged.iteration);
            let period = step.end.saturating_sub(before.end).as_s();
            all.push(StepRow {
                source,
                part: Part::Step,
                when: step.end.as_s() / last,
                k,
                in_one_pass: in_one_pass(engine.method),
                decodes: logged.generation_requests,
                verified: logged.generation_tokens,
                prompts: logged.context_requests,
                prompt_tokens: logged.context_tokens,
                context: context_at(&context, step.start),
                elapsed_s: logged.elapsed_s,
                host_s: (busy && period > logged.elapsed_s).then_some(period - logged.elapsed_s),
            });
        }
    }
    all.retain(|r| {
        let tokens = r.verified.saturating_add(r.prompt_tokens);
        r.elapsed_s > 0.0 && r.elapsed_s < LONGEST_S && (1..=MOST_TOKENS).contains(&tokens)
    });
    forget_interruptions(&mut all);
    if engine.async_scheduling == Some(true) {
        add_overlap(&mut all);
    }
    all
}

/// Does one pass of this drafter make all draft tokens of a step?
fn in_one_pass(method: DraftMethod) -> bool {
    match method {
        DraftMethod::Dflash
        | DraftMethod::Dspark
        | DraftMethod::DsparkFillIn
        | DraftMethod::Ngram
        | DraftMethod::Suffix => true,
        DraftMethod::DraftModel | DraftMethod::Eagle | DraftMethod::Eagle3 | DraftMethod::Mtp => false,
    }
}

/// For asynchronous scheduling: adds the host's time to the time of each step of a busy server. The sum is the time
/// from log line to log line. A server with asynchronous scheduling logs only how long the host waited for a step's
/// output. The host works while the pass runs, so the pass takes longer than the logged time.
fn add_overlap(rows: &mut [StepRow]) {
    for row in rows {
        row.elapsed_s += row.host_s.unwrap_or(0.0);
    }
}

/// For each step of a run: the number of draft passes after this step; `None` if the log does not show it.
fn draft_passes(source: &Source, engine: &EngineConfig) -> Vec<Option<u32>> {
    let steps = &source.run.steps;
    if let Some(k) = source.k {
        return vec![Some(k); steps.len()];
    }
    let lengths = step_lengths(&source.run);
    let most = lengths.iter().flatten().max().copied().unwrap_or(0);
    // In the server's log, the draft tokens that are made after step `i` are verified in step `i + 1`.
    let behind = |i: usize| {
        let (step, next) = (&steps[i], steps.get(i + 1)?);
        let follows = step.logged.iteration.checked_add(1) == Some(next.logged.iteration);
        lengths[i + 1].filter(|_| follows).map(|k| passes_by_table(engine, most, k))
    };
    (0..steps.len()).map(behind).collect()
}

/// The number of tokens in KV over time, as (time from which the number holds, number of tokens), sorted by time. A
/// request counts from the first chunk of its answer to the last chunk.
fn context(answers: &[Answer]) -> Vec<(Time, i64)> {
    let mut changes: Vec<(Time, i64)> = Vec::new();
    for a in answers {
        let mut held = 0;
        let last = a.chunks.len().saturating_sub(1);
        for (i, &(at, n)) in a.chunks.iter().enumerate() {
            let first = if i == 0 { i64::from(a.prompt_len()) } else { 0 };
            let change = if i == last { -held } else { first + i64::from(n) };
            held += change;
            changes.push((at, change));
        }
    }
    changes.sort_unstable();
    let mut sum = 0;
    for change in &mut changes {
        sum += change.1;
        change.1 = sum;
    }
    changes
}

/// The number of tokens in KV at the time `at`. `context` is the list of (time, number of tokens) that the function
/// `context` returns.
fn context_at(context: &[(Time, i64)], at: Time) -> u64 {
    let after = context.partition_point(|c| c.0 <= at);
    after.checked_sub(1).map_or(0, |i| u64::try_from(context[i].1).unwrap_or(0))
}

/// Removes the host time `host_s` from each step whose host time exceeds [`INTERRUPTED`] times the median host time. In
/// such a step another process held the machine, or the server was idle. The steps themselves stay, even very long
/// ones, because interrupted steps are part of the server's mean speed.
fn forget_interruptions(rows: &mut [StepRow]) {
    let mut host: Vec<f64> = rows.iter().filter_map(|r| r.host_s).collect();
    host.sort_by(f64::total_cmp);
    let Some(&middle) = host.get(host.len() / 2) else { return };
    for row in rows {
        row.host_s = row.host_s.filter(|h| *h <= INTERRUPTED * middle);
    }
}

/// The host's time is taken to grow with the requests only if the slope is at least this many standard errors.
const SURE: f64 = 4.0;
/// The host's time is taken to grow with the requests only if, from the smallest to the largest batch, it grows by at
/// least this share of its mean.
const GROWS: f64 = 0.1;

/// The host's time between steps as (seconds for a step, seconds for each request in it), by least squares.
pub(crate) fn between_steps(rows: &[StepRow]) -> (f64, f64) {
    let all: Vec<(f64, f64)> =
        rows.iter().filter_map(|r| Some((f64::from(r.decodes + r.prompts), r.host_s?))).collect();
    let n = all.len().max(1) as f64;
    let (x, y) = (all.iter().map(|at| at.0).sum::<f64>() / n, all.iter().map(|at| at.1).sum::<f64>() / n);
    let xx: f64 = all.iter().map(|at| (at.0 - x).powi(2)).sum();
    let slope = all.iter().map(|at| (at.0 - x) * (at.1 - y)).sum::<f64>() / xx;
    let rest: f64 = all.iter().map(|at| (at.1 - y - slope * (at.0 - x)).powi(2)).sum();
    let error = (rest / (n - 2.0).max(1.0) / xx).sqrt();
    let sizes = all.iter().map(|at| at.0);
    let span = sizes.clone().fold(0.0, f64::max) - sizes.fold(f64::INFINITY, f64::min);
    let shows = xx > 0.0 && slope > SURE * error && slope * span > GROWS * y;
    match (shows, y - slope * x) {
        (true, step) if step > 0.0 => (step, slope),
        // All of the time is that of the requests.
        (true, _) => (0.0, y / x),
        (false, _) => (y, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recordings::recording::Asked;
    use crate::recordings::request::ServerTimes;

    #[test]
    fn context_counts_decoding_requests_only() {
        let answer = |request: u32, chunks: &[(u64, u32)]| Answer {
            request,
            asked: Asked { prompt_len: 10, ..Asked::default() },
            sent: Time::ZERO,
            retries: 0,
            chunks: chunks.iter().map(|&(at, n)| (Time(at), n)).collect(),
            ids: vec![],
            counted: true,
            ended: None,
            rounds: None,
            times: ServerTimes::default(),
        };
        let all = [
            answer(0, &[(5, 1), (8, 3), (12, 2)]),
            answer(1, &[(8, 1), (20, 4)]),
            answer(2, &[(9, 1)]),
            answer(3, &[]),
        ];
        let context = context(&all);
        let tokens_at = |t: u64| context_at(&context, Time(t));
        // Times in this test are in picoseconds. At time 5 request 0 has 10 prompt tokens and 1 output token in KV. At
        // time 8 request 0 has 3 tokens more, and request 1 has 11. Request 0 ends at 12, request 1 at 20. Request 2
        // got its whole answer in one chunk and request 3 got no answer, so these two requests count at no time.
        assert_eq!([4, 5, 7, 8, 11, 12, 19, 20, 99].map(tokens_at), [0, 11, 11, 25, 25, 11, 11, 0, 0]);
    }

    fn row(elapsed_s: f64, host_s: f64) -> StepRow {
        StepRow {
            source: 0,
            part: Part::Step,
            when: 0.5,
            k: 0,
            in_one_pass: false,
            decodes: 1,
            verified: 1,
            prompts: 0,
            prompt_tokens: 0,
            context: 9,
            elapsed_s,
            host_s: Some(host_s),
        }
    }

    /// The test's numbers are from vLLM 0.32 on an emulated device whose pass takes 17.61 ms
    /// (experiments/validation/clockwork). The log says 17.13 ms; with the host's 0.48 ms the step takes 17.61 ms
    /// again. A step without a host time stays as it was logged.
    #[test]
    fn an_asynchronous_step_lasts_from_log_line_to_log_line() {
        let alone = StepRow { host_s: None, ..row(17.13e-3, 0.0) };
        let mut rows = [row(17.13e-3, 0.48e-3), alone];
        add_overlap(&mut rows);
        assert!((rows[0].elapsed_s - 17.61e-3).abs() < 1e-12 && rows[0].host_s == Some(0.48e-3));
        assert_eq!(rows[1], alone, "the server may have waited for requests before it");
    }

    #[test]
    fn the_host_time_of_an_interrupted_step_is_dropped() {
        let mut rows = vec![row(0.01, 1e-3), row(0.9, 1e-3), row(0.01, 1.01e-2), row(0.01, 0.99e-2)];
        forget_interruptions(&mut rows);
        assert_eq!(rows.iter().map(|r| r.elapsed_s).collect::<Vec<_>>(), [0.01, 0.9, 0.01, 0.01]);
        assert_eq!(
            rows.iter().map(|r| r.host_s).collect::<Vec<_>>(),
            [Some(1e-3), Some(1e-3), Some(1.01e-2), Some(0.99e-2)]
        );
        rows.extend([row(0.01, 1e-3); 3]);
        forget_interruptions(&mut rows);
        assert_eq!((rows[2].host_s, rows[3].host_s), (None, Some(0.99e-2)), "ten times the median of 1 ms");
    }
}
