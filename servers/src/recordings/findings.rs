//! Notes on an observed run: values that the server did not report, and disturbances that distort the run's numbers.

use crate::recordings::bounds::answer_tokens;
use crate::recordings::doubts::doubts;
use crate::recordings::llama_cpp::{DraftStatistics, is_llama_cpp};
use crate::recordings::recording::{Ended, Ending, Event, Failure, Recording};
use crate::recordings::request::Answer;
use crate::recordings::run::ObservedRun;
use crate::recordings::stated;
use crate::recordings::step_log::is_step;
use crate::recordings::steps::{PlacedStep, written_twice};
use foretoken_sim::Time;
use std::collections::{BTreeMap, BTreeSet};

/// If the 99th percentile of the delay between due time and sending is above this (10 ms), a note says that arrivals
/// differ from the workload's.
const LATE: Time = Time(10_000_000_000);

/// All notes on an observed run, the most serious first.
pub fn findings(recording: &Recording, run: &ObservedRun) -> Vec<String> {
    let mut all = Vec::new();
    ended(recording, run, &mut all);
    answers(&run.answers, &mut all);
    sending(recording, &run.answers, &mut all);
    all.extend(stated::drafts(&recording.head.policy, run));
    speculation(run, &mut all);
    log(recording, run, &mut all);
    llama_cpp(recording, run, &mut all);
    server(recording, run, &mut all);
    all.extend(doubts(recording, &run.metrics));
    all
}

fn ended(recording: &Recording, run: &ObservedRun, all: &mut Vec<String>) {
    let (sent, planned) = (run.answers.len(), recording.head.asked.len());
    match &recording.ending {
        Some(Ending::Done) => {}
        Some(Ending::Interrupted) => {
            all.push(format!("it was interrupted after {sent} of {planned} requests were sent"))
        }
        Some(Ending::Lost(why)) => all.push(format!("the server was lost after {sent} requests were sent: {why}")),
        None => all.push(format!("the recording breaks off: {sent} of {planned} requests were sent by then")),
    }
}

fn answers(answers: &[Answer], all: &mut Vec<String>) {
    // Refused requests by HTTP status: (number of requests, first message, first `retry-after` in seconds). Failed
    // requests by kind of failure: (number of requests, first message).
    let mut refused: BTreeMap<u16, (usize, &str, Option<f64>)> = BTreeMap::new();
    let mut failed: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    let (mut short, mut silent) = (0, 0);
    for a in answers {
        match &a.ended {
            Some((_, Ended::Refused { status, said, retry_after_s })) => {
                refused.entry(*status).or_insert((0, said, *retry_after_s)).0 += 1;
            }
            Some((_, Ended::Failed { why, said })) => failed.entry(in_words(*why)).or_insert((0, said)).0 += 1,
            Some((_, Ended::Finished { completion_tokens, .. })) => {
                short += usize::from(a.tokens() < a.asked.output_len);
                silent += usize::from(completion_tokens.is_none());
            }
            None => failed.entry("had not ended").or_insert((0, "the recording ends before")).0 += 1,
        }
    }
    let n = answers.len();
    for (status, (count, said, after)) in refused {
        let after = after.map_or(String::new(), |s| format!("; it asks to come back after {s} s (observe.retries)"));
        all.push(format!("{count} of {n} requests were refused with {status}: {said}{after}"));
    }
    for (why, (count, said)) in failed {
        all.push(format!("{count} of {n} requests {why}: {said}"));
    }
    if short > 0 {
        all.push(format!(
            "{short} answers are shorter than asked for: the server ended them, so their lengths are the model's and not the workload's"
        ));
    }
    if silent > 0 {
        all.push(format!("{silent} answers came without usage: their tokens are counted by chunks"));
    }
    let guessed = answers.iter().filter(|a| a.finished() && !a.counted).count();
    if guessed > 0 {
        all.push(format!(
            "the server does not say how many tokens a chunk has: the tokens of {guessed} answers are spread evenly over their chunks"
        ));
    }
    token_counts(answers, all);
}

/// Adds notes on answers whose number of tokens differs from the server's usage report, on answers with more tokens
/// than were asked for, and on answers without token ids.
fn token_counts(answers: &[Answer], all: &mut Vec<String>) {
    let finished = || answers.iter().filter(|a| a.finished() && a.counted && !a.chunks.is_empty());
    let other =
        |a: &&Answer| a.usage().is_some_and(|n| n != a.tokens() && answer_tokens(n, a.asked.output_len).is_some());
    if let Some(first) = finished().find(other) {
        let (n, came, said) = (finished().filter(other).count(), first.tokens(), first.usage().unwrap_or(0));
        all.push(format!("the usage of {n} answers disagrees with the tokens that came ({came} came, usage says {said}): the tokens that came are used"));
    }
    let long = |a: &&Answer| a.tokens() > a.asked.output_len;
    if let Some(first) = finished().find(long) {
        let (n, came, asked) = (finished().filter(long).count(), first.tokens(), first.asked.output_len);
        let twice = if came == 2 * asked { ": does something send every event twice?" } else { "" };
        all.push(format!("{n} answers have more tokens than were asked for ({came} for {asked}){twice}"));
    }
    let without = finished().filter(|a| a.ids.is_empty()).count();
    if without > 0 {
        all.push(format!("{without} answers came without token ids: their tokens are counted by their usage"));
    }
}

fn in_words(why: Failure) -> &'static str {
    match why {
        Failure::Connect => "got no connection",
        Failure::Timeout => "took too long",
        Failure::Cut => "broke off",
        Failure::Garbled => "were answered with something else than a completion",
        Failure::Abandoned => "were abandoned",
    }
}

fn sending(recording: &Recording, answers: &[Answer], all: &mut Vec<String>) {
    if let Some(p99) = late_p99(recording, answers).filter(|p99| *p99 > LATE) {
        let ms = p99.as_s() * 1e3;
        all.push(format!("requests were sent late, {ms:.1} ms at the 99th percentile: the client could not keep up, and arrivals differ from the workload"));
    }
    let again = answers.iter().filter(|a| a.retries > 0).count();
    if again > 0 {
        all.push(format!("{again} requests were sent again, and their latencies count from the last attempt"));
    }
    let other = answers.iter().filter(|a| a.finished() && a.prompt_len() != a.asked.prompt_len).count();
    if other > 0 {
        all.push(format!(
            "{other} prompts have another length for the server than in the workload: the two tokenizers differ, and the server's count is used"
        ));
    }
}

/// 99th percentile over requests of the delay between due time and sending. `None` in a closed loop, where requests
/// have no due time. Requests that were sent again are left out.
pub fn late_p99(recording: &Recording, answers: &[Answer]) -> Option<Time> {
    if recording.head.clients.is_some() {
        return None;
    }
    let mut late: Vec<Time> = answers.iter().filter(|a| a.retries == 0).map(Answer::late).collect();
    late.sort_unstable();
    late.get((late.len() * 99 / 100).min(late.len().saturating_sub(1))).copied()
}

fn speculation(run: &ObservedRun, all: &mut Vec<String>) {
    let lengths: BTreeSet<u32> = run.answers.iter().flat_map(Answer::usual_lengths).collect();
    if lengths.len() > 1 {
        let lengths: Vec<String> = lengths.iter().map(u32::to_string).collect();
        all.push(format!(
            "drafts had several lengths ({}): K changed during the run, or the engine chooses it",
            lengths.join(", ")
        ));
    }
    let drafted: u64 = run.run.totals.drafted;
    // There is a note if no draft token was accepted. If the server reports no rounds, acceptance is unknown, and there
    // is no note.
    if run.run.totals.rounds() > 0 && run.run.totals.accepted() == 0 {
        all.push(format!("not one of {drafted} drafted tokens was accepted: is the draft made for this target?"));
    }
    // Largest number of tokens that a step can emit for a request: the largest draft length in the run, plus one.
    let most = lengths.last().copied().unwrap_or(0).max(largest_of(run)) + 1;
    let chunks = run.answers.iter().filter(|a| a.counted).flat_map(|a| a.chunks.iter().skip(1));
    let (large, n) = chunks.fold((0u64, 0u64), |(l, n), c| (l + u64::from(c.1 > most), n + 1));
    let speculation_known = drafted > 0 || run.steps.iter().any(|s| s.logged.generation_requests > 0);
    if speculation_known && n > 0 && large * 20 > n {
        all.push(format!(
            "{:.0} % of chunks hold more tokens than a step can emit ({most}): the server sends several steps at once (--stream-interval above 1), so gaps between tokens are not steps",
            100.0 * large as f64 / n as f64
        ));
    }
}

/// Largest number of draft tokens per request in any step of the server's log.
fn largest_of(run: &ObservedRun) -> u32 {
    let a_request = |s: &crate::recordings::steps::PlacedStep| {
        let (requests, tokens) = (u64::from(s.logged.generation_requests), s.logged.generation_tokens);
        (requests > 0).then(|| (tokens.div_ceil(requests) - 1) as u32)
    };
    run.steps.iter().filter_map(a_request).max().unwrap_or(0)
}

fn log(recording: &Recording, run: &ObservedRun, all: &mut Vec<String>) {
    let lines = recording.events.iter().filter_map(|e| match e {
        Event::Log { lines, .. } => Some(lines.iter().filter(|line| is_step(line)).count()),
        _ => None,
    });
    let lines: usize = lines.sum();
    if lines == 0 {
        return;
    }
    if run.steps.is_empty() {
        return all.push(format!(
            "{lines} steps of the log cannot be placed: their times are not seconds since 1970 with a fraction, or of another clock; start the server with the shipped logging configuration"
        ));
    }
    if written_twice(recording) {
        all.push("the step log has each step several times: several handlers of the server's logger write to it; each step counts once".into());
    }
    foreign_requests(run, all);
    step_times(run, all);
    // The prompt tokens of all logged steps should equal the tokens of the answered prompts, except for hits in the
    // prefix cache.
    let prompts: u64 = run.steps.iter().map(|s| s.logged.context_tokens).sum();
    let asked: u64 = run.answers.iter().filter(|a| !a.chunks.is_empty()).map(|a| u64::from(a.prompt_len())).sum();
    let cached = run.metrics.prefix_hits.unwrap_or(0);
    if prompts + cached < asked - asked / 20 || prompts > asked + asked / 5 + 4096 {
        all.push(format!(
            "the log's steps prefilled {prompts} tokens and the answered prompts have {asked}: is it the log of this server, and did it serve no other client?"
        ));
    }
    let early = run
        .answers
        .iter()
        .filter_map(|a| a.chunks.first())
        .filter(|c| run.steps.first().is_none_or(|s| s.end > c.0 + Time(50_000_000_000)));
    if early.count() > 0 {
        all.push("tokens came before the log's first step: the server's clock and this one's disagree".into());
    }
}

/// Adds what llama.cpp's server reported about drafts in the whole, and what it did not report.
fn llama_cpp(recording: &Recording, run: &ObservedRun, all: &mut Vec<String>) {
    if !is_llama_cpp(recording.head.server.version.as_deref()) {
        return;
    }
    if run.metrics.drafts.is_some_and(|n| n > 0) && run.answers.iter().all(|a| a.rounds.is_none()) {
        all.push(
            "the server drafted, and its answers have no timings of each token: acceptance by position is not known, \
             because /metrics does not say which drafts were shortened at the end of an answer"
                .into(),
        );
    }
    if let Some(drafter) = DraftStatistics::growth(recording) {
        let (calls, ms) = (drafter.calls, 1e3 * drafter.seconds / drafter.calls as f64);
        all.push(format!(
            "the drafter took {ms:.3} ms a call ({calls} calls, each for all slots that generate): the draft's pass over \
             the target's batch is not in this time"
        ));
    }
}

/// The sum of all logged step times may exceed the time from the first to the last step by this factor. Two steps may
/// be in flight, and log lines may be late.
const OVERLAP: f64 = 3.0;

/// Adds a note if all logged steps take no time, or if the sum of their times is more than [`OVERLAP`] times the time
/// from the first to the last step.
fn step_times(run: &ObservedRun, all: &mut Vec<String>) {
    let [first, .., last] = run.steps.as_slice() else { return };
    let together: f64 = run.steps.iter().map(|s| s.logged.elapsed_s).sum();
    let span = last.end.saturating_sub(first.start).as_s();
    if together == 0.0 {
        all.push("all steps of the log take 0 ms: the log does not say what steps take".into());
    } else if together > OVERLAP * span {
        all.push(format!(
            "the log's steps take {together:.3} s together and lie within {span:.3} s: their times cannot be right"
        ));
    }
}

/// The server may write the log line of a step up to this long (50 ms) before or after the client reads the step's
/// tokens.
const APART: Time = Time(50_000_000_000);

/// Adds notes if the server seems to have served another client, or if the log seems to be another server's. The
/// signs are steps with more requests than this client had in flight, and answered requests without a step.
fn foreign_requests(run: &ObservedRun, all: &mut Vec<String>) {
    let until = |a: &Answer| a.ended.as_ref().map_or(Time::MAX, |(at, _)| *at + APART);
    let mut changes: Vec<(Time, i64)> =
        run.answers.iter().flat_map(|a| [(a.sent.saturating_sub(APART), 1), (until(a), -1)]).collect();
    changes.sort_unstable_by_key(|&(at, change)| (at, -change));
    // Compares each logged step's requests with the most requests that this client had in flight at any instant of the
    // step.
    let (mut next, mut now, mut worst, mut beyond) = (0, 0i64, (0, 0), 0);
    let requests = |s: &PlacedStep| i64::from(s.logged.generation_requests) + i64::from(s.logged.context_requests);
    for step in &run.steps {
        while next < changes.len() && changes[next].0 <= step.start {
            now += changes[next].1;
            next += 1;
        }
        let mut most = now;
        while next < changes.len() && changes[next].0 <= step.end {
            now += changes[next].1;
            most = most.max(now);
            next += 1;
        }
        if requests(step) > most {
            beyond += 1;
            worst = worst.max((requests(step), most));
        }
    }
    let (steps, (of, most)) = (run.steps.len(), worst);
    if beyond > 0 {
        all.push(format!(
            "{beyond} of {steps} steps have more requests than were in flight ({of} where {most} were): is it the log of this server, and did it serve no other client?"
        ));
    }
    let finished = || run.answers.iter().filter(|a| a.finished() && !a.chunks.is_empty());
    let has_step = |a: &Answer| {
        let first = run.steps.partition_point(|s| s.end < a.sent.saturating_sub(APART));
        run.steps.get(first).is_some_and(|s| s.start <= until(a))
    };
    let (none, n) = (finished().filter(|a| !has_step(a)).count(), finished().count());
    if none > 0 {
        all.push(format!(
            "{none} of {n} answered requests have no step in the log while they ran: is it the log of this server, and are the clocks the same?"
        ));
    }
}

fn server(recording: &Recording, run: &ObservedRun, all: &mut Vec<String>) {
    let m = &run.metrics;
    if m.reset {
        all.push("a counter of /metrics fell: the server was started again during the run".into());
    }
    if let Some(n) = m.preemptions.filter(|n| *n > 0) {
        all.push(format!("{n} requests were preempted: their work was done twice"));
    }
    if let Some((share, source)) = run.cached_prompt_share().filter(|(share, _)| *share > 0.0) {
        all.push(format!(
            "{:.0} % of prompt tokens were found in a warm prefix cache ({source}): prompts cost less than they would \
             alone. If the workload shares no prefixes, the server had them from an earlier run: start it again",
            100.0 * share
        ));
    }
    let notes: BTreeSet<&str> = recording
        .events
        .iter()
        .filter_map(|e| match e {
            Event::Note { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    all.extend(notes.into_iter().map(str::to_owned));
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
