//! Ctrl-C ends `foretoken observe` wherever it waits. One signal is enough, and the exit code is 130.

use crate::observe::{EXPERIMENT, speculating, stderr};
use crate::support::Place;
use foretoken_tests::stub::{Completion, Reply, Request, Stub, aside};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Says = Box<dyn Fn(&Request, &AtomicBool) -> Reply + Send + Sync>;

/// Without Ctrl-C, each wait in these tests would last at least this long. So a program that ends sooner has obeyed
/// Ctrl-C.
const NEVER: Duration = Duration::from_secs(30);

/// Runs `foretoken observe` on a stub server, and interrupts it when it waits. The function `says` answers the
/// requests, and sets a flag when `observe` is about to wait. Returns the folder, the exit code and stderr.
fn interrupted(says: Says, more: &[&str]) -> (Place, Option<i32>, String) {
    let place = Place::holding(EXPERIMENT);
    let waits = Arc::new(AtomicBool::new(false));
    let flag = waits.clone();
    let server = Stub::start(move |r| says(r, &flag));
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
    command.args(["observe", &server.url("127.0.0.1"), "x.toml", "-o", "out"]).args(more).current_dir(place.path("."));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while !waits.load(Ordering::Relaxed) {
        assert!(begun.elapsed() < NEVER, "the server was not asked");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Gives the client time to start waiting.
    std::thread::sleep(Duration::from_millis(200));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let asked = Instant::now();
    let status: Option<ExitStatus> = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if asked.elapsed() > NEVER / 2 => break None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    if status.is_none() {
        child.kill().unwrap();
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (place, status.and_then(|s| s.code()), said)
}

/// The answers of a stub server: `path` gets `reply`, which also sets the flag that `observe` is about to wait.
/// Completions get `reply` from request number `nth` on. All other requests get the usual answers.
fn but(path: &'static str, nth: usize, reply: Reply) -> Says {
    Box::new(move |r, waits| {
        if r.path == path && (path != "/v1/completions" || r.nth >= nth) {
            waits.store(true, Ordering::Relaxed);
            return reply.clone();
        }
        aside(r, "").unwrap_or_else(|| speculating(r).reply(r))
    })
}

#[test]
fn one_signal_ends_observe_wherever_it_waits() {
    let busy = Reply::Text(503, vec!["retry-after: 60".into()], "{}".into());
    let slow = |event: &str| Reply::Events(vec![(Duration::ZERO, event.to_owned()), (NEVER, "[DONE]".to_owned())]);
    let cases: [(&str, Says, &[&str]); 7] = [
        ("the list of models", but("/v1/models", 0, Reply::Silent), &[]),
        ("the version", but("/version", 0, Reply::Silent), &[]),
        ("the metrics before the run", but("/metrics", 0, Reply::Silent), &[]),
        ("the first answer while warming up", but("/v1/completions", 0, Reply::Silent), &[]),
        ("an answer's head", but("/v1/completions", 1, Reply::Silent), &[]),
        ("an answer's end", but("/v1/completions", 1, slow("{\"choices\":[{\"text\":\"a\"}]}")), &[]),
        ("another try", but("/v1/completions", 1, busy), &["--set", "observe.retries=3"]),
    ];
    for (waits_for, says, more) in cases {
        let (_place, exit, said) = interrupted(says, more);
        assert_eq!(exit, Some(130), "it waits for {waits_for}: {said}");
        assert!(said.contains("interrupted"), "{waits_for}: {said}");
    }
}

#[test]
fn an_interrupt_before_the_first_request_leaves_no_files() {
    let (place, exit, said) = interrupted(but("/v1/models", 0, Reply::Silent), &[]);
    assert_eq!(exit, Some(130), "{said}");
    assert!(said.contains("interrupted before the first request was sent"), "{said}");
    assert!(!place.path("out").exists());
}

#[test]
fn requests_in_flight_are_kept_as_abandoned() {
    let silent = but("/v1/completions", 5, Reply::Silent);
    let (place, exit, said) = interrupted(silent, &["--set", "observe.warm_up_requests=0"]);
    assert_eq!(exit, Some(130), "{said}");
    assert!(said.contains("2 of 7 requests were abandoned: the run was ended"), "{said}");
    let out = place.foretoken().args(["report", "out"]).output().unwrap();
    assert!(out.status.success(), "{}", stderr(&out));
}

/// The open loop waits, because the largest allowed number of requests is in flight and no request ends. The signal
/// must end this wait, too.
#[test]
fn an_open_loop_ends_while_it_waits_for_a_place() {
    let says = but("/v1/completions", 1, Completion { first: NEVER, ..of_one() }.reply(&nothing()));
    let sets = ["--set", "workload.arrivals={ poisson = { rate = 1000.0 } }", "--set", "observe.max_in_flight=2"];
    let (_place, exit, said) = interrupted(says, &sets);
    assert_eq!(exit, Some(130), "{said}");
}

fn nothing() -> Request {
    Request { path: String::new(), headers: vec![], body: serde_json::json!({ "max_tokens": 8 }), nth: 0 }
}

fn of_one() -> Completion {
    Completion::of(&nothing())
}
