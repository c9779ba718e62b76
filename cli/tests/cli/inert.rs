//! Settings without effect are reported on stderr, in JSON and on the page: swept keys and seeds that changed no
//! number, and given keys that another setting excludes.

use crate::support::{EXPERIMENT, Place};
use serde_json::Value;

/// An experiment in which many settings have no effect.
const IDLE: &str = r#"name = "idle"
seeds = [1, 2]
policies = [{ autoregressive = {} }, { fixed = { k = 3 } }]

[hardware]
target = { roofline = { gpu = "a100-80g", model = "vicuna-7b", parallel_efficiency = 0.7 } }
draft = { roofline = { gpu = "a100-80g", model = "vicuna-68m" } }

[engine]
max_num_seqs = 200
block_size = 16

[workload]
arrivals = { poisson = { rate = 4.0 } }
lengths = { spec-bench = {} }
requests = 40
duration_s = 4000.0

[acceptance]
ranks = { sweep = [[0.5], [0.2]] }

[acceptance.source.mixture]
all = { a = 3.0, b = 2.0 }

[acceptance.confidence.misfit]
shift = 0.5

[belief.scale]
draft = 2.0
"#;

fn run(place: &Place, more: &[&str]) -> (String, Value) {
    let args = ["run", "x.toml", "-o", "out", "--format", "json"];
    let output = place.foretoken().args(args).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stderr).unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

fn named(json: &Value) -> Vec<&str> {
    let all = json["settings"]["without_effect"].as_array().into_iter().flatten();
    all.map(|one| one["path"].as_str().unwrap()).collect()
}

#[test]
fn settings_without_effect_are_reported_with_the_reason() {
    let place = Place::holding(IDLE);
    let (stderr, json) = run(&place, &[]);
    let idle = [
        "acceptance.ranks", "hardware.target.roofline.parallel_efficiency", "workload.duration_s",
        "acceptance.source.mixture.all.a", "acceptance.source.mixture.all.b", "acceptance.confidence.misfit.shift",
    ];
    assert_eq!(named(&json), idle);
    for says in [
        "note: acceptance.ranks changed no number: no policy here drafts trees",
        "parallel_efficiency = 0.7 changed no number: hardware.target.roofline.tensor_parallel is 1",
        "workload.requests ends it first",
        "every category of the requests has a law of its own",
        "no policy here looks at confidences",
    ] {
        assert!(stderr.contains(says), "`{says}` is missing in\n{stderr}");
    }
    // A setting with an effect is not reported, and neither is a bound that was not reached.
    assert!(!stderr.contains("max_num_seqs") && !stderr.contains("requests ="), "{stderr}");
    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    assert!(page.contains("no policy here drafts trees"));
}

/// In this experiment every setting has an effect, so none is reported.
#[test]
fn settings_with_an_effect_are_not_reported() {
    let (stderr, json) = run(&Place::new(), &["--no-figures"]);
    assert_eq!((named(&json), stderr.contains("note:")), (Vec::new(), false), "{stderr}");
}

/// A bound that no run reaches is found by sweeping it.
#[test]
fn a_swept_key_that_changes_no_number_is_reported() {
    let place = Place::holding(IDLE);
    let (stderr, json) = run(&place, &["--no-figures", "--set", "engine.max_num_seqs={ sweep = [200, 256] }"]);
    assert!(named(&json).contains(&"engine.max_num_seqs"), "{json}");
    assert!(stderr.contains("note: engine.max_num_seqs changed no number\n"), "{stderr}");
}

/// Nothing of the acceptance acts if no policy drafts, apart from what a claim computes from it.
#[test]
fn settings_of_drafts_are_reported_if_no_policy_drafts() {
    let place = Place::holding(IDLE);
    let (stderr, json) = run(&place, &["--no-figures", "--set", "policies=[{ autoregressive = {} }]"]);
    let all = named(&json);
    assert!(all.contains(&"belief.scale.draft") && all.contains(&"acceptance.source.mixture.all.a"), "{all:?}");
    assert!(stderr.contains("belief.scale.draft = 2.0 changed no number: no policy here drafts"), "{stderr}");
}

#[test]
fn seeds_without_effect_are_reported() {
    let text = EXPERIMENT.replace("noise_cv = 0.05", "").replace("rate = 0.7", "rate = 1.0");
    let text = text.replace("arrivals = { poisson = { rate = 4.0 } }", "arrivals = { closed-loop = 4 }");
    let (stderr, json) = run(&Place::holding(&text), &["--no-figures", "--set", "workload.requests=30"]);
    assert!(named(&json).contains(&"seeds") && stderr.contains("nothing in this experiment is random"), "{stderr}");
}

#[test]
fn memory_settings_of_the_draft_are_refused() {
    let place = Place::holding(IDLE);
    let run_with = |role: &str, key: &str| {
        let set = format!("hardware.{role}.roofline.{key}");
        let output =
            place.foretoken().args(["run", "x.toml", "-o", "o", "--overwrite", "--set", &set]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for key in ["memory_utilization=0.5", "activation_bytes=1e9"] {
        let (code, said) = run_with("draft", key);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("would do nothing") && said.contains("give hardware.target.roofline."), "{said}");
        assert_eq!(run_with("target", key).0, Some(0), "{key}");
    }
}
