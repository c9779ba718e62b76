//! `foretoken observe` and `calibrate` with servers that send too much or report impossible numbers.

use crate::observe::{EXPERIMENT, observe, speculating, stderr, stub, summary};
use crate::support::Place;
use foretoken_tests::stub::{Completion, Reply, Request, Stub, aside};
use serde_json::{Value, json};

/// A stub server that answers `path` with `reply`, and answers requests for other paths like every stub server of these
/// tests.
fn but(path: &'static str, reply: Reply) -> Stub {
    Stub::start(move |r| match r.path == path {
        true => reply.clone(),
        false => aside(r, "").unwrap_or_else(|| speculating(r).reply(r)),
    })
}

#[test]
fn bodies_without_end_are_cut_off() {
    let endless = |kind| Reply::Endless(kind, "x".repeat(1 << 14));
    let place = Place::holding(EXPERIMENT);
    let out = observe(&place, &but("/v1/models", endless("application/json")).url("127.0.0.1"), &[]);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(
        stderr(&out).contains("v1/models: no list of models: the answer has more than 1.0 MiB"),
        "{}",
        stderr(&out)
    );
    for (path, kind, said) in [
        ("/metrics", "text/plain", "/metrics: the answer has more than 4.0 MiB: the run has no metrics of the server"),
        ("/version", "application/json", ""),
    ] {
        let place = Place::holding(EXPERIMENT);
        let out = observe(&place, &but(path, endless(kind)).url("127.0.0.1"), &[]);
        assert!(out.status.success() && stderr(&out).contains(said), "{path}: {}", stderr(&out));
    }
    let place = Place::holding(EXPERIMENT);
    let out = observe(&place, &but("/v1/completions", endless("text/event-stream")).url("127.0.0.1"), &[]);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(stderr(&out).contains("the answer has more than 1.0 MiB for 8 tokens"), "{}", stderr(&out));
}

/// What a server says about itself is clipped where it is long, and named where it cannot be.
#[test]
fn odd_facts_of_a_server_are_clipped_and_named() {
    let text = |body: String| Reply::Text(200, vec![], body);
    let place = Place::holding(EXPERIMENT);
    let long = json!({ "version": "9".repeat(1_000_000) }).to_string();
    let out = observe(&place, &but("/version", text(long)).url("127.0.0.1"), &[]);
    assert!(out.status.success() && stderr(&out).len() < 5000, "{} characters", stderr(&out).len());
    for (given, said) in
        [("-5", "max_model_len is -5, no number"), ("1e30", "max_model_len is 1e+30"), ("0", "is 0, no")]
    {
        let models = format!("{{\"data\": [{{\"id\": \"m\", \"max_model_len\": {given}}}]}}");
        let place = Place::holding(EXPERIMENT);
        let out = observe(&place, &but("/v1/models", text(models)).url("127.0.0.1"), &[]);
        assert!(out.status.success() && stderr(&out).contains(said), "{given}: {}", stderr(&out));
    }
    let models = "{\"data\": [{\"id\": \"m\", \"max_model_len\": null}]}".to_owned();
    let out = observe(&Place::holding(EXPERIMENT), &but("/v1/models", text(models)).url("127.0.0.1"), &[]);
    assert!(out.status.success() && !stderr(&out).contains("max_model_len"), "{}", stderr(&out));
}

#[test]
fn wrong_arguments_are_refused_before_the_first_request() {
    let place = Place::holding(EXPERIMENT);
    std::fs::write(place.path("no.pem"), "this is no certificate").unwrap();
    let block = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    std::fs::write(place.path("bad.pem"), block).unwrap();
    let server = Stub::start(|r| panic!("{} was asked", r.path));
    let url = server.url("127.0.0.1");
    let cases: [(&[&str], &[&str]); 13] = [
        (&["--set", "observe.timeout_s=1e300"], &["observe.timeout_s: ", "is out of range", "0.001 to 2592000"]),
        (&["--set", "observe.timeout_s=0.0"], &["observe.timeout_s: 0 is out of range"]),
        (&["--set", "observe.timeout_s=inf"], &["observe.timeout_s: inf is out of range"]),
        (&["--set", "observe.run_s=1e300"], &["observe.run_s: ", "0.001 to 2592000"]),
        (&["--set", "observe.time_scale=1e-300"], &["observe.time_scale: ", "0.000001 to 1000000"]),
        (
            &["--api-key-env", "NOT_SET_ANYWHERE"],
            &["--api-key-env NOT_SET_ANYWHERE: the environment variable is not set"],
        ),
        (&["--ca", "no.pem"], &["--ca no.pem: it holds no certificate", "-----BEGIN CERTIFICATE-----"]),
        (&["--ca", "bad.pem"], &["--ca bad.pem: no certificate that can be trusted"]),
        (&["--ca", "x.toml"], &["--ca x.toml: it holds no certificate"]),
        (&["--set", "policies=[{ oracle-goodput = {} }]"], &["`oracle-goodput` sees what drafts will get right"]),
        (&["--step-log", "."], &["--step-log .: it is a folder"]),
        (&["--step-log", "/dev/null"], &["--step-log /dev/null: it is a device"]),
        (&["--step-log", "/dev/zero"], &["--step-log /dev/zero: it is a device"]),
    ];
    for (more, said) in cases {
        let out = observe(&place, &url, more);
        assert_eq!(out.status.code(), Some(2), "{more:?}: {}", stderr(&out));
        said.iter().for_each(|said| assert!(stderr(&out).contains(said), "{said}: {}", stderr(&out)));
        assert!(!place.path("out").exists(), "nothing is left behind: {more:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_without_a_writer_is_refused_at_once() {
    let place = Place::holding(EXPERIMENT);
    let made = std::process::Command::new("mkfifo").arg(place.path("pipe")).status().unwrap();
    assert!(made.success());
    let out = observe(&place, &stub(|r| speculating(r).reply(r)).url("127.0.0.1"), &["--step-log", "pipe"]);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    assert!(stderr(&out).contains("--step-log pipe: it is a pipe, not a regular file"), "{}", stderr(&out));
}

/// An answer of 8 tokens in chunks without token ids. The last event says that the answer had `usage` tokens, and that
/// its steps drafted `drafted` tokens.
fn claiming(r: &Request, usage: Option<u64>, drafted: &Value) -> Reply {
    let Reply::Events(mut events) = Completion { ids: false, usage: false, ..speculating(r) }.reply(r) else {
        panic!("a completion is a stream of events")
    };
    let rounds = json!({ "per_step_drafted": drafted, "per_step_accepted": [3, 2] });
    let tokens = usage.map_or(Value::Null, |n| json!({ "prompt_tokens": 12, "completion_tokens": n }));
    let last = json!({ "choices": [], "usage": tokens, "metrics": { "speculative_decoding": rounds } });
    let done = events.pop().unwrap();
    events.extend([(done.0, last.to_string()), done]);
    Reply::Events(events)
}

/// The text of vLLM's metrics of its KV cache and of its draft tokens, with the given numbers. `rounds` is the number
/// of request-steps with draft tokens.
fn metrics(block_size: u64, blocks: u64, rounds: u64) -> String {
    format!(
        "vllm:cache_config_info{{block_size=\"{block_size}\",num_gpu_blocks=\"{blocks}\"}} 1.0\n\
         vllm:num_preemptions_total 0.0\nvllm:spec_decode_num_drafts_total {rounds}\n\
         vllm:spec_decode_num_draft_tokens_total {}\n\
         vllm:spec_decode_num_accepted_tokens_per_pos_total{{position=\"0\"}} {rounds}\n",
        rounds as f64 * 1.0,
    )
}

#[test]
fn impossible_numbers_are_kept_reported_and_not_used() {
    type Says = Box<dyn Fn(&Request) -> Reply + Send + Sync>;
    const MOST: u64 = 4_294_967_295;
    let answers = |usage, drafted: Value| -> Says {
        Box::new(move |r| aside(r, "").unwrap_or_else(|| claiming(r, usage, &drafted)))
    };
    let growing = |block_size, blocks, rounds: u64| -> Says {
        let asked = std::sync::atomic::AtomicU64::new(0);
        Box::new(move |r| {
            let reading =
                if r.path == "/metrics" { asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) } else { 0 };
            let text = metrics(block_size, blocks, if reading > 1 { rounds } else { 0 });
            aside(r, &text).unwrap_or_else(|| Completion { metrics: None, ..speculating(r) }.reply(r))
        })
    };
    let cases: [(Says, &str); 7] = [
        (
            answers(Some(MOST), json!([3, 3])),
            "has more tokens than were asked for (4294967295 of at most 8): not believed",
        ),
        (answers(Some(8), json!([1000, 3])), "a round of 1000 tokens, where 0 to 32 are possible"),
        (answers(Some(8), json!([MOST, 3])), "a round of 4294967295 tokens, where 0 to 32 are possible"),
        (answers(Some(8), json!(vec![3; 9])), "9 rounds drafted, and 2 accepted"),
        (growing(0, 512, 5), "/metrics says block_size = 0, where 1 to 65536 are possible: not believed"),
        (growing(16, MOST, 5), "/metrics says num_gpu_blocks = 4294967295, where 2 to 16777216 are possible: not"),
        (growing(16, 512, MOST), "/metrics says 4294967295 rounds of drafting, where the requests that were sent have"),
    ];
    for (says, said) in cases {
        let place = Place::holding(EXPERIMENT);
        let server = Stub::start(says);
        let out = observe(&place, &server.url("127.0.0.1"), &[]);
        assert!(out.status.success() && stderr(&out).contains(said), "{said}: {}", stderr(&out));
        let policy = &summary(&place)["variants"][0]["policies"][0];
        let tokens = policy["seeds"][0]["emitted"].as_u64().or(policy["emitted"].as_u64());
        assert!(tokens.is_none_or(|n| n <= 80), "{said}: {policy}");
        let out = place.foretoken().args(["calibrate", "out", "-o", "cal"]).output().unwrap();
        let refused = stderr(&out).contains("these runs say neither what steps take nor what drafts get right");
        assert!(out.status.success() || refused, "{said}: {}", stderr(&out));
    }
}
