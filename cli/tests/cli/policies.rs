//! All policies run. The costs that a policy assumes (its belief) may differ from the true costs. A file with SGLang's
//! settings can be used as a policy, and a policy can be exported as such a file.

use crate::support::{EXPERIMENT, Place};
use serde_json::Value;

fn json(place: &Place, out: &str, more: &[&str]) -> Value {
    let text = place.run_drawn(out, &[&["--format", "json", "--no-figures", "--set", "seeds=[1]"], more].concat());
    serde_json::from_str(&text).unwrap()
}

/// The metrics of one policy at the first combination of swept values.
fn numbers(document: &Value, policy: &str) -> Value {
    let policies = document["variants"][0]["policies"].as_array().unwrap();
    policies.iter().find(|p| p["policy"] == policy).unwrap_or_else(|| panic!("no {policy}")).clone()
}

fn mean(document: &Value, policy: &str, metric: &str) -> f64 {
    numbers(document, policy)[metric]["mean"].as_f64().unwrap()
}

#[test]
fn every_policy_runs_with_its_defaults() {
    let place = Place::new();
    let list = place.foretoken().args(["policies", "list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let names: Vec<&str> = list.lines().filter_map(|l| l.split_whitespace().next()).collect();
    let each: Vec<String> = names.iter().map(|name| format!("{{ {name} = {{}} }}")).collect();
    let policies = format!("policies=[{}]", each.join(", "));
    let more = ["--set", "engine.max_num_seqs=16", "--set", "workload.requests=60", "--set", &policies];
    let document = json(&place, "out", &more);
    let shown = document["variants"][0]["policies"].as_array().unwrap();
    assert_eq!(shown.len(), names.len());
    for (policy, name) in shown.iter().zip(&names) {
        let speedup = policy["speedup"]["mean"].as_f64().unwrap();
        assert!(speedup > 0.2, "{name} has a speedup of {speedup}");
        // Every policy has a regret: its mean E2E over the mean E2E of the policy oracle-goodput, minus 1. It may be
        // negative.
        assert!(policy["regret_to_oracle_goodput"]["mean"].is_number(), "{name} has no regret");
    }
    let error = place.fails(&["run", "x.toml", "--set", "policies=[{ dspark = { table = \"flat\" } }]"], 2);
    assert!(error.contains("dspark.table"), "{error}");
}

#[test]
fn a_line_of_defaults_can_be_pasted() {
    let place = Place::new();
    for name in ["adaspec-", "sglang-gen3", "vllm-dynamic", "eagle2"] {
        let line = place.foretoken().args(["policies", "defaults", name]).output().unwrap();
        let line = String::from_utf8(line.stdout).unwrap();
        let policies = format!("policies=[{}]", line.trim());
        let document = json(&place, name, &["--set", &policies, "--set", "workload.requests=20"]);
        assert!(numbers(&document, name).is_object());
    }
}

#[test]
fn regret_adds_the_oracle_once() {
    let place = Place::holding(&EXPERIMENT.replace(", { oracle-goodput = {} }", ""));
    let document = json(&place, "out", &["--regret"]);
    assert!(mean(&document, "adaspec", "regret_to_oracle_goodput") > 0.0);
    let text = place.run_drawn("table", &["--regret", "--no-figures", "--wide"]);
    assert!(text.contains("regret: mean E2E over that of oracle-goodput"), "{text}");
    let document = json(&Place::new(), "out", &["--regret"]);
    let policies = document["variants"][0]["policies"].as_array().unwrap();
    assert_eq!(policies.iter().filter(|p| p["policy"] == "oracle-goodput").count(), 1);
}

#[test]
fn the_clairvoyant_is_the_best_fixed_length() {
    let place = Place::new();
    let policies =
        "policies=[{ fixed = { k = { sweep = [0, 1, 2, 3, 4, 5, 6, 7, 8] } } }, { clairvoyant-static = {} }]";
    let output = place
        .foretoken()
        .args([
            "run", "x.toml", "-o", "out", "--format", "json", "--no-figures", "--set", "seeds=[1]", "--set", policies,
        ])
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let best = (0..=8).map(|k| mean(&document, &format!("fixed-{k}"), "e2e_mean_s")).fold(f64::INFINITY, f64::min);
    assert_eq!(mean(&document, "clairvoyant-static", "e2e_mean_s"), best);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the best in hindsight was fixed-"), "{said}");
}

/// A policy's belief about costs, and the delay of its feedback, change its decisions. Neither changes the true costs.
#[test]
fn beliefs_can_be_wrong() {
    // The SLO bound is removed, because AdaSpec hardly drafts under it here.
    let unbounded = EXPERIMENT.replace("adaspec-scale = 1.0", "");
    let place = Place::holding(
        &unbounded.replace("{ adaspec = {} }", "{ adaspec = {} }, { smartspec = {} }, { vllm-adaptive = {} }"),
    );
    let lens = |out: &str, sets: &[&str]| {
        let sets: Vec<&str> = sets.iter().flat_map(|s| ["--set", *s]).collect();
        let document = json(&place, out, &sets);
        let draft_len = |policy: &str| mean(&document, policy, "draft_len");
        // Policies with fixed draft lengths and oracles do not use a belief about costs (the pass costs that a policy
        // assumes).
        (
            draft_len("fixed-3"),
            draft_len("oracle-goodput"),
            draft_len("adaspec"),
            draft_len("smartspec"),
            mean(&document, "vllm-adaptive", "e2e_mean_s"),
        )
    };
    let right = lens("right", &[]);
    let dear = lens("dear", &["belief.scale.draft=8.0"]);
    assert_eq!((right.0, right.1), (dear.0, dear.1));
    assert!(dear.2 < right.2 && dear.3 < right.3, "{dear:?} after {right:?}");
    assert_ne!(right.4, dear.4);
    let changed = [
        ("noisy", "belief.noise_cv=0.5"),
        (
            "elsewhere",
            "belief.fitted_to={ target = { linear = { alpha_s = 0.0, gamma_s = 2e-3, delta_s = 1e-3 } }, draft = { linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 5e-3 } } }",
        ),
        ("late", "belief.staleness_steps=50"),
        ("slow", "engine.decision_s={ keep_drafting = 2e-3 }"),
        ("misfit", "acceptance.confidence.misfit={ scale = 0.5, shift = -1.0 }"),
    ];
    for (out, set) in changed {
        assert_ne!(lens(out, &[set]), right, "{set} changed nothing");
    }
    // The true costs are linear. So a policy's cost table (pass times by number of tokens) is the same whether it is
    // computed from the true costs or from their linear fit.
    assert_eq!(lens("tables", &["belief.tables=\"linear\""]).3, right.3);
    for (set, part) in [
        ("belief.scale.draft=0.0", "belief.scale.draft: 0 is not a factor above 0"),
        ("belief.noise_cv=-1.0", "belief.noise_cv"),
        ("belief.staleness_steps=-1", "-1"),
        ("engine.decision_s={ propose = -1.0 }", "engine.decision_s.propose"),
        ("acceptance.ranks=[1.5]", "1.5 is not a probability"),
        ("acceptance.source={ prompt-lookup = { mean_run = 0.2 } }", "prompt-lookup.mean_run"),
        ("belief.tables=\"guessed\"", "unknown name `guessed`"),
    ] {
        let error = place.fails(&["run", "x.toml", "-o", "bad", "--set", set], 2);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn sglangs_settings_are_imported_and_exported() {
    let place = Place::holding(&EXPERIMENT.replace("{ adaspec = {} }", "{ sglang-json = \"adaptive_spec.json\" }"));
    std::fs::write(place.path("adaptive_spec.json"), r#"{"candidate_steps": [1, 2, 4], "ema_alpha": 0.3}"#).unwrap();
    let document = json(&place, "out", &[]);
    let label = document["variants"][0]["policies"][3]["policy"].as_str().unwrap();
    assert_eq!(label, "sglang-gen1[candidates=[1,2,4] ema_alpha=0.3]");
    let written = place.foretoken().args(["export", "sglang", "x.toml"]).output().unwrap();
    let written: Value = serde_json::from_slice(&written.stdout).unwrap();
    assert_eq!((&written["candidate_steps"][2], &written["ema_alpha"]), (&4.into(), &0.3.into()));
    let preset = place.foretoken().args(["export", "sglang", "sglang-gen3"]).output().unwrap();
    let preset: Value = serde_json::from_slice(&preset.stdout).unwrap();
    assert_eq!(preset["64"]["candidate_steps"], serde_json::json!([0]));

    for (text, part) in [
        (r#"{"candidate_steps": [4, 1]}"#, "candidate_steps"),
        (r#"{"candidate_steps": [4]}"#, "candidate_steps"),
        (r#"{"candidate_step": [1, 4]}"#, "candidate_step"),
        ("[]", "must be a JSON object"),
    ] {
        std::fs::write(place.path("adaptive_spec.json"), text).unwrap();
        let error = place.fails(&["run", "x.toml", "-o", "bad"], 2);
        assert!(error.contains(part) && error.contains("adaptive_spec.json") && error.contains("x.toml:3"), "{error}");
    }
    assert!(place.fails(&["export", "sglang", "adaspec"], 2).contains("adaspec"));
    assert!(place.fails(&["export", "sglang", "sglang-gen9"], 2).contains("did you mean"));
}

/// This test is about the command's output and exit codes. `tests/tests/copies/new_policy.rs` tests that the written
/// policy compiles.
#[test]
fn a_new_policy_is_a_file_and_two_lines_to_add() {
    let place = Place::new();
    let error = place.fails(&["policies", "new", "my-policy"], 2);
    assert!(error.contains("policies/src/plain is no family") && error.contains("--source"), "{error}");
    let folder = place.path("tree/policies/src/confidence");
    std::fs::create_dir_all(&folder).unwrap();
    let new =
        |name: &'static str, family: &'static str| ["policies", "new", name, "--family", family, "--source", "tree"];
    for (name, family, said) in [
        ("fixed", "confidence", "fixed"),
        ("My Policy", "confidence", "is no name for a policy"),
        ("my-policy", "nowhere", "nowhere is no family of policies"),
    ] {
        let error = place.fails(&new(name, family), 2);
        assert!(error.contains(said), "{name}: {error}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    let output = place.foretoken().args(new("my-policy", "confidence")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    for line in
        ["    pub(crate) mod my_policy;\n", "    confidence::my_policy::MyPolicy { MyPolicy = \"my-policy\"; }\n"]
    {
        assert!(said.contains(line), "{said}");
    }
    let policy = std::fs::read_to_string(folder.join("my_policy.rs")).unwrap();
    assert!(policy.starts_with("//! `my-policy`"), "{policy}");
    let error = place.fails(&new("my-policy", "confidence"), 2);
    assert!(error.contains("my_policy.rs"), "{error}");
}
