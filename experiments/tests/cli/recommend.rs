//! `foretoken recommend` from outside: what it says, what it leaves, and what it refuses before it simulates anything.

use crate::support::Place;
use serde_json::Value;
use std::process::Output;

/// A server whose drafts cost little and mostly hold.
const EXPERIMENT: &str = r#"
name = "advised"
seeds = [1, 2]
policies = [{ autoregressive = {} }]

[hardware]
target = { linear = { alpha_s = 0.0, gamma_s = 2e-4, delta_s = 0.02 } }
draft = { linear = { alpha_s = 0.0, gamma_s = 1e-5, delta_s = 0.002 } }

[engine]
num_gpu_blocks = 4000
max_num_seqs = 4

[workload]
arrivals = { poisson = { rate = 1.0 } }
lengths = { fixed = { prompt = 32, output = 24 } }
requests = 60

[acceptance.source]
constant = { rate = 0.8 }
"#;

fn recommend(place: &Place, more: &[&str]) -> Output {
    place.foretoken().args(["recommend", "x.toml", "-o", "advice", "--longest", "3"]).args(more).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn it_says_what_to_draft_and_writes_what_to_start_the_engine_with() {
    let place = Place::holding(EXPERIMENT);
    let out = recommend(&place, &["--method", "draft_model", "--model", "draft"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.starts_with("Run "), "{said}");
    for words in
        ["against K = 0, as it is now", "at batch 4 K = ", "% accepted, has", "pays up to the highest load tried"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    let read = |name: &str| std::fs::read(place.path(&format!("advice/{name}"))).unwrap();
    let start: Value = serde_json::from_slice(&read("speculative_config.json")).unwrap();
    assert_eq!((&start["method"], &start["model"]), (&Value::from("draft_model"), &Value::from("draft")));
    let answer: Value = serde_json::from_slice(&read("recommendation.json")).unwrap();
    assert_eq!((&answer["verdict"], &answer["source"]), (&Value::from("change"), &Value::from("simulated")));
    assert!(!read("recommendation.html").is_empty() && !read("gain-over-load.svg").is_empty());
    let again = recommend(&place, &[]);
    assert!(again.status.code() == Some(2) && stderr(&again).contains("holds a recommendation"), "{}", stderr(&again));
    let json = recommend(&place, &["--overwrite", "--format", "json", "--engine", "sglang"]);
    assert!(json.status.success(), "{}", stderr(&json));
    let answer: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(answer["engine"], "sglang");
    assert!(place.path("advice/dspark-sps.json").exists() && !place.path("advice/speculative_config.json").exists());
}

#[test]
fn what_cannot_be_advised_on_is_refused() {
    let place = Place::holding(EXPERIMENT);
    for (more, said) in [
        (&["--objective", "slo"][..], "the experiment promises nothing"),
        (&["--p99-tpot-ms", "0"], "must be above 0"),
        (&["--set", "engine.max_num_seqs={ sweep = [2, 4] }"], "sweeps 2 settings"),
        (&["--set", "policies=[{ adaspec = {} }]"], "what does the server draft now?"),
    ] {
        let out = recommend(&place, more);
        assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
        assert!(stderr(&out).contains(said), "{said}: {}", stderr(&out));
        assert!(!place.path("advice").exists(), "nothing is left behind: {more:?}");
    }
    std::fs::create_dir(place.path("seen")).unwrap();
    std::fs::write(place.path("seen/observed.json"), "{}").unwrap();
    let out = place.foretoken().args(["recommend", "seen"]).output().unwrap();
    assert!(out.status.code() == Some(2) && stderr(&out).contains("and no calibration"), "{}", stderr(&out));
}
