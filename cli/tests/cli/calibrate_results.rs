//! `foretoken calibrate K=FILE…`: results of load generators, each given with its draft length.

use crate::support::Place;
use serde_json::Value;
use std::path::PathBuf;

/// A description of the server of the recorded results (experiments/serve.toml), with one seed and few requests.
const SERVER: &str = "\
name = 'server'
seeds = [1]
policies = [{ autoregressive = {} }]
hardware.target.roofline = { gpu = 'h100', model = 'llama-3.1-8b' }
hardware.draft.roofline = { gpu = 'h100', model = 'llama-3.2-1b' }
workload.arrivals.closed-loop = 1
workload.lengths.fixed = { prompt = 128, output = 48 }
workload.requests = 24
acceptance.source.constant.rate = 0.7
";

/// A folder with [`SERVER`] as `server.toml`, and `plain.json` and `drafts.json`: two runs each of `vllm bench serve`
/// against `foretoken serve`, with 1 and 4 clients.
fn place() -> Place {
    let place = Place::holding("");
    std::fs::write(place.path("server.toml"), SERVER).unwrap();
    for (name, fixture) in [("plain.json", "vllm-0.33-k0.jsonl"), ("drafts.json", "vllm-0.33-k3.jsonl")] {
        std::fs::copy(results(fixture), place.path(name)).unwrap();
    }
    place
}

/// The path of a recorded result file of a load generator.
fn results(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../servers/fixtures/results").join(name)
}

/// The error of `calibrate` with these files, on one line.
fn error(place: &Place, files: &[&str]) -> String {
    let all = [&["calibrate"][..], files, &["--experiment", "server.toml", "-o", "bad"]].concat();
    let error = place.fails(&all, 2);
    assert!(!place.path("bad/calibration.json").exists());
    error.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn two_files_make_a_calibration() {
    let place = place();
    let args = ["calibrate", "0=plain.json", "3=drafts.json", "--experiment", "server.toml", "-o", "cal"];
    let out = place.foretoken().args(args).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    // The times in the files were measured, so the verdict may be "trusted" or "not trusted" (exit code 3). This test
    // accepts both.
    assert!(matches!(out.status.code(), Some(0 | 3)), "{said}");
    assert!(said.contains("calibrated on 12 numbers of plain.json, drafts.json, K = 0, 3"), "{said}");
    assert!(said.contains("4 clients") && said.contains("TPOT"), "{said}");
    let found: Value =
        serde_json::from_str(&std::fs::read_to_string(place.path("cal/calibration.json")).unwrap()).unwrap();
    assert_eq!(found["draft_lengths"], serde_json::json!([0, 3]));
    let what: Vec<&str> = found["inputs"].as_array().unwrap().iter().map(|i| i["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["vllm bench serve (--save-result)"; 2]);
    assert_eq!(found["loads"][1]["runs"][1]["name"], "drafts.json, run 2", "{found}");
    let rate = found["acceptance"][0]["rate"].as_f64().unwrap();
    assert!((rate - 0.7).abs() < 0.1, "the server accepts with probability 0.7: {rate}");
    let out = place.foretoken().args(["run", "cal/experiment.toml", "-o", "out", "--no-figures"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_wrong_file_is_named() {
    let place = place();
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    let write = |name: &str, text: &str| std::fs::write(place.path(name), text).unwrap();
    let drafts = read("drafts.json");
    let first = drafts.lines().next().unwrap().to_owned();
    write("other.json", "{\"a\": 1}");
    let unknown = error(&place, &["0=plain.json", "3=other.json"]);
    for part in ["other.json: is of no known format", "vllm bench serve", "SGLang", "GuideLLM", "AIPerf", "GenAI-Perf"]
    {
        assert!(unknown.contains(part), "{part}: {unknown}");
    }
    let k = error(&place, &["x=plain.json"]);
    assert!(k.contains("x=plain.json: \"x\" is no draft length up to 32") && k.contains("0=plain.json"), "{k}");
    let bare = error(&place, &["0=plain.json", "drafts.json"]);
    assert!(bare.contains("drafts.json is given without its draft length") && bare.contains("3=drafts.json"), "{bare}");
    let gone = error(&place, &["0=gone.json"]);
    assert!(gone.contains("gone.json"), "{gone}");
    let twice = error(&place, &["0=plain.json", "3=drafts.json", "3=drafts.json"]);
    assert!(twice.contains("drafts.json, run 1: K = 3 at 1 client is in drafts.json, run 1 already"), "{twice}");
    std::fs::copy(results("vllm-0.33-failed.jsonl"), place.path("failed.json")).unwrap();
    let failed = error(&place, &["0=failed.json"]);
    assert!(failed.contains("failed.json, line 1: run 1 has no request that succeeded; 24 failed"), "{failed}");
    write("short.json", &first.replace("\"output_throughput\"", "\"x\""));
    let short = error(&place, &["3=short.json"]);
    assert!(
        short.contains("short.json, line 1: has no output_throughput") && short.contains("--save-result"),
        "{short}"
    );
    write("load.json", &first.replace("\"max_concurrency\": 1", "\"max_concurrency\": null"));
    let load = error(&place, &["3=load.json"]);
    assert!(load.contains("says neither clients (max_concurrency) nor a rate (request_rate)"), "{load}");
    let other = error(&place, &["0=plain.json", "5=drafts.json"]);
    assert!(other.contains("its rounds drafted 3.00 tokens, and the file is given with K = 5"), "{other}");
    let bare = error(&place, &["drafts.json"]);
    assert!(bare.contains("--experiment and --fit-k are for tables (CSV) and for results (K=FILE)"), "{bare}");
}

#[test]
fn failed_requests_are_warned_of() {
    let place = place();
    let plain = std::fs::read_to_string(place.path("plain.json")).unwrap();
    std::fs::write(place.path("some.json"), plain.replace("\"failed\": 0", "\"failed\": 5")).unwrap();
    let out = place
        .foretoken()
        .args(["calibrate", "0=some.json", "--experiment", "server.toml", "-o", "cal"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("warning: some.json, run 1: 5 requests failed; the means are of the 24 that succeeded"),
        "{said}"
    );
}

/// GuideLLM does not measure how many draft tokens are accepted, which `calibrate` needs. So `calibrate` fails. Its
/// error prints the measurements of GuideLLM as a CSV table, to which the user adds the accepted tokens.
#[test]
fn drafts_without_acceptance_become_a_table() {
    let place = place();
    std::fs::copy(results("guidellm-0.8.1-k3.json"), place.path("guide.json")).unwrap();
    let said = error(&place, &["3=guide.json"]);
    assert!(said.contains("guide.json, run 1: drafts, and no file says what was accepted of them"), "{said}");
    assert!(said.contains("clients,rate,k,input,output,requests,tok_s,ttft_ms,tpot_ms,accepted"), "{said}");
    assert!(said.contains("1,,3,31.3750,32.0000,16,139.6491,62.2488,4.6083,"), "{said}");
    // `guide.json` has no acceptance, but `drafts.json` has. Then the acceptance of `drafts.json` is used for
    // `guide.json` too, with a warning.
    let out = place
        .foretoken()
        .args(["calibrate", "0=plain.json", "2=guide.json", "3=drafts.json", "--fit-k", "0,3"])
        .args(["--experiment", "server.toml", "-o", "cal"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("guide.json, run 1: the file does not say what was accepted"), "{said}");
}
