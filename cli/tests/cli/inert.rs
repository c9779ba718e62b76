//! Settings without effect are reported on stderr, in JSON and on the page. To find them, `run` repeats the experiment
//! without each setting. This must change no other result.

use crate::support::{EXPERIMENT, Place, bytes_of};
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
        "acceptance.ranks",
        "hardware.target.roofline.parallel_efficiency",
        "engine.max_num_seqs",
        "workload.duration_s",
        "acceptance.source.mixture.all.a",
        "acceptance.source.mixture.all.b",
        "acceptance.confidence.misfit.shift",
        "belief.scale.draft",
    ];
    assert_eq!(named(&json), idle);
    for says in [
        "note: acceptance.ranks changed no number: no policy here drafts trees",
        "parallel_efficiency = 0.7 changed no number: hardware.target.roofline.tensor_parallel is 1",
        "engine.max_num_seqs = 200 changed no number; every result is the same without it, with the default 256",
        "workload.requests ends it first",
        "every category of the requests has a law of its own",
        "no policy here looks at confidences",
        "it changes no decision of a policy here",
    ] {
        assert!(stderr.contains(says), "`{says}` is missing in\n{stderr}");
    }
    // A setting that equals its default is not reported, and neither is a setting with an effect.
    assert!(!stderr.contains("block_size") && !stderr.contains("requests ="), "{stderr}");
    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    assert!(page.contains("no policy here drafts trees"));
}

/// In this experiment every setting has an effect, so none is reported.
#[test]
fn settings_with_an_effect_are_not_reported() {
    let (stderr, json) = run(&Place::new(), &["--no-figures"]);
    assert_eq!((named(&json), stderr.contains("note:")), (Vec::new(), false), "{stderr}");
}

#[test]
fn the_check_of_settings_changes_no_other_result() {
    let place = Place::holding(IDLE);
    let results = |out: &str, more: &[&str]| {
        place.run_whole(out, more);
        let mut files = bytes_of(&place.path(out));
        for name in ["report.json", "report/index.html", "manifest.json"] {
            assert!(files.remove(name).is_some(), "{name}");
        }
        files
    };
    let (with, without) =
        (results("with", &["--check-settings", "always"]), results("without", &["--check-settings", "never"]));
    assert!(with == without, "results depend on whether they were looked at again");
    // Swept keys are checked from the finished runs. So even without repeated runs, the report names swept keys that
    // had no effect.
    let json: Value = serde_json::from_slice(&std::fs::read(place.path("without/report.json")).unwrap()).unwrap();
    assert_eq!(named(&json), ["acceptance.ranks"]);
}

/// The report is byte for byte equal on one thread and on many.
#[test]
fn settings_without_effect_do_not_depend_on_threads() {
    let place = Place::holding(IDLE);
    place.run_drawn("one", &["--threads", "1"]);
    place.run_drawn("many", &["--threads", "4"]);
    assert!(bytes_of(&place.path("one")) == bytes_of(&place.path("many")));
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

/// The run at one load sets the SLO bound of all loads. Settings without effect must be reported in this case, too. If
/// each load has its own bound, the setting `slo.reference` has an effect and must not be reported.
#[test]
fn settings_without_effect_are_reported_under_a_shared_bound() {
    let text = r#"name = "loads"
seeds = [1]
policies = [{ fixed = { k = 2 } }, { adaspec = {} }]
[hardware]
target = { linear = { alpha_s = 0.3e-6, gamma_s = 55e-6, delta_s = 11e-3 } }
draft = { linear = { alpha_s = 0.0, gamma_s = 5e-6, delta_s = 1e-3 } }
[engine]
max_num_seqs = 300
[workload]
arrivals = { poisson = { rate = { sweep = [1.0, 6.0] } } }
lengths = { fixed = { prompt = 128, output = 64 } }
requests = 100
[acceptance.source]
constant = { rate = 0.7 }
[slo]
adaspec-scale = 0.8
"#;
    let place = crate::support::Place::holding(text);
    let said = |more: &[&str]| {
        let args = ["run", "x.toml", "--no-figures", "--check-settings", "always"];
        let output = place.foretoken().args(args).args(more).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let notes = said(&["-o", "a"]);
    assert!(notes.contains("engine.max_num_seqs = 300 changed no number"), "{notes}");
    let notes = said(&["-o", "b", "--set", "slo.reference=each-load"]);
    assert!(!notes.contains("slo.reference"), "{notes}");
}
