//! Converts a recording to the form of simulated and live runs, as far as the server's reports allow. Tables, figures
//! and pages are made from this form.
//!
//! The arrival of a request is the time at which the request was sent. Its tokens have the times at which the client
//! read them. The time of first scheduling and the accepted draft tokens come from the server's per-request metrics,
//! and the content of steps comes from its step log, if the server has them.

use crate::recordings::metrics::Metrics;
use crate::recordings::recording::{Ended, Recording};
use crate::recordings::request::{Answer, answers};
use crate::recordings::steps::{PlacedStep, steps};
use foretoken_sim::metrics::Series;
use foretoken_sim::{Ending, MAX_SPEC_LEN, Outcome, Request, RequestRecords, Run, StepRecord, Time, Totals, Workload};

/// An observed run of a server, in the form of simulated and live runs.
#[derive(Debug)]
pub struct ObservedRun {
    /// The requests that were sent: arrivals, categories and lengths. If the answer of a request finished, the output
    /// length is the answer's actual length; otherwise it is the requested length.
    pub workload: Workload,
    /// The requests of `workload` with their answers, in the same order.
    pub answers: Vec<Answer>,
    /// The steps of the server's log, with times on the run's clock (zero is the run's start).
    pub steps: Vec<PlacedStep>,
    pub metrics: Metrics,
    /// The run's records, steps and totals, in the form of a simulated run.
    pub run: Run,
}

/// Number of tokens of a KV block that is assumed if the server does not state it.
const BLOCK: u32 = 16;

impl ObservedRun {
    /// Builds the observed run from a recording. Requests are in the order in which they were sent.
    pub fn of(recording: &Recording) -> ObservedRun {
        let mut answers = answers(recording);
        answers.sort_by_key(|a| (a.sent, a.request));
        let steps = steps(recording, &answers);
        let metrics = Metrics::of(recording);
        let records = records(&answers);
        let (blocks, block_size) = (metrics.num_gpu_blocks.unwrap_or(1), metrics.block_size.unwrap_or(BLOCK));
        let mut totals = Totals::default();
        let mut series = Series::default();
        let mut kept = Vec::new();
        if steps.is_empty() {
            without_a_log(&answers, &mut totals, &mut series);
        }
        for (index, step) in steps.iter().enumerate() {
            let record = step_record(index as u64, step, blocks, block_size);
            totals.step(&record);
            series.step(&record);
            kept.push(record);
        }
        rounds(&answers, &metrics, &mut totals);
        totals.preemptions = metrics.preemptions.unwrap_or(0);
        let gap = |pair: &[(Time, u32)]| pair[1].0.saturating_sub(pair[0].0);
        for gap in answers.iter().flat_map(|a| a.chunks.windows(2).map(gap)) {
            totals.gaps.record(gap, 1);
        }
        let ending = if recording.ending == Some(crate::recordings::recording::Ending::Done) {
            Ending::Done
        } else {
            Ending::Interrupted
        };
        let run = Run {
            records,
            totals,
            series,
            steps: kept,
            rejected: Vec::new(),
            warnings: Vec::new(),
            ending,
            usable_blocks: blocks,
            replicas: None,
        };
        ObservedRun { workload: workload(recording, &answers), answers, steps, metrics, run }
    }

    /// The share (0 to 1) of prompt tokens that the server found in its prefix cache, and where it says so. vLLM's
    /// usage leaves the number out where it is 0, so an answer without it counts as 0 if another answer has it. `None`
    /// if neither the answers nor the counters have it.
    pub fn cached_prompt_share(&self) -> Option<(f64, &'static str)> {
        let cached = |a: &Answer| match a.ended {
            Some((_, Ended::Finished { cached_tokens, .. })) => cached_tokens,
            _ => None,
        };
        let prompts: u64 = self.answers.iter().filter(|a| a.finished()).map(|a| u64::from(a.prompt_len())).sum();
        if prompts > 0 && self.answers.iter().any(|a| cached(a).is_some()) {
            let hits: u64 = self.answers.iter().filter_map(cached).map(u64::from).sum();
            return Some(((hits as f64 / prompts as f64).min(1.0), "usage.prompt_tokens_details.cached_tokens"));
        }
        let (hits, queries) = (self.metrics.prefix_hits?, self.metrics.prefix_queries?);
        (queries > 0).then(|| ((hits as f64 / queries as f64).min(1.0), "/metrics"))
    }
}

/// The requests that were sent, as a workload. If the answer of a request finished, the request has the answer's
/// actual length; otherwise it has the requested length.
fn workload(recording: &Recording, answers: &[Answer]) -> Workload {
    let request = |a: &Answer| Request {
        category: a.asked.category,
        ..Request::new(a.sent, a.prompt_len().max(1), if a.finished() { a.tokens() } else { a.asked.output_len }.max(1))
    };
    let mut workload: Workload = answers.iter().map(request).collect();
    workload.categories.clone_from(&recording.head.categories);
    workload
}

fn records(answers: &[Answer]) -> RequestRecords {
    let mut r = RequestRecords::new(answers.len());
    for (i, a) in answers.iter().enumerate() {
        r.arrival[i] = a.sent;
        r.emitted[i] = a.tokens();
        if let Some(&(first, _)) = a.chunks.first() {
            r.first_token[i] = first;
            // Time that the request waited in the server's queue, if the server reports this time. Otherwise the wait
            // counts as part of the request's first pass.
            let queued = a.times.queue_s.map_or(Time::ZERO, Time::from_s);
            r.first_scheduled[i] = (a.sent + queued).min(first);
        }
        match &a.ended {
            Some((_, Ended::Finished { cached_tokens, .. })) if !a.chunks.is_empty() => {
                r.outcome[i] = Outcome::Finished;
                r.finish[i] = a.chunks.last().expect("not empty").0;
                r.cached_tokens[i] = cached_tokens.unwrap_or(0);
            }
            Some((at, Ended::Refused { .. })) => {
                r.outcome[i] = Outcome::Rejected;
                r.finish[i] = *at;
            }
            _ => {}
        }
        if let Some(rounds) = &a.rounds {
            r.rounds[i] = rounds.drafted.iter().filter(|&&d| d > 0).count() as u32;
            r.drafted[i] = rounds.drafted.iter().sum();
            r.verified[i] = r.drafted[i];
            r.accepted[i] = rounds.accepted.iter().sum();
        }
    }
    r
}

/// The record of a step, made from its line in the server's log. The log does not say how many draft tokens were
/// accepted, so their number is estimated.
fn step_record(index: u64, step: &PlacedStep, blocks: u32, block_size: u32) -> StepRecord {
    let s = &step.logged;
    let drafts = s.generation_tokens.saturating_sub(u64::from(s.generation_requests)) as u32;
    let used = (s.kv_usage * f64::from(blocks)).round() as u32;
    StepRecord {
        step: index,
        start: step.start,
        end: step.end,
        verify_time: step.end - step.start,
        batch_size: s.generation_requests,
        chunks: s.context_requests,
        chunk_tokens: s.context_tokens,
        context: u64::from(used) * u64::from(block_size),
        drafted: drafts,
        verified: drafts,
        emitted: step.emitted,
        accepted: step.accepted(),
        used_blocks: used,
        ..StepRecord::default()
    }
}

/// Estimates the load over time and the totals of a run whose server wrote no step log. The first chunk of an answer
/// counts as the request's prefill. Each later chunk counts as one step of the request; the step began when the
/// previous chunk was read.
fn without_a_log(answers: &[Answer], totals: &mut Totals, series: &mut Series) {
    let mut spans: Vec<(Time, Time, u32)> = Vec::new();
    for a in answers {
        spans.extend(a.chunks.windows(2).map(|pair| (pair[0].0, pair[1].0, pair[1].1)));
        if let Some(&(first, n)) = a.chunks.first() {
            totals.emitted += u64::from(n);
            totals.prefill_tokens += u64::from(a.prompt_len());
            spans.push((first, first, 0));
        }
    }
    spans.sort_unstable_by_key(|s| s.1);
    for (start, end, tokens) in spans {
        let span = end.saturating_sub(start);
        totals.request_steps += u64::from(tokens > 0);
        totals.emitted += u64::from(tokens);
        // The integral of the batch size over time is the sum of all requests' decode times.
        totals.batch_time += u128::from(span.0);
        series.step(&StepRecord {
            start,
            end,
            batch_size: u32::from(tokens > 0),
            emitted: tokens,
            accepted: tokens.saturating_sub(1),
            ..StepRecord::default()
        });
    }
    totals.busy = busy(answers);
}

/// Total time during which at least one request was in flight. A request is in flight from its sending to the last
/// chunk of its answer.
fn busy(answers: &[Answer]) -> Time {
    let ends = |a: &Answer| Some((a.sent, a.chunks.last()?.0));
    let mut spans: Vec<(Time, Time)> = answers.iter().filter_map(ends).collect();
    spans.sort_unstable();
    let (mut sum, mut until) = (Time::ZERO, Time::ZERO);
    for (start, end) in spans {
        sum += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    sum
}

/// Counts the rounds in `totals` by their numbers of drafted and accepted tokens. If the server reports rounds with its
/// answers, the rounds come from the answers; otherwise they come from the server's counters by position. If tokens
/// were drafted in the rounds, the totals of drafted and of verified tokens become the sum of these tokens. If no
/// answer has rounds, each step of a request for which no round was counted counts as a round without draft tokens.
fn rounds(answers: &[Answer], metrics: &Metrics, totals: &mut Totals) {
    let most = MAX_SPEC_LEN as usize;
    let with_rounds: Vec<_> = answers.iter().filter_map(|a| a.rounds.as_ref()).collect();
    let table = &mut totals.verified_accepted;
    for (&d, &a) in with_rounds.iter().flat_map(|r| r.drafted.iter().zip(&r.accepted)) {
        table[(d as usize).min(most)][(a as usize).min(most)] += 1;
    }
    if with_rounds.is_empty()
        && let Some(rounds) = metrics.rounds_of_one_length()
    {
        for (accepted, count) in rounds.iter().enumerate() {
            table[(rounds.len() - 1).min(most)][accepted.min(most)] += count;
        }
    }
    let sum = |f: fn(usize, usize) -> usize| {
        table.iter().enumerate().flat_map(|(d, row)| row.iter().enumerate().map(move |(a, n)| f(d, a) as u64 * n)).sum()
    };
    let drafted: u64 = sum(|d, _| d);
    // If the server reports no rounds, the totals keep the number of verified tokens that comes from the step log.
    if drafted > 0 {
        (totals.drafted, totals.verified) = (drafted, drafted);
    }
    if with_rounds.is_empty() {
        totals.verified_accepted[0][0] += totals.request_steps.saturating_sub(totals.rounds());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recordings::findings::findings;
    use crate::recordings::recording::read_recording;
    use std::path::Path;

    /// Reads the recording `name` of a run of vLLM 0.32.0 for CPUs. The server ran the target model and draft model
    /// that Foretoken ships. The run has 12 requests of three clients.
    fn recorded(name: &str) -> (Recording, ObservedRun) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
        let recording = read_recording(&path).unwrap();
        let run = ObservedRun::of(&recording);
        (recording, run)
    }

    /// The recordings were made with llama.cpp b11434 and two slots (`tests/llama/README.md`): 8 requests of two
    /// clients, of the shipped pair without drafts, with three, and with three that are accepted at random.
    #[test]
    fn llama_cpp_is_read_without_drafts_and_with_three() {
        for (name, k) in [("k0", 0), ("k3", 3), ("synthetic", 3)] {
            let (recording, run) = recorded(&format!("llama-cpp-b11434-{name}.obs"));
            assert_eq!((run.answers.len(), recording.head.server.max_model_len), (8, Some(512)), "{name}");
            assert!(run.answers.iter().all(|a| a.finished() && a.counted && a.tokens() == 24), "{name}");
            let prompts: u64 = run.answers.iter().map(|a| u64::from(a.prompt_len())).sum();
            assert_eq!((run.metrics.prefix_queries, run.metrics.prefix_hits), (Some(prompts), Some(0)), "{name}");
            let findings = findings(&recording, &run);
            assert!(findings.iter().all(|f| f.contains("token ids") || f.contains("the drafter took")), "{findings:?}");
            assert_eq!(findings.iter().filter(|f| f.contains("the drafter took")).count(), usize::from(k > 0));
            if k == 0 {
                assert!(run.answers.iter().all(|a| a.rounds.is_none()));
                assert_eq!((run.metrics.drafts, run.run.totals.drafted), (Some(0), 0));
                continue;
            }
            // Every step of an answer is known, with those that drafted less at its end or nothing. All of them are in
            // the counters.
            assert!(run.answers.iter().all(Answer::rounds_are_whole));
            assert!(run.answers.iter().flat_map(Answer::usual_lengths).all(|drafted| drafted == k));
            let rounds = || run.answers.iter().filter_map(|a| a.rounds.as_ref());
            let sum = |f: fn(&crate::recordings::request::Rounds) -> &Vec<u32>| {
                rounds().flat_map(f).map(|&n| u64::from(n)).sum()
            };
            assert_eq!(run.metrics.draft_tokens, Some(sum(|r| &r.drafted)));
            assert_eq!(run.metrics.accepted_tokens, Some(sum(|r| &r.accepted)));
            let of_drafts = rounds().flat_map(|r| &r.drafted).filter(|&&d| d > 0).count();
            assert_eq!(run.metrics.drafts, Some(of_drafts as u64));
            let deeper = |n| rounds().flat_map(|r| &r.accepted).filter(|&&a| a > n).count() as u64;
            assert_eq!(run.metrics.accepted_per_pos, [deeper(0), deeper(1), deeper(2)]);
            assert_eq!(run.metrics.rounds_of_one_length(), None, "drafts were shortened");
            // A chunk has the tokens of a step.
            let answer = &run.answers[0];
            let emitted = answer.rounds.as_ref().unwrap().accepted.iter().map(|a| a + 1);
            assert_eq!(answer.chunks.iter().skip(1).map(|c| c.1).collect::<Vec<_>>(), emitted.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_real_server_is_read_without_drafts_and_with_three() {
        for (name, k) in [("vllm-0.32-k0.obs", 0), ("vllm-0.32-k3.obs", 3)] {
            let (recording, run) = recorded(name);
            assert_eq!(findings(&recording, &run), Vec::<String>::new(), "{name}");
            assert_eq!((run.answers.len(), recording.head.clients), (12, Some(3)));
            assert_eq!(recording.head.server.version.as_deref(), Some("0.32.0"));
            assert!(run.answers.iter().all(|a| a.finished() && a.counted && a.tokens() == a.asked.output_len));
            // Steps of the log emitted all tokens and computed all prompts, so the sums over the log and over the
            // answers are equal.
            let tokens: u32 = run.answers.iter().map(Answer::tokens).sum();
            assert_eq!(run.steps.iter().map(|s| s.emitted).sum::<u32>(), tokens, "{name}");
            let prompts: u64 = run.answers.iter().map(|a| u64::from(a.prompt_len())).sum();
            assert_eq!(run.steps.iter().map(|s| s.logged.context_tokens).sum::<u64>(), prompts, "{name}");
            assert_eq!(
                (run.metrics.block_size, run.metrics.preemptions, run.metrics.reset),
                (Some(32), Some(0), false)
            );
            if k == 0 {
                assert!(run.answers.iter().all(|a| a.rounds.is_none()));
                continue;
            }
            assert!(run.answers.iter().all(Answer::rounds_are_whole));
            let rounds = || run.answers.iter().filter_map(|a| a.rounds.as_ref());
            assert!(rounds().flat_map(|r| &r.drafted).all(|&d| d <= k));
            // The server's counters, its rounds and its step log must give the same numbers.
            let accepted: u32 = rounds().flat_map(|r| &r.accepted).sum();
            let drafted: u32 = rounds().flat_map(|r| &r.drafted).sum();
            assert_eq!(
                (run.metrics.accepted_tokens, run.metrics.draft_tokens),
                (Some(accepted.into()), Some(drafted.into()))
            );
            assert_eq!((run.run.totals.accepted(), run.run.totals.drafted), (accepted.into(), drafted.into()));
        }
    }
}
