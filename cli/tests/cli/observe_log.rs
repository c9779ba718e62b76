//! `foretoken observe` with faulty step logs: the log of another server, a log with each step twice, an empty log, and
//! a log with impossible steps.

use crate::observe::{EXPERIMENT, observe, stderr, stub};
use crate::support::Place;
use foretoken_tests::stub::{Completion, Stub};
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The experiment for a server that drafts nothing and whose steps have at most two requests.
fn plain() -> String {
    EXPERIMENT.replace("{ fixed = { k = 3 } }", "{ autoregressive = {} }")
}

/// A log line of a step that ends now. The step has a prompt of 12 tokens if `prompt` is true, and one token for each
/// of `decodes` requests.
fn line(step: u64, prompt: bool, decodes: u64, elapsed: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let (prompts, tokens) = if prompt { (1, 12) } else { (0, 0) };
    format!(
        "{now:.6} INFO x Engine 000: Iteration({step}): {prompts} context requests, {tokens} context tokens, \
         {decodes} generation requests, {decodes} generation tokens, iteration elapsed time: {elapsed} ms, \
         CPU KV cache usage: 0.1%\n"
    )
}

/// A server that appends eight lines to its log for each request. `log` makes the line from the step's number.
fn logging(place: &Place, log: impl Fn(u64) -> String + Send + Sync + 'static) -> Stub {
    let file = std::fs::File::options().create(true).append(true).open(place.path("server.log")).unwrap();
    let state = Mutex::new((file, 0u64));
    stub(move |r| {
        let mut state = state.lock().unwrap();
        let text: String = (0..8).map(|i| log(state.1 + i)).collect();
        state.1 += 8;
        state.0.write_all(text.as_bytes()).unwrap();
        Completion { gap: Duration::from_millis(1), ..Completion::of(r) }.reply(r)
    })
}

fn usual(step: u64) -> String {
    line(step, step.is_multiple_of(8), u64::from(!step.is_multiple_of(8)), "0.10")
}

#[test]
fn faults_of_a_step_log_are_reported_at_the_end() {
    type Log = Box<dyn Fn(u64) -> String + Send + Sync>;
    let cases: [(&str, Log, &str); 8] = [
        ("nothing", Box::new(|_| String::new()), "nothing was written to the step log server.log during the run"),
        (
            "other lines",
            Box::new(|_| "INFO hello\n".into()),
            "and none of them is of a step: vLLM writes a line a step",
        ),
        ("each step twice", Box::new(|n| usual(n).repeat(2)), "the step log has each step several times"),
        (
            "64 requests a step",
            Box::new(|n| line(n, n.is_multiple_of(8), 64, "0.10")),
            "have more requests than were in flight (",
        ),
        (
            "another server's clock",
            Box::new(|n| usual(n).replacen("17", "19", 1)),
            "10 of 10 answered requests have no step in the log while they ran",
        ),
        (
            "u64::MAX tokens",
            Box::new(|n| usual(n).replace("1 generation tokens", "18446744073709551615 generation tokens")),
            "not believed: a step of 18446744073709551615 generation tokens, where 33 are the most",
        ),
        (
            "elapsed of 1e300 ms",
            Box::new(|n| if n % 8 == 3 { line(n, false, 1, "1e300") } else { usual(n) }),
            "not believed: a step of 1e297 s elapsed time",
        ),
        (
            "elapsed of a day",
            Box::new(|n| if n % 8 == 3 { line(n, false, 1, "86400000") } else { usual(n) }),
            "not believed: a step of 8.64e4 s began before the run did",
        ),
    ];
    for (what, log, said) in cases {
        let place = Place::holding(&plain());
        let server = logging(&place, log);
        let out = observe(&place, &server.url("127.0.0.1"), &["--step-log", "server.log"]);
        assert!(out.status.success() && stderr(&out).contains(said), "{what}: {said}: {}", stderr(&out));
        // If `calibrate` writes an experiment for this recording, the experiment must run. Otherwise `calibrate` must
        // have refused the recording.
        let out = place.foretoken().args(["calibrate", "out", "-o", "cal"]).output().unwrap();
        assert!(matches!(out.status.code(), Some(0 | 2 | 3)), "{what}: {}", stderr(&out));
        if place.path("cal/experiment.toml").exists() {
            let out = place.foretoken().args(["run", "cal/experiment.toml", "-o", "again"]).output().unwrap();
            assert!(out.status.success(), "{what}: {}", stderr(&out));
        }
    }
}

#[test]
fn a_sound_step_log_gives_no_warning() {
    let place = Place::holding(&plain());
    let server = logging(&place, usual);
    let out = observe(&place, &server.url("127.0.0.1"), &["--step-log", "server.log"]);
    assert!(out.status.success(), "{}", stderr(&out));
    for said in ["step log", "the log", "the experiment says that"] {
        assert!(!stderr(&out).contains(said), "{said}: {}", stderr(&out));
    }
}

#[test]
fn a_log_that_grows_without_end_is_read_up_to_a_limit() {
    let place = Place::holding(&plain());
    // The server writes its log without line ends. The reader must not keep the whole log in memory.
    let server = logging(&place, |_| "x".repeat(1 << 20));
    let out = observe(&place, &server.url("127.0.0.1"), &["--step-log", "server.log"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stderr(&out).contains("nothing was written to the step log"), "{}", stderr(&out));
    let size = std::fs::metadata(place.path("out/recordings/v0-s0.obs")).unwrap().len();
    assert!(size < 1 << 20, "{size}");
}
