//! `foretoken observe` against a stub that answers as llama.cpp's server does (`tests/llama/README.md`).

use crate::observe::{EXPERIMENT, observe, observed, stderr};
use crate::support::Place;
use foretoken_tests::stub::{Reply, Request, Stub};
use serde_json::json;
use std::time::Duration;

/// An answer of 24 tokens to a prompt of 88, recorded from llama.cpp b11434.
const ANSWER: &str = include_str!("../../../servers/fixtures/llama-cpp-b11434-completion.sse");
const METRICS: &str = include_str!("../../../servers/fixtures/llama-cpp-b11434-metrics.txt");
const LENGTHS: [&str; 2] = ["--set", "workload.lengths={ fixed = { prompt = 88, output = 24 } }"];

/// The recorded answer. Without `timings_per_token` in the request, only its last events have timings.
fn answer(request: &Request) -> Reply {
    let events: Vec<&str> = ANSWER.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let each = request.body["timings_per_token"] == json!(true);
    let ends = |event: &str| !event.contains("\"finish_reason\":null");
    let without = |event: &str| {
        let mut event: serde_json::Value = serde_json::from_str(event).unwrap();
        event.as_object_mut().unwrap().remove("timings");
        event.to_string()
    };
    let sent = events.iter().map(|e| if each || ends(e) { (*e).to_owned() } else { without(e) });
    Reply::Events(sent.map(|event| (Duration::ZERO, event)).collect())
}

fn llama_cpp(metrics: impl Fn() -> Reply + Send + Sync + 'static) -> Stub {
    Stub::start(move |r| match r.path.as_str() {
        "/v1/models" => {
            let model = json!({ "id": "tiny", "owned_by": "llamacpp", "meta": { "n_ctx": 512 } });
            Reply::Text(200, vec![], json!({ "data": [model] }).to_string())
        }
        "/props" => Reply::Text(200, vec![], json!({ "build_info": "b11434-0a1b2c3", "total_slots": 2 }).to_string()),
        "/metrics" => metrics(),
        "/v1/completions" => answer(r),
        _ => Reply::Text(404, vec![], "{}".into()),
    })
}

#[test]
fn llama_cpp_is_recognised_and_its_rounds_are_read() {
    let place = Place::holding(EXPERIMENT);
    let server = llama_cpp(|| Reply::Text(200, vec![], METRICS.to_owned()));
    let out = observe(&place, &server.url("127.0.0.1"), &LENGTHS);
    assert!(out.status.success(), "{}", stderr(&out));
    let said = stderr(&out);
    assert!(said.contains("the server is llama.cpp b11434-0a1b2c3, whose scheduler Foretoken does not have"), "{said}");
    assert!(!said.contains("not believed") && !said.contains("drafts had several lengths"), "{said}");
    assert!(!said.contains("the experiment says that the server runs"), "three drafts a round: {said}");
    let seen = observed(&place);
    assert_eq!((&seen["server"], &seen["cells"][0]["answered"]), (&json!("llama.cpp b11434-0a1b2c3"), &json!(10)));
    let calibrated = place.foretoken().args(["calibrate", "out", "-o", "c"]).output().unwrap();
    assert!(place.path("c/acceptance.truth").exists() || calibrated.status.success(), "{}", stderr(&calibrated));
}

#[test]
fn a_llama_cpp_server_without_metrics_is_reported_with_its_option() {
    let place = Place::holding(EXPERIMENT);
    let why = json!({ "error": { "code": 501, "message": "This server does not support metrics endpoint." } });
    let server = llama_cpp(move || Reply::Text(501, vec![], why.to_string()));
    let out = observe(&place, &server.url("127.0.0.1"), &LENGTHS);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stderr(&out).contains("llama-server has metrics if it is started with --metrics"), "{}", stderr(&out));
}
