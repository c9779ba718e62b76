//! `foretoken observe` compares the server's behaviour with what the experiment states about the server.

use crate::observe::{EXPERIMENT, observe, observed, speculating, stderr};
use crate::support::Place;
use foretoken_tests::stub::{Completion, Reply, Request, Stub, aside};
use serde_json::json;

/// The answer of a server with draft length `k` to a request for 8 tokens.
fn drafting(r: &Request, k: u32) -> Completion {
    let rounds = json!({ "per_step_drafted": [k, k], "per_step_accepted": [3, 2] });
    Completion { metrics: Some(json!({ "speculative_decoding": rounds })), ..speculating(r) }
}

#[test]
fn a_server_that_contradicts_the_experiment_is_reported() {
    type Says = fn(&Request) -> Reply;
    const VLLM: &str = "vllm:num_preemptions_total 0.0\n";
    let five: Says = |r| aside(r, VLLM).unwrap_or_else(|| drafting(r, 5).reply(r));
    let three: Says = |r| aside(r, VLLM).unwrap_or_else(|| drafting(r, 3).reply(r));
    let none: Says = |r| aside(r, VLLM).unwrap_or_else(|| Completion::of(r).reply(r));
    let silent: Says = |r| aside(r, "").unwrap_or_else(|| Completion::of(r).reply(r));
    let autoregressive = ["--set", "policies=[{ autoregressive = {} }]"];
    for (says, more, said) in [
        (five, &[][..], "the experiment says that the server runs fixed-3, and it drafted 5 tokens a round"),
        (none, &[], "the experiment says that the server runs fixed-3, and it drafted nothing"),
        (silent, &[], "the server runs fixed-3, and nothing that the server says shows drafts"),
        (three, &autoregressive, "the server runs autoregressive, and it drafted 3 tokens a round"),
    ] {
        let place = Place::holding(EXPERIMENT);
        let out = observe(&place, &Stub::start(says).url("127.0.0.1"), more);
        assert!(out.status.success() && stderr(&out).contains(said), "{said}: {}", stderr(&out));
        let findings = observed(&place)["cells"][0]["findings"].to_string();
        assert!(findings.contains(said), "{findings}");
        let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
        assert!(page.contains(said), "the page says it, too");
    }
    for (says, more) in [(three, &[][..]), (none, &autoregressive), (silent, &autoregressive)] {
        let place = Place::holding(EXPERIMENT);
        let out = observe(&place, &Stub::start(says).url("127.0.0.1"), more);
        assert!(!stderr(&out).contains("the experiment says that the server runs"), "{}", stderr(&out));
    }
}

/// A server that reports this version.
fn of_version(version: &'static str) -> Stub {
    Stub::start(move |r| match r.path.as_str() {
        "/version" => Reply::Text(200, vec![], json!({ "version": version }).to_string()),
        _ => aside(r, "").unwrap_or_else(|| speculating(r).reply(r)),
    })
}

#[test]
fn a_release_other_than_the_experiments_is_reported() {
    let stated = ["--set", "engine.version=vllm-0.32"];
    for (version, said) in [
        ("0.33.0", "the experiment says engine.version = \"vllm-0.32\", and the server says that it is 0.33.0"),
        ("0.41.2", "version 0.41.2, whose rules Foretoken does not know (it knows 0.6, 0.32 and 0.33)"),
    ] {
        let place = Place::holding(EXPERIMENT);
        let out = observe(&place, &of_version(version).url("127.0.0.1"), &stated);
        assert!(out.status.success() && stderr(&out).contains(said), "{said}: {}", stderr(&out));
        assert!(observed(&place)["cells"][0]["findings"][0].is_string());
    }
    let place = Place::holding(EXPERIMENT);
    let out = observe(&place, &of_version("0.32.1").url("127.0.0.1"), &stated);
    assert!(out.status.success() && !stderr(&out).contains("engine.version"), "{}", stderr(&out));
}

#[test]
fn contradicting_usage_and_doubled_events_are_reported() {
    type Says = fn(&Request) -> Reply;
    let twice: Says = |r| {
        let Reply::Events(events) = speculating(r).reply(r) else { panic!("a stream of events") };
        let twice = |e: (_, String)| if e.1.contains("token_ids") { vec![e.clone(), e] } else { vec![e] };
        Reply::Events(events.into_iter().flat_map(twice).collect())
    };
    let other: Says = |r| {
        let Reply::Events(mut events) = speculating(r).reply(r) else { panic!("a stream of events") };
        let halve_usage = |e: &mut (_, String)| e.1 = e.1.replace("\"completion_tokens\":8", "\"completion_tokens\":5");
        events.iter_mut().for_each(halve_usage);
        Reply::Events(events)
    };
    let without: Says = |r| {
        let Reply::Events(events) = Completion { ids: false, ..speculating(r) }.reply(r) else { panic!("events") };
        let mut so_far = [1, 5, 8].into_iter();
        let with_usage = |(wait, data): (_, String)| match data.contains("\"text\":") {
            true => {
                let usage = json!({ "prompt_tokens": 12, "completion_tokens": so_far.next() });
                (wait, data.replacen('{', &format!("{{\"usage\":{usage},"), 1))
            }
            false => (wait, data),
        };
        Reply::Events(events.into_iter().map(with_usage).collect())
    };
    for (says, said) in [
        (
            twice,
            &[
                "(16 came, usage says 8): the tokens that came are used",
                "(16 for 8): does something send every event twice?",
            ][..],
        ),
        (other, &["the usage of 10 answers disagrees with the tokens that came (8 came, usage says 5)"]),
        (without, &["10 answers came without token ids: their tokens are counted by their usage"]),
    ] {
        let place = Place::holding(EXPERIMENT);
        let server = Stub::start(move |r| aside(r, "").unwrap_or_else(|| says(r)));
        let out = observe(&place, &server.url("127.0.0.1"), &[]);
        assert!(out.status.success(), "{}", stderr(&out));
        said.iter().for_each(|said| assert!(stderr(&out).contains(said), "{said}: {}", stderr(&out)));
    }
}
