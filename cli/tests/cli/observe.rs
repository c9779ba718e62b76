//! `foretoken observe` against stub servers: what it records, and its messages about errors.

use crate::support::Place;
use foretoken_tests::stub::{Completion, Reply, Request, Stub, aside};
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub const EXPERIMENT: &str = r#"name = "seen"
seeds = [1]
policies = [{ fixed = { k = 3 } }]

[workload]
arrivals = { closed-loop = 2 }
lengths = { fixed = { prompt = 12, output = 8 } }
requests = 10

[observe]
warm_up_requests = 1
"#;

pub fn observe(place: &Place, url: &str, more: &[&str]) -> Output {
    place.foretoken().args(["observe", url, "x.toml", "-o", "out"]).args(more).output().unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A stub server. `say` makes its answers to requests for completions. To requests for other paths, such as the list of
/// models, it gives the fixed answers of all stub servers in these tests.
pub fn stub(say: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Stub {
    Stub::start(move |r| aside(r, "").unwrap_or_else(|| say(r)))
}

/// The answer of a vLLM server with draft length 3 to a request for 8 tokens, in chunks of 1, 4 and 3 tokens.
pub fn speculating(request: &Request) -> Completion {
    let rounds = json!({ "per_step_drafted": [3, 3], "per_step_accepted": [3, 2] });
    Completion {
        chunks: vec![1, 4, 3],
        metrics: Some(json!({ "queue_time_ms": 1.5, "speculative_decoding": rounds })),
        ..Completion::of(request)
    }
}

pub fn summary(place: &Place) -> Value {
    let text = std::fs::read_to_string(place.path("out/report.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn an_observed_run_gives_an_ordinary_results_folder() {
    let place = Place::holding(EXPERIMENT);
    let server = stub(|r| Completion { gap: Duration::from_millis(3), ..speculating(r) }.reply(r));
    let out = observe(&place, &server.url("127.0.0.1"), &["--format", "json"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(said["source"], "observed");
    let policy = &summary(&place)["variants"][0]["policies"][0];
    assert_eq!(policy["policy"], "fixed-3");
    let observed: Value = serde_json::from_slice(&std::fs::read(place.path("out/observed.json")).unwrap()).unwrap();
    assert_eq!((&observed["server"], &observed["cells"][0]["answered"]), (&json!("0.0.stub"), &json!(10)));
    for (args, wrote) in
        [(vec!["report", "out"], "out/report/index.html"), (vec!["report", "out", "-o", "page"], "page/index.html")]
    {
        let done = place.foretoken().args(&args).output().unwrap();
        assert!(done.status.success() && place.path(wrote).exists(), "{}", stderr(&done));
    }
    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    assert!(page.contains("observed: measured from outside"));
    assert!(page.contains("<h1>Observed: ") && page.contains(" on vLLM 0.0.stub</h1>"), "the page names the server");
    assert!(page.contains("<dl class=\"tiles\"><div><dt>tokens a second</dt>"), "one policy has tiles");
}

#[test]
fn an_unreachable_server_is_reported() {
    let place = Place::holding(EXPERIMENT);
    let server = stub(|r| speculating(r).reply(r));
    let url = server.url("127.0.0.1");
    let other_model = ["--set", "observe.model=llama"];
    let none = "http://127.0.0.1:9";
    for (url, more, exit, said) in [
        (none, &[][..], 1, "cannot be reached"),
        ("localhost:8000", &[], 2, "must begin with http"),
        (&url, &other_model, 2, "the server has no model `llama`"),
        (&url, &["--set", "policies=[{ fixed = {} }, { adaspec = {} }]"], 2, "one policy at a time"),
        (&url, &["--set", "slo.adaspec-scale=1.0"], 2, "which this server does not make"),
        (&url, &["--step-log", "none.log"], 2, "--step-log none.log"),
    ] {
        let out = observe(&place, url, more);
        assert_eq!(out.status.code(), Some(exit), "{}", stderr(&out));
        assert!(stderr(&out).contains(said), "{}", stderr(&out));
        assert!(!place.path("out/manifest.json").exists(), "nothing is left behind: {more:?}");
    }
}

#[test]
fn tls_is_checked_against_the_name() {
    let place = Place::holding(EXPERIMENT);
    let server = Stub::start_tls(|r| aside(r, "").unwrap_or_else(|| speculating(r).reply(r)));
    std::fs::write(place.path("ca.pem"), server.certificate.as_ref().unwrap()).unwrap();
    let out = observe(&place, &server.url("localhost"), &[]);
    assert!(out.status.code() == Some(1) && stderr(&out).contains("certificate"), "{}", stderr(&out));
    let out = observe(&place, &server.url("127.0.0.1"), &["--ca", "ca.pem"]);
    assert!(out.status.code() == Some(1) && stderr(&out).contains("not valid for name"), "{}", stderr(&out));
    let out = observe(&place, &server.url("localhost"), &["--ca", "ca.pem"]);
    assert!(out.status.success(), "{}", stderr(&out));
}

#[test]
fn failures_of_single_requests_are_reported_and_all_others_kept() {
    let asked = |r: &Request, says: Reply, only: &[usize]| match only.contains(&r.nth) {
        true => says,
        false => speculating(r).reply(r),
    };
    let text = |status, headers: &[&str], body: &str| {
        Reply::Text(status, headers.iter().map(|h| (*h).to_owned()).collect(), body.to_owned())
    };
    type Says = Box<dyn Fn(&Request) -> Reply + Send + Sync>;
    let cases: Vec<(Says, &[&str])> = vec![
        (
            Box::new(move |r| asked(r, text(500, &[], "{\"error\":{\"message\":\"out of cheese\"}}"), &[3, 4])),
            &["2 of 10 requests were refused with 500: out of cheese"],
        ),
        (
            Box::new(move |r| asked(r, text(429, &["retry-after: 7"], "{}"), &[3])),
            &["1 of 10 requests were refused with 429", "it asks to come back after 7 s"],
        ),
        (
            Box::new(move |r| asked(r, text(400, &[], "{\"detail\":\"longer than max_model_len\"}"), &[3])),
            &["1 of 10 requests were refused with 400: longer than max_model_len"],
        ),
        (
            Box::new(move |r| asked(r, Completion { cut_after: Some(2), ..speculating(r) }.reply(r), &[3])),
            &["1 of 10 requests broke off"],
        ),
        (
            Box::new(move |r| asked(r, text(200, &["content-type: text/html"], "<html>hello"), &[3])),
            &["answered with something else than a completion: the answer is no stream of events but `text/html`"],
        ),
        (
            Box::new(move |r| {
                let short = Completion { chunks: vec![1, 2], reason: "stop", ..speculating(r) };
                asked(r, short.reply(r), &[3, 5, 6])
            }),
            &["3 answers are shorter than asked for"],
        ),
        (
            Box::new(|r| Completion { usage: false, ids: false, ..speculating(r) }.reply(r)),
            &["10 answers came without usage", "the tokens of 10 answers are spread evenly"],
        ),
        (
            Box::new(|r| {
                let rounds =
                    json!({ "per_step_drafted": [3, 3, 3, 3, 3, 3, 3], "per_step_accepted": [0, 0, 0, 0, 0, 0, 0] });
                Completion { metrics: Some(json!({ "speculative_decoding": rounds })), ..Completion::of(r) }.reply(r)
            }),
            &["not one of 210 drafted tokens was accepted"],
        ),
        (
            Box::new(|r| {
                let k = if r.nth < 6 { 3 } else { 1 };
                let rounds = json!({ "per_step_drafted": vec![k; 7], "per_step_accepted": [0, 0, 1, 0, 0, 0, 0] });
                Completion { metrics: Some(json!({ "speculative_decoding": rounds })), ..Completion::of(r) }.reply(r)
            }),
            &["drafts had several lengths (1, 3): K changed during the run"],
        ),
    ];
    for (says, expected) in cases {
        let place = Place::holding(EXPERIMENT);
        let server = stub(move |r| says(r));
        let out = observe(&place, &server.url("127.0.0.1"), &[]);
        assert!(out.status.success(), "{}", stderr(&out));
        expected.iter().for_each(|said| assert!(stderr(&out).contains(said), "{said}: {}", stderr(&out)));
        let requests = summary(&place)["variants"][0]["requests"].as_u64();
        assert_eq!(requests, Some(10));
    }
}

#[test]
fn refused_requests_are_sent_again_if_retries_are_set() {
    let place = Place::holding(EXPERIMENT);
    let server = stub(|r| match r.nth {
        4 => Reply::Text(429, vec!["retry-after: 0".into()], "{}".into()),
        _ => speculating(r).reply(r),
    });
    let out = observe(&place, &server.url("127.0.0.1"), &["--set", "observe.retries=2"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stderr(&out).contains("1 requests were sent again"), "{}", stderr(&out));
    assert!(!stderr(&out).contains("refused"), "{}", stderr(&out));
}

#[test]
fn a_server_that_refuses_everything_ends_the_run() {
    for (status, body, said) in [
        (401, "{\"error\":{\"message\":\"no key\"}}", "FORETOKEN_API_KEY"),
        (404, "{\"detail\":\"Not Found\"}", "set observe.model"),
        (400, "{\"detail\":\"prompt must be a string\"}", "observe.send = \"text\""),
    ] {
        let place = Place::holding(EXPERIMENT);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let server = stub(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Reply::Text(status, vec![], body.into())
        });
        let out = observe(&place, &server.url("127.0.0.1"), &[]);
        assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
        assert!(stderr(&out).contains(said), "{}", stderr(&out));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn the_key_is_sent_and_never_printed() {
    let place = Place::holding(EXPERIMENT);
    let server = stub(|r| match r.headers.iter().any(|h| h.eq_ignore_ascii_case("authorization: Bearer hunter2")) {
        true => speculating(r).reply(r),
        false => Reply::Text(401, vec![], "{}".into()),
    });
    let mut command = place.foretoken();
    let out =
        command.args(["observe", &server.url("127.0.0.1"), "x.toml", "-o", "out"]).env("FORETOKEN_API_KEY", "hunter2");
    let out = out.output().unwrap();
    assert!(out.status.success(), "{}", stderr(&out));
    let said = [&out.stdout, &out.stderr].map(|b| String::from_utf8_lossy(b).into_owned()).concat();
    assert!(!said.contains("hunter2"));
    let recorded = std::fs::read(place.path("out/recordings/v0-s0.obs")).unwrap();
    assert!(!recorded.windows(7).any(|w| w == b"hunter2"));
}

/// A stub server that closes its connections and stops when completion request number `n` comes.
fn dying_at(n: usize) -> Stub {
    let own = Arc::new(OnceLock::<Arc<AtomicBool>>::new());
    let switch = own.clone();
    let server = stub(move |r| {
        if r.nth >= n {
            switch.get().expect("set below").store(true, Ordering::Relaxed);
            return Reply::Close;
        }
        speculating(r).reply(r)
    });
    own.set(server.switch()).expect("once");
    server
}

pub fn observed(place: &Place) -> Value {
    serde_json::from_slice(&std::fs::read(place.path("out/observed.json")).unwrap()).unwrap()
}

fn recordings(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path("out/recordings")).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_run_continues_after_its_server_died() {
    let place = Place::holding(EXPERIMENT);
    let longer = ["--set", "workload.requests=40"];
    let server = dying_at(8);
    let out = observe(&place, &server.url("127.0.0.1"), &longer);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(stderr(&out).contains("the server does not answer any more"), "{}", stderr(&out));
    assert!(observed(&place)["cells"][0]["ended"].as_str().unwrap().starts_with("the server was lost"));
    let answered = observed(&place)["cells"][0]["answered"].as_u64().unwrap();
    assert!((6..8).contains(&answered), "those before its end are kept: {answered}");
    let healthy = stub(|r| speculating(r).reply(r));
    let again = [&longer[..], &["--resume"]].concat();
    let out = observe(&place, &healthy.url("127.0.0.1"), &again);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!(observed(&place)["cells"][0]["ended"], "done");
    assert_eq!(observed(&place)["cells"][0]["answered"], 40);
    assert_eq!(recordings(&place), ["v0-s0.obs", "v0-s0.part1.obs"], "the part is not overwritten");
    let out = place.foretoken().args(["calibrate", "out", "-o", "cal"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("calibrated on 1 observed runs"), "a part is no run: {said}");
    let out = observe(&place, &healthy.url("127.0.0.1"), &again);
    assert!(out.status.success() && stderr(&out).contains("(complete)"), "{}", stderr(&out));
}

#[test]
fn an_answer_beyond_the_timeout_is_abandoned() {
    let place = Place::holding(EXPERIMENT);
    let server = stub(|r| match r.nth {
        4 => Completion { first: Duration::from_secs(30), ..speculating(r) }.reply(r),
        _ => speculating(r).reply(r),
    });
    let out = observe(&place, &server.url("127.0.0.1"), &["--set", "observe.timeout_s=0.3"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stderr(&out).contains("1 of 10 requests took too long: no end after 0.3 s"), "{}", stderr(&out));
}

#[test]
fn requests_in_flight_keep_to_the_limit() {
    let place = Place::holding(EXPERIMENT);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inside, peak) = (now.clone(), most.clone());
    let server = stub(move |r| {
        peak.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(30));
        inside.fetch_sub(1, Ordering::SeqCst);
        speculating(r).reply(r)
    });
    let sets = ["--set", "workload.arrivals={ poisson = { rate = 1000.0 } }", "--set", "observe.max_in_flight=3"];
    let out = observe(&place, &server.url("127.0.0.1"), &sets);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert!(stderr(&out).contains("requests were sent late"), "waiting for a place is being late: {}", stderr(&out));
}

/// Observes a slow server, and sends `signal` to the program when it has recorded answers. Returns the folder, the exit
/// code and stderr.
fn ended_by(signal: &str) -> (Place, Option<i32>, String) {
    let place = Place::holding(EXPERIMENT);
    let server = stub(|r| Completion { gap: Duration::from_millis(200), ..speculating(r) }.reply(r));
    let sets = ["--set", "workload.requests=200"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
    command.args(["observe", &server.url("127.0.0.1"), "x.toml", "-o", "out"]).args(sets).current_dir(place.path("."));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let recording = place.path("out/recordings/v0-s0.obs");
    let some = |bytes: u64| std::fs::metadata(&recording).is_ok_and(|m| m.len() > bytes);
    while !some(0) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let head = std::fs::metadata(&recording).unwrap().len();
    while !some(head + 300) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    (place, out.status.code(), stderr(&out))
}

#[test]
fn an_interrupted_observation_keeps_its_recording() {
    let (place, exit, said) = ended_by("-INT");
    assert_eq!(exit, Some(130), "{said}");
    assert!(said.contains("what was observed is kept"), "{said}");
    assert_eq!(observed(&place)["cells"][0]["ended"], "interrupted");
    let answered = observed(&place)["cells"][0]["answered"].as_u64().unwrap();
    assert!(answered > 0 && answered < 200, "{answered}");
    let out = place.foretoken().args(["report", "out"]).output().unwrap();
    assert!(out.status.success(), "{}", stderr(&out));
}

#[test]
fn a_killed_observation_keeps_its_recording() {
    let (place, exit, _) = ended_by("-KILL");
    assert_eq!(exit, None);
    let out = place.foretoken().args(["calibrate", "out", "-o", "cal"]).output().unwrap();
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stderr(&out).contains("the recording breaks off"), "{}", stderr(&out));
    let server = stub(|r| speculating(r).reply(r));
    let out = observe(&place, &server.url("127.0.0.1"), &["--set", "workload.requests=200", "--resume"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!(observed(&place)["cells"][0]["answered"], 200);
    assert_eq!(recordings(&place), ["v0-s0.obs", "v0-s0.part1.obs"]);
}

/// If a run has no step log of the server, `calibrate` still finds the acceptance and the requests. It finds no costs,
/// so it writes no profile.
#[test]
fn without_a_step_log_acceptance_and_requests_are_calibrated() {
    let place = Place::holding(EXPERIMENT);
    let server = stub(|r| speculating(r).reply(r));
    let out = observe(&place, &server.url("127.0.0.1"), &[]);
    assert!(out.status.success(), "{}", stderr(&out));
    let out = place.foretoken().args(["calibrate", "out", "-o", "cal"]).output().unwrap();
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stderr(&out).contains("nothing tells what steps take"), "{}", stderr(&out));
    assert!(String::from_utf8_lossy(&out.stdout).contains("accepted, if reached"), "{out:?}");
    assert!(place.path("cal/acceptance.truth").exists() && place.path("cal/calibration.html").exists());
    assert!(!place.path("cal/profile.toml").exists());
    // The file by-category.toml has the acceptance of each category, as settings of an experiment.
    let law = std::fs::read_to_string(place.path("cal/by-category.toml")).unwrap();
    let law: toml::Value = toml::from_str(&law).unwrap();
    assert!(
        law["acceptance"]["source"]["by-category"]["categories"].as_table().is_some_and(|t| !t.is_empty()),
        "{law}"
    );
    let trace = std::fs::read_to_string(place.path("cal/traces/00-out.csv")).unwrap();
    assert_eq!((trace.lines().count(), trace.lines().next()), (11, Some("t_s,input_tokens,output_tokens,category")));
    let out = place.foretoken().args(["validate", "--calibrated", "cal", "--observed", "out"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    assert!(stderr(&out).contains("the calibration has no costs"), "{}", stderr(&out));
    let out = place.foretoken().args(["calibrate", "out", "-o", "cal"]).output().unwrap();
    assert!(out.status.code() == Some(2) && stderr(&out).contains("holds a calibration"), "{}", stderr(&out));
}

#[test]
fn calibrations_without_enough_data_are_refused_with_a_reason() {
    let place = Place::holding(EXPERIMENT);
    std::fs::write(place.path("x.json"), "{\"hello\": 1}").unwrap();
    std::fs::create_dir(place.path("empty")).unwrap();
    for (args, said) in [
        (["calibrate", "none", "-o", "cal"], "no such file or folder"),
        (["calibrate", "empty", "-o", "cal"], "it holds no recordings"),
        (["calibrate", "x.json", "-o", "cal"], "x.json"),
    ] {
        let out = place.foretoken().args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
        assert!(stderr(&out).contains(said), "{}", stderr(&out));
        assert!(!place.path("cal").exists());
    }
}

/// Each value of a sweep is a separate run on the same server. An interrupted sweep can be resumed. No prompt is sent
/// twice, neither by the warm-ups nor by another run, because a server may keep the KV of earlier prompts.
#[test]
fn loads_are_swept_and_resumed() {
    let place = Place::holding(EXPERIMENT);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = asked.clone();
    let server = stub(move |r| {
        kept.lock().unwrap().push(r.body["prompt"].to_string());
        speculating(r).reply(r)
    });
    // Texts of twelve bytes would be equal by chance.
    let long = "workload.lengths={ fixed = { prompt = 64, output = 8 } }";
    let sets = ["--set", "workload.arrivals.closed-loop={ sweep = [1, 2] }", "--set", long];
    let out = observe(&place, &server.url("127.0.0.1"), &sets);
    assert!(out.status.success(), "{}", stderr(&out));
    let mut prompts = asked.lock().unwrap().clone();
    assert_eq!(prompts.len(), 2 * (10 + 1));
    prompts.sort();
    prompts.dedup();
    assert_eq!(prompts.len(), 2 * (10 + 1), "every prompt is new to the server");
    assert!(place.path("out/recordings/v1-s0.obs").exists());
    let variants = summary(&place)["variants"].as_array().map(Vec::len);
    assert_eq!(variants, Some(2));
}

/// The share of the prompts that the server had in its cache is a number of the run, and is named.
#[test]
fn cached_prompts_are_counted() {
    let place = Place::holding(EXPERIMENT);
    // Of ten prompts of 12 tokens, every second prompt has 9 tokens in the cache. vLLM leaves out a count of 0.
    let server = stub(|r| {
        let Reply::Events(mut events) = speculating(r).reply(r) else { panic!("a completion is a stream of events") };
        let usage = events.len() - 2;
        if r.nth % 2 == 1 {
            let mut last: Value = serde_json::from_str(&events[usage].1).unwrap();
            last["usage"]["prompt_tokens_details"] = json!({ "cached_tokens": 9 });
            events[usage].1 = last.to_string();
        }
        Reply::Events(events)
    });
    let out = observe(&place, &server.url("127.0.0.1"), &[]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!(observed(&place)["cells"][0]["cached_prompt_share"], 5.0 * 9.0 / (10.0 * 12.0));
    let said = "38 % of prompt tokens were found in a warm prefix cache (usage.prompt_tokens_details.cached_tokens)";
    assert!(stderr(&out).contains(said), "{}", stderr(&out));
    let none = Place::holding(EXPERIMENT);
    let out = observe(&none, &stub(|r| speculating(r).reply(r)).url("127.0.0.1"), &[]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!(observed(&none)["cells"][0]["cached_prompt_share"], Value::Null);
}
