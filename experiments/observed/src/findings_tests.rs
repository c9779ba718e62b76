use super::*;
use crate::recording::{Asked, Head, Sample, Tokens};

/// Microseconds since 1970 at which the run began.
const STARTED: u64 = 1_700_000_000_000_000;

fn ms(ms: u64) -> Time {
    Time(ms * 1_000_000_000)
}

/// A line of the log of a step that ended at `end_ms` of the run and took 10 ms.
fn line(end_ms: u64, prompts: (u32, u32), answers: (u32, u32)) -> String {
    format!(
        "{:.6} INFO x Iteration(1): {} context requests, {} context tokens, {} generation requests, {} generation tokens, \
         iteration elapsed time: 10.00 ms, CPU KV cache usage: 0.1%",
        (STARTED + 1000 * end_ms) as f64 / 1e6,
        prompts.0,
        prompts.1,
        answers.0,
        answers.1
    )
}

/// A request sent at 0 with a prompt of 100 tokens, answered by chunks of these sizes, 10 ms apart, from 20 ms on; the log of it.
fn recording(chunks: &[u32]) -> Recording {
    let asked = Asked { prompt_len: 100, output_len: chunks.iter().sum(), ..Asked::default() };
    let head = Head { started_unix_us: STARTED, clients: Some(1), asked: vec![asked], ..Head::default() };
    let mut events = vec![Event::Sent { request: 0, at: ms(1), attempt: 0 }];
    let mut lines = Vec::new();
    for (i, &n) in (0u64..).zip(chunks) {
        events.push(Event::Chunk { request: 0, at: ms(21 + 10 * i), tokens: Tokens::Ids(vec![7; n as usize]) });
        lines.push(line(20 + 10 * i, if i == 0 { (1, 100) } else { (0, 0) }, if i == 0 { (0, 0) } else { (1, 1) }));
    }
    let (prompt_tokens, completion_tokens) = (Some(100), Some(chunks.iter().sum()));
    let how = Ended::Finished {
        reason: "length".into(),
        prompt_tokens,
        completion_tokens,
        cached_tokens: None,
        metrics: None,
    };
    events.push(Event::Ended { request: 0, at: ms(300), how });
    events.push(Event::Log { at: ms(310), lines });
    Recording { head, events, ending: Some(Ending::Done) }
}

fn said(recording: &Recording) -> Vec<String> {
    findings(recording, &ObservedRun::of(recording))
}

fn only(recording: &Recording, expected: &str) {
    let said = said(recording);
    assert!(said.len() == 1 && said[0].contains(expected), "{expected}: {said:?}");
}

fn metrics(at: u64, samples: &[(&str, f64)]) -> Event {
    let samples = samples.iter().map(|(name, value)| Sample { name: (*name).into(), value: *value }).collect();
    Event::Metrics { at: ms(at), samples }
}

fn lines(recording: &mut Recording) -> &mut Vec<String> {
    recording.events.iter_mut().find_map(|e| if let Event::Log { lines, .. } = e { Some(lines) } else { None }).unwrap()
}

#[test]
fn nothing_is_said_where_nothing_is_wrong() {
    assert_eq!(said(&recording(&[1, 1, 1])), Vec::<String>::new());
}

#[test]
fn the_log_of_another_server_is_told_by_its_prompts() {
    let mut other = recording(&[1, 1, 1]);
    lines(&mut other)[0] = line(20, (1, 31), (0, 0));
    only(&other, "prefilled 31 tokens and the answered prompts have 100");
    let mut shared = recording(&[1, 1, 1]);
    lines(&mut shared)[0] = line(20, (3, 9000), (0, 0));
    only(&shared, "was nobody else served?");
}

#[test]
fn clocks_that_disagree_are_told_by_tokens_before_their_step() {
    let mut late = recording(&[1, 1, 1]);
    late.head.started_unix_us -= 200_000;
    only(&late, "clock and this one's disagree");
}

#[test]
fn a_log_without_microseconds_is_of_no_use() {
    let mut vague = recording(&[1, 1]);
    lines(&mut vague).iter_mut().for_each(|l| *l = l.replacen("1700000000.", "11-22 20:16:22 [loggers.py:", 1));
    only(&vague, "2 steps of the log cannot be placed");
}

#[test]
fn several_steps_in_a_chunk_are_noticed() {
    only(&recording(&[1, 5, 5, 5]), "--stream-interval above 1");
    let mut speculating = recording(&[1, 4, 4]);
    for l in &mut lines(&mut speculating)[1..] {
        *l = l.replace("1 generation tokens", "4 generation tokens");
    }
    assert_eq!(said(&speculating), Vec::<String>::new(), "three drafts and one more");
}

#[test]
fn late_sending_preemptions_a_warm_cache_and_a_restart_are_told() {
    let mut late = recording(&[1, 1]);
    late.head.clients = None;
    late.events[0] = Event::Sent { request: 0, at: ms(19), attempt: 0 };
    only(&late, "requests were sent late, 19.0 ms at the 99th percentile");

    let counters = |at, preempted, hits| {
        let all = [
            ("vllm:num_preemptions_total", preempted),
            ("vllm:prefix_cache_queries_total", 2.0 * hits),
            ("vllm:prefix_cache_hits_total", hits),
        ];
        metrics(at, &all)
    };
    let with = |first: Event, last: Event| {
        let mut r = recording(&[1, 1]);
        r.events.insert(0, first);
        r.events.push(last);
        r
    };
    only(&with(counters(0, 3.0, 0.0), counters(300, 5.0, 0.0)), "2 requests were preempted");
    only(
        &with(counters(0, 0.0, 10.0), counters(300, 0.0, 14.0)),
        "50 % of prompt tokens were found in a warm prefix cache",
    );
    let said = said(&with(counters(0, 5.0, 0.0), counters(300, 1.0, 0.0)));
    assert!(said.iter().any(|s| s.contains("the server was started again during the run")), "{said:?}");
}

#[test]
fn a_run_that_did_not_end_is_told() {
    let mut r = recording(&[1, 1]);
    r.ending = None;
    only(&r, "the recording breaks off: 1 of 1 requests were sent by then");
    r.ending = Some(Ending::Interrupted);
    only(&r, "it was interrupted after 1 of 1 requests were sent");
    r.ending = Some(Ending::Lost("connection refused".into()));
    only(&r, "the server was lost after 1 requests were sent: connection refused");
}

#[test]
fn a_prompt_that_the_server_counts_otherwise_is_told() {
    let mut r = recording(&[1, 1]);
    r.head.asked[0].prompt_len = 90;
    only(&r, "1 prompts have another length for the server");
}
