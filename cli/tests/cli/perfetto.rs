//! Timelines that `export perfetto` writes must be valid trace events, and must agree with the tables of the run.

use crate::support::{EXPERIMENT, Place};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

fn ran() -> Place {
    let place = Place::new();
    place.run_drawn("out", &["--no-figures"]);
    place
}

/// Exports the timeline of a cell (one run of one policy) with the arguments `more`. Returns the timeline and the
/// messages on stderr.
fn export(place: &Place, more: &[&str]) -> (Value, String) {
    let output = place.foretoken().args(["export", "perfetto", "out"]).args(more).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    (serde_json::from_slice(&output.stdout).unwrap(), stderr)
}

/// The value of an event's field in picoseconds, without rounding.
fn ps(event: &Value, field: &str) -> i128 {
    let micros = event[field].as_f64().unwrap_or_else(|| panic!("no {field} in {event}"));
    (micros * 1e6).round() as i128
}

fn events(trace: &Value) -> &Vec<Value> {
    trace["traceEvents"].as_array().unwrap()
}

fn named<'a>(trace: &'a Value, phase: &'a str, name: &'a str) -> impl Iterator<Item = &'a Value> {
    events(trace).iter().filter(move |e| e["ph"] == phase && e["name"] == name)
}

/// Checks the format of a trace. Events have known phases with their fields, spans are nested, and time increases on
/// each track.
fn check(trace: &Value) {
    assert!(!events(trace).is_empty());
    let mut open: BTreeMap<(u64, u64), Vec<(i128, i128)>> = BTreeMap::new();
    let mut counted: BTreeMap<(u64, String), i128> = BTreeMap::new();
    for event in events(trace) {
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let at = ps(event, "ts");
        assert!(at >= 0, "{event}");
        match event["ph"].as_str().unwrap() {
            "X" => {
                let end = at + ps(event, "dur");
                assert!(end >= at, "a negative duration: {event}");
                let stack = open.entry(track).or_default();
                assert!(stack.first().is_none_or(|&(first, _)| at >= first), "time goes back: {event}");
                // Spans that have ended are removed from the stack. The lowest entry stays, because a later span must
                // not begin before this entry.
                while stack.last().is_some_and(|&(_, until)| until <= at && stack.len() > 1) {
                    stack.pop();
                }
                if let Some(&(from, until)) = stack.last()
                    && at < until
                {
                    assert!(from <= at && end <= until, "it reaches beyond its parent: {event}");
                } else {
                    stack.clear();
                }
                stack.push((at, end));
            }
            "C" => {
                let last = counted.insert((track.0, event["name"].to_string()), at);
                assert!(last.is_none_or(|last| last <= at), "a counter goes back: {event}");
                let values = event["args"].as_object().unwrap();
                assert!(!values.is_empty() && values.values().all(Value::is_number), "{event}");
            }
            "M" => assert!(event["args"]["name"].is_string() || event["args"]["sort_index"].is_u64(), "{event}"),
            "i" => assert_eq!(event["s"], "t", "{event}"),
            "s" | "t" | "f" => assert!(event["id"].is_u64() && event["cat"] == "request", "{event}"),
            other => panic!("phase {other}"),
        }
    }
    check_arrows(trace);
}

/// Checks the arrows of a trace. Each arrow starts once and then ends once, and both ends lie in spans of their tracks.
fn check_arrows(trace: &Value) {
    let mut spans: BTreeMap<(u64, u64), Vec<(i128, i128)>> = BTreeMap::new();
    let track = |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    for span in events(trace).iter().filter(|e| e["ph"] == "X") {
        spans.entry(track(span)).or_default().push((ps(span, "ts"), ps(span, "ts") + ps(span, "dur")));
    }
    let mut arrows: BTreeMap<u64, Vec<(&str, i128)>> = BTreeMap::new();
    for end in events(trace).iter().filter(|e| e["cat"] == "request") {
        let at = ps(end, "ts");
        let covered = spans[&track(end)].iter().any(|&(from, to)| from <= at && at < to);
        assert!(covered, "an arrow's end in no span: {end}");
        arrows.entry(end["id"].as_u64().unwrap()).or_default().push((end["ph"].as_str().unwrap(), at));
    }
    for (id, ends) in arrows {
        let phases: String = ends.iter().map(|end| end.0).collect();
        assert!(phases == "sf" || phases == "stf", "arrow {id}: {phases}");
        assert!(ends.is_sorted_by_key(|end| end.1), "arrow {id} goes back: {ends:?}");
    }
}

#[test]
fn a_timeline_is_valid_and_has_everything() {
    // The engine runs few requests at a time, so that some requests wait.
    let place = Place::holding(&EXPERIMENT.replace("[8, 64]", "[3, 64]"));
    place.run_drawn("out", &["--no-figures", "--set", "engine.draft_at=\"step-start\""]);
    let (trace, said) = export(&place, &["--policy", "fixed-3", "--seed", "2"]);
    check(&trace);
    assert_eq!(said, "timeline of fixed-3, engine.max_num_seqs = 3, seed 2 (others: --policy, --seed, --sweep)\n");
    let about = &trace["otherData"];
    assert_eq!((about["cut"].as_str(), about["source"].as_str()), (Some("nothing"), Some("simulated")));
    for name in ["step", "draft", "verify", "prefill", "queued", "decode"] {
        assert!(named(&trace, "X", name).count() > 0, "{name} is missing");
    }
    for name in ["running", "waiting", "free KV blocks", "draft length", "acceptance"] {
        assert!(named(&trace, "C", name).count() > 0, "{name} is missing");
    }
    let requests = events(&trace).iter().filter(|e| e["name"].as_str().unwrap().starts_with("request ")).count();
    assert_eq!(requests, 200);
    // The spans of model passes fill the whole time of their steps.
    let total = |name: &str| -> i128 {
        let mine = named(&trace, "X", name).filter(|e| e["pid"] == 1 && e["tid"] == 1);
        mine.map(|e| ps(e, "dur")).sum()
    };
    assert_eq!(total("step"), total("draft") + total("verify") + total("decode") + total("prefill"));
    // Every token was emitted in some step: 200 requests with 64 tokens each.
    let emitted: u64 =
        events(&trace).iter().filter_map(|e| e["args"]["emitted"].as_u64().filter(|_| e["pid"] == 1)).sum();
    assert_eq!(emitted, 200 * 64);
}

/// If tokens are drafted at the end of a step, the timeline has a bar of its own for drafting. On runner V2 this bar
/// lies after the step's bar, because the host gets the step's tokens before drafting. On V1 it lies within the step's
/// bar, because the host gets the tokens after drafting.
#[test]
fn drafts_behind_a_step_have_a_row_of_their_own() {
    for (runner, overlaps) in [("v2", true), ("v1", false)] {
        let place = Place::holding(EXPERIMENT);
        let runner = format!("engine.runner=\"{runner}\"");
        place.run_drawn("out", &["--no-figures", "--set", &runner, "--set", "engine.async_scheduling=false"]);
        let (trace, _) = export(&place, &["--policy", "fixed-3", "--seed", "2"]);
        check(&trace);
        let row = |name: &str| -> Vec<(i128, i128)> {
            let mine = named(&trace, "X", name).filter(|e| e["pid"] == 1 && e["tid"] != 2);
            mine.map(|e| (ps(e, "ts"), ps(e, "ts") + ps(e, "dur"))).collect()
        };
        let (steps, drafts) = (row("step"), row("draft"));
        assert!(!drafts.is_empty());
        for draft in drafts {
            let within = steps.iter().any(|step| step.0 <= draft.0 && draft.1 <= step.1);
            let behind = steps.iter().any(|step| step.1 == draft.0);
            assert!(if overlaps { behind } else { within && !behind }, "{draft:?}");
        }
    }
}

#[test]
fn a_window_cuts_and_says_so() {
    let place = ran();
    let (trace, said) = export(&place, &["--policy", "fixed-3", "--from", "10", "--to", "12.5"]);
    check(&trace);
    let steps: Vec<i128> = named(&trace, "X", "step").map(|e| ps(e, "ts")).collect();
    assert!(!steps.is_empty() && steps.iter().all(|&at| (10_000_000_000_000..12_500_000_000_000).contains(&at)));
    assert!(said.contains("cut: shows") && said.contains("of a run of"), "{said}");
    assert!(said.contains(trace["otherData"]["cut"].as_str().unwrap()));
    let whole = export(&place, &["--policy", "fixed-3"]).0;
    assert!(events(&trace).len() < events(&whole).len() / 2);
    // A request that arrived before the window is drawn only from the start of the window on. So no event begins before
    // the window.
    assert!(events(&trace).iter().filter(|e| e["ph"] == "X").all(|e| ps(e, "ts") >= 10_000_000_000_000));
}

#[test]
fn files_are_written_whole_and_packed_when_their_name_says_so() {
    let place = ran();
    for name in ["t.json", "t.json.gz"] {
        let output = place.foretoken().args(["export", "perfetto", "out", "-o", name]).output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty());
        assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("{name}: open it at")));
    }
    let plain = std::fs::read(place.path("t.json")).unwrap();
    let mut unpacked = Vec::new();
    GzDecoder::new(std::fs::File::open(place.path("t.json.gz")).unwrap()).read_to_end(&mut unpacked).unwrap();
    assert_eq!(plain, unpacked);
    check(&serde_json::from_slice(&plain).unwrap());
}

#[test]
fn timelines_that_cannot_be_made_are_refused_with_a_reason() {
    let place = Place::holding(&EXPERIMENT.replace("steps = true", "steps = false"));
    place.run_drawn("out", &["--no-figures"]);
    let fails = |more: &[&str]| {
        let args: Vec<&str> = ["export", "perfetto"].iter().chain(more).copied().collect();
        place.fails(&args, 2)
    };
    assert!(fails(&["out"]).contains("--set output.steps=true"));
    assert!(fails(&["."]).contains("is no results folder"));
    assert!(fails(&["nowhere"]).contains("nowhere does not exist"));
    assert!(fails(&["out", "--from", "3", "--to", "2"]).contains("is not after"));
    assert!(fails(&["out", "--from", "NaN"]).contains("is not an instant"));
    place.edit_manifest("out", |manifest| manifest["complete"] = false.into());
    assert!(fails(&["out"]).contains("is not complete"));

    let place = ran();
    let fails = |more: &[&str]| {
        let args: Vec<&str> = ["export", "perfetto", "out"].iter().chain(more).copied().collect();
        place.fails(&args, 2)
    };
    assert!(fails(&["--policy", "adaspek"]).contains("did you mean `adaspec`?"));
    assert!(fails(&["--seed", "7"]).contains("no seed `7`"));
    assert!(fails(&["--from", "1e6"]).contains("no step of"));
    std::fs::write(place.path("out/steps.parquet"), "broken").unwrap();
    assert!(fails(&[]).contains("out is damaged or was changed: steps.parquet (blake3 "));
    std::fs::remove_file(place.path("out/steps.parquet")).unwrap();
    assert!(fails(&[]).contains("out: steps.parquet is missing, and the manifest lists it"));
}

/// The names of the processes in the timeline.
fn processes(trace: &Value) -> Vec<&str> {
    named(trace, "M", "process_name").map(|e| e["args"]["name"].as_str().unwrap()).collect()
}

/// Runs the experiment on a fleet and exports the timeline of the policy that drafts 3 tokens.
fn of_fleet(sets: &[&str]) -> Value {
    let place = Place::holding(&EXPERIMENT.replace("[8, 64]", "[3, 64]"));
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    place.run_drawn("out", &["--no-figures"].into_iter().chain(sets).collect::<Vec<_>>());
    let (trace, _) = export(&place, &["--policy", "fixed-3", "--seed", "1"]);
    check(&trace);
    trace
}

/// Each replica is a process of the trace, with its own steps and counters. The router's events name the replica of
/// each request, and an arrow leads from the event to the request's first step there.
#[test]
fn a_fleet_has_a_process_for_each_replica() {
    let trace = of_fleet(&["fleet={ replicas = 3, router = \"round-robin\" }"]);
    let names = processes(&trace);
    assert_eq!(names[1..], ["replica 0", "replica 1", "replica 2", "requests"]);
    assert!(names[0].starts_with("router round-robin: fixed-3, "), "{names:?}");
    let emitted = |pid: u64| -> u64 {
        events(&trace).iter().filter(|e| e["pid"] == pid).filter_map(|e| e["args"]["emitted"].as_u64()).sum()
    };
    assert_eq!(emitted(10) + emitted(11) + emitted(12), 200 * 64);
    for pid in [10, 11, 12] {
        assert!(emitted(pid) > 60 * 64, "round-robin sends a third of the requests to each");
        assert!(named(&trace, "C", "waiting").any(|e| e["pid"] == pid), "the queue of each replica");
    }
    let sent: Vec<&Value> = events(&trace).iter().filter(|e| e["ph"] == "i" && e["pid"] == 3).collect();
    assert_eq!(sent.len(), 200);
    let arrows = || events(&trace).iter().filter(|e| e["ph"] == "f");
    assert_eq!(arrows().count(), 200);
    for arrow in arrows() {
        let decision = sent.iter().find(|e| e["args"]["request"] == arrow["id"]).unwrap();
        assert_eq!(arrow["pid"].as_u64().unwrap(), 10 + decision["args"]["replica"].as_u64().unwrap());
    }
}

#[test]
fn an_arrow_goes_over_the_prefill_replica() {
    let trace = of_fleet(&[
        "fleet.replicas=[{ count = 1, role = \"prefill\" }, { count = 2, role = \"decode\" }]",
        "fleet.link={ bandwidth_gb_s = 1.0, kv_bytes_token = 1e5, draft_kv_bytes_token = 4e3 }",
    ]);
    assert_eq!(processes(&trace)[1..], ["prefill 0", "decode 1", "decode 2", "requests"]);
    let count = |phase: &str, pid: u64| events(&trace).iter().filter(|e| e["ph"] == phase && e["pid"] == pid).count();
    assert_eq!(count("t", 10), 200, "each request runs on the prefill replica first");
    assert_eq!(count("f", 11) + count("f", 12), 200);
    assert_eq!(named(&trace, "X", "KV transfer").count(), 200);
}

#[test]
fn a_scaled_fleet_shows_lives_and_decisions() {
    let scaling = "scaling = { rule = { llm-d = {} }, max_replicas = 4, boot_s = 2.0, interval_s = 1.0 }";
    let trace = of_fleet(&[&format!("fleet={{ replicas = 1, {scaling} }}"), "engine.num_gpu_blocks=60"]);
    assert!(named(&trace, "X", "serves").count() > 1 && named(&trace, "X", "boots").count() > 0);
    assert!(named(&trace, "C", "replicas").count() > 1);
    let reasons = events(&trace).iter().filter(|e| e["args"]["reason"].is_string());
    assert!(reasons.count() > 0);
}
