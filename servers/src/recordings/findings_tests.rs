use super::*;
use crate::recordings::recording::{Asked, Head, Sample, Tokens};

/// When the test's runs start, microseconds since 1970.
const STARTED: u64 = 1_700_000_000_000_000;

fn ms(ms: u64) -> Time {
    Time(ms * 1_000_000_000)
}

/// A line of the step log, for a step of 10 ms that ended `end_ms` milliseconds after the run's start. `prompts` is
/// (number of requests without output, their prompt tokens), `answers` is (number of requests with output, their
/// tokens).
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

/// A recording of one request with a prompt of 100 tokens, sent at 1 ms. Its answer comes in chunks of `chunks` tokens,
/// 10 ms apart, from 21 ms on. The step log has a line for each chunk, written 1 ms before the chunk comes.
fn recording(chunks: &[u32]) -> Recording {
    let asked = Asked { prompt_len: 100, output_len: chunks.iter().sum(), ..Asked::default() };
    let head = Head {
        started_unix_us: STARTED,
        clients: Some(1),
        asked: vec![asked],
        policy: "autoregressive".into(),
        ..Head::default()
    };
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
fn a_sound_run_has_no_findings() {
    assert_eq!(said(&recording(&[1, 1, 1])), Vec::<String>::new());
}

#[test]
fn a_log_of_another_server_is_found_by_its_prompt_tokens() {
    let mut other = recording(&[1, 1, 1]);
    lines(&mut other)[0] = line(20, (1, 31), (0, 0));
    only(&other, "prefilled 31 tokens and the answered prompts have 100");
    let mut shared = recording(&[1, 1, 1]);
    lines(&mut shared)[0] = line(20, (3, 9000), (0, 0));
    let said = said(&shared);
    assert!(said.len() == 2 && said.iter().all(|s| s.contains("did it serve no other client?")), "{said:?}");
}

#[test]
fn clocks_that_disagree_are_found_by_tokens_before_their_step() {
    let mut late = recording(&[1, 1, 1]);
    late.head.started_unix_us -= 200_000;
    only(&late, "clock and this one's disagree");
}

#[test]
fn a_log_without_microseconds_is_reported() {
    let mut vague = recording(&[1, 1]);
    lines(&mut vague).iter_mut().for_each(|l| *l = l.replacen("1700000000.", "11-22 20:16:22 [loggers.py:", 1));
    only(&vague, "2 steps of the log cannot be placed");
}

#[test]
fn several_steps_in_a_chunk_are_reported() {
    only(&recording(&[1, 5, 5, 5]), "--stream-interval above 1");
    let mut speculating = of_policy(recording(&[1, 4, 4]), "fixed-3");
    for l in &mut lines(&mut speculating)[1..] {
        *l = l.replace("1 generation tokens", "4 generation tokens");
    }
    assert_eq!(said(&speculating), Vec::<String>::new(), "three drafts and one more");
}

#[test]
fn late_sending_preemptions_a_warm_cache_and_a_restart_are_reported() {
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
fn a_run_that_did_not_end_is_reported() {
    let mut r = recording(&[1, 1]);
    r.ending = None;
    only(&r, "the recording breaks off: 1 of 1 requests were sent by then");
    r.ending = Some(Ending::Interrupted);
    only(&r, "it was interrupted after 1 of 1 requests were sent");
    r.ending = Some(Ending::Lost("connection refused".into()));
    only(&r, "the server was lost after 1 requests were sent: connection refused");
}

#[test]
fn a_prompt_length_that_the_server_counts_otherwise_is_reported() {
    let mut r = recording(&[1, 1]);
    r.head.asked[0].prompt_len = 90;
    only(&r, "1 prompts have another length for the server");
}

/// Returns `recording` with `policy` as the label of the policy that the server runs according to the experiment.
fn of_policy(mut recording: Recording, policy: &str) -> Recording {
    recording.head.policy = policy.into();
    recording
}

/// Returns `recording` in which the server's metrics of its only request have rounds. `drafted` and `accepted` are JSON
/// lists with one number of tokens per round.
fn with_rounds(mut recording: Recording, drafted: &str, accepted: &str) -> Recording {
    for event in &mut recording.events {
        if let Event::Ended { how: Ended::Finished { metrics, .. }, .. } = event {
            let rounds = format!("{{\"per_step_drafted\": {drafted}, \"per_step_accepted\": {accepted}}}");
            *metrics = Some(format!("{{\"speculative_decoding\": {rounds}}}"));
        }
    }
    recording
}

#[test]
fn a_policy_other_than_the_experiments_is_reported() {
    let fives = || with_rounds(recording(&[1, 6, 6, 1]), "[5, 5, 5]", "[5, 5, 0]");
    let drafts = "vllm:spec_decode_num_drafts_total";
    let tokens = "vllm:spec_decode_num_draft_tokens_total";
    let counted = |n: f64| {
        let mut r = recording(&[1, 1, 1]);
        r.events.insert(0, metrics(0, &[(drafts, 0.0), (tokens, 0.0)]));
        r.events.insert(1, metrics(300, &[(drafts, 2.0), (tokens, 2.0 * n)]));
        r
    };
    let mut silent = recording(&[1, 1, 1]);
    silent.events.retain(|e| !matches!(e, Event::Log { .. }));
    for (r, policy, expected) in [
        (fives(), "fixed-3", "the server runs fixed-3, and it drafted 5 tokens a round"),
        (fives(), "autoregressive", "the server runs autoregressive, and it drafted 5 tokens a round"),
        (recording(&[1, 1, 1]), "fixed-3", "the server runs fixed-3, and it drafted nothing"),
        (recording(&[1, 1, 1]), "adaspec", "the server runs adaspec, and it drafted nothing"),
        (counted(5.0), "fixed-3", "its counters have 5.0 drafts a round in the mean"),
        (silent, "fixed-3", "nothing that the server says shows drafts"),
    ] {
        let all = said(&of_policy(r, policy));
        assert!(all.iter().any(|s| s.contains(expected)), "{expected}: {all:?}");
    }
    for (r, policy) in [(fives(), "fixed-5"), (fives(), "adaspec"), (counted(3.0), "fixed-3")] {
        let all = said(&of_policy(r, policy));
        assert!(!all.iter().any(|s| s.contains("the experiment says")), "{all:?}");
    }
}

#[test]
fn a_step_with_more_requests_than_were_in_flight_is_reported() {
    let mut other = recording(&[1, 1, 1]);
    lines(&mut other)[1] = line(30, (0, 0), (64, 64));
    only(&other, "1 of 3 steps have more requests than were in flight (64 where 1 were)");
}

#[test]
fn requests_without_a_step_are_reported() {
    let mut other = recording(&[1, 1, 1]);
    let late: Vec<String> = lines(&mut other).iter().map(|l| l.replacen("1700000000.", "1700000900.", 1)).collect();
    *lines(&mut other) = late;
    let all = said(&other);
    assert!(all.iter().any(|s| s.contains("1 of 1 answered requests have no step in the log")), "{all:?}");
}

#[test]
fn a_log_with_each_step_twice_is_reported_and_each_step_counts_once() {
    let mut twice = recording(&[1, 1, 1]);
    let all: Vec<String> = lines(&mut twice).iter().flat_map(|l| [l.clone(), l.replace("INFO x", "INFO y")]).collect();
    *lines(&mut twice) = all;
    only(&twice, "the step log has each step several times");
    assert_eq!(ObservedRun::of(&twice).steps.len(), 3);
}

#[test]
fn usage_that_disagrees_with_the_tokens_that_came_is_reported() {
    let usage = |n: Option<u32>, output_len: u32| {
        let mut r = recording(&[1, 4, 3]);
        r.events.retain(|e| !matches!(e, Event::Log { .. }));
        r.head.asked[0].output_len = output_len;
        for event in &mut r.events {
            if let Event::Ended { how: Ended::Finished { completion_tokens, .. }, .. } = event {
                *completion_tokens = n;
            }
        }
        r
    };
    only(&usage(Some(7), 8), "the usage of 1 answers disagrees with the tokens that came (8 came, usage says 7)");
    let all = said(&usage(Some(4), 4));
    for expected in ["(8 came, usage says 4)", "(8 for 4): does something send every event twice?"] {
        assert!(all.iter().any(|s| s.contains(expected)), "{expected}: {all:?}");
    }
    let most = usage(Some(u32::MAX), 8);
    only(&most, "the usage of 1 answers has more tokens than were asked for (4294967295 of at most 8): not believed");
    let mut unknown = most;
    for event in &mut unknown.events {
        if let Event::Chunk { tokens, .. } = event {
            *tokens = Tokens::SoFar(u32::MAX);
        }
    }
    assert_eq!(ObservedRun::of(&unknown).answers[0].tokens(), 3, "a token a chunk");
    for event in &mut unknown.events {
        if let Event::Chunk { tokens, .. } = event {
            *tokens = Tokens::SoFar(2);
        }
    }
    let all = said(&unknown);
    assert!(all.iter().any(|s| s.contains("1 answers came without token ids")), "{all:?}");
}

#[test]
fn impossible_numbers_are_reported_and_not_used() {
    for (drafted, accepted, expected) in [
        ("[1000]", "[3]", "a round of 1000 tokens, where 0 to 32 are possible"),
        ("[4294967295]", "[0]", "a round of 4294967295 tokens"),
        ("[1e300]", "[0]", "a round of 1e+300 tokens"),
        ("[3, 3, 3, 3]", "[0, 0, 0, 0]", "4 rounds for 3 tokens"),
        ("[3]", "[4]", "a round accepted 4 tokens of 3"),
        ("[3]", "[1, 1]", "1 rounds drafted, and 2 accepted"),
        ("7", "[1]", "per_step_drafted is no list"),
    ] {
        let r = with_rounds(recording(&[1, 1, 1]), drafted, accepted);
        only(&r, &format!("the rounds of 1 answers are not believed: {expected}"));
        assert_eq!(ObservedRun::of(&r).answers[0].rounds, None);
    }
    for (from, to, expected) in [
        ("10.00 ms", "1e300 ms", "a step of 1e297 s elapsed time, where 0 to 2592000 are possible"),
        ("10.00 ms", "9e7 ms", "a step of 9e4 s began before the run did"),
        ("1 generation tokens", "18446744073709551615 generation tokens", "a step of 18446744073709551615 generation"),
    ] {
        let mut r = recording(&[1, 1, 1]);
        lines(&mut r)[1] = lines(&mut r)[1].replace(from, to);
        only(&r, &format!("1 lines of the step log are not believed: {expected}"));
        assert_eq!(ObservedRun::of(&r).steps.len(), 2);
    }
    let mut r = recording(&[1, 1, 1]);
    r.head.server.max_model_len = Some(u32::MAX);
    only(&r, "the server says max_model_len = 4294967295: not believed");
    assert_eq!(crate::recordings::bounds::max_model_len(&r), None);
}

#[test]
fn a_max_model_len_below_an_answered_request_is_not_used() {
    let mut r = recording(&[1, 1, 1]);
    r.head.server.max_model_len = Some(103);
    assert_eq!((said(&r), crate::recordings::bounds::max_model_len(&r)), (Vec::new(), Some(103)));
    r.head.server.max_model_len = Some(1);
    only(&r, "the server says max_model_len = 1 and answered a request of 103 tokens: not believed");
    assert_eq!(crate::recordings::bounds::max_model_len(&r), None);
}

#[test]
fn step_times_that_do_not_fit_into_the_run_are_reported() {
    for (time, expected) in [("9000.00 ms", "cannot be right"), ("0.00 ms", "all steps of the log take 0 ms")] {
        let mut r = recording(&[1, 1, 1]);
        lines(&mut r).iter_mut().for_each(|line| *line = line.replace("10.00 ms", time));
        only(&r, expected);
    }
}
