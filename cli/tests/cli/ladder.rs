//! `foretoken ladder` splits a policy's loss (how much slower it is than the best oracle) into parts by cause, the
//! rungs. The rungs must sum to the loss. A rung that does not apply to a policy has a dash. Unsuitable experiments are
//! refused.

use crate::support::{EXPERIMENT, Place};

pub fn small() -> String {
    EXPERIMENT
        .replacen("max_num_seqs = { sweep = [8, 64] }", "max_num_seqs = 64", 1)
        .replacen("requests = 200", "requests = 40", 1)
        .replacen("{ fixed = { k = { sweep = [1, 3] } } }", "{ fixed = { k = 3 } }", 1)
}

#[test]
fn the_rungs_sum_to_the_loss_and_a_fixed_length_has_nothing_to_correct() {
    let place = Place::holding(&small());
    let run = |more: &[&str]| {
        let output = place.foretoken().args(["ladder", "x.toml", "-o", "out", "--resume"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let json: serde_json::Value = serde_json::from_str(&run(&["--format", "json"])).unwrap();
    let ladders = json["ladders"].as_array().unwrap();
    assert_eq!(ladders.len(), 2, "the oracle and plain decoding do not climb");
    for ladder in ladders {
        let rungs = ladder["rungs"].as_array().unwrap();
        assert_eq!(rungs.len(), 7);
        let sum: f64 = rungs.iter().filter_map(|rung| rung["height"]["mean"].as_f64()).sum();
        let loss = ladder["as_is"]["mean"].as_f64().unwrap();
        assert!((sum - loss).abs() < 1e-9, "{sum} for {loss}");
    }
    let ladder_of = |policy: &str| ladders.iter().find(|ladder| ladder["policy"] == policy).unwrap();
    let dash = |policy: &str, rung: usize| ladder_of(policy)["rungs"][rung]["height"].is_null();
    assert!((0..3).all(|rung| dash("fixed-3", rung)), "a fixed length believes nothing");
    assert!((0..7).all(|rung| !dash("adaspec", rung)), "adaspec believes costs and confidences");
    assert!((3..7).all(|rung| !dash("fixed-3", rung)));
    let runs: Vec<&str> = (0..3).map(|rung| ladder_of("adaspec")["rungs"][rung]["run"].as_str().unwrap()).collect();
    let cost = "true-cost(adaspec)";
    assert_eq!(runs, [cost, &format!("true-calibration({cost})"), &format!("true-rates(true-calibration({cost}))")]);
    let text = run(&[]);
    for part in ["cost", "calibration", "hindsight", "adaspec", "the rungs sum to it"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let page = std::fs::read_to_string(place.path("out/ladder.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("NaN"));
    let again = place.foretoken().args(["ladder", "x.toml", "-o", "out", "--overwrite"]).output().unwrap();
    assert!(again.status.success(), "its own folder is replaced: {}", String::from_utf8_lossy(&again.stderr));
}

/// The wrapper `true-cost` gives a policy the true costs. A policy with a wrong belief about costs, inside this
/// wrapper, must decide as the policy with the right belief does.
#[test]
fn the_true_cost_takes_the_place_of_a_wrong_belief() {
    let policies = |policy: &str| {
        small().replacen("{ fixed = { k = 3 } }, { adaspec = {} }", &format!("{{ fixed = {{ k = 3 }} }}, {policy}"), 1)
    };
    let e2e = |text: &str, label: &str, more: &[&str]| {
        let place = Place::holding(text);
        let output =
            place.foretoken().args(["run", "x.toml", "-o", "out", "--format", "json"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let policies = json["variants"][0]["policies"].as_array().unwrap();
        let found = policies.iter().find(|p| p["policy"] == label).unwrap_or_else(|| panic!("{label} in {json:#}"));
        found["e2e_mean_s"]["mean"].as_f64().unwrap_or_else(|| panic!("{found:#}"))
    };
    let wrong = ["--set", "belief.scale.target=0.2", "--set", "belief.scale.draft=3.0"];
    let smartspec = policies("{ smartspec = {} }");
    let wrapped = policies("{ true-cost = { policy = { smartspec = {} } } }");
    let right = e2e(&smartspec, "smartspec", &[]);
    assert_eq!(e2e(&wrapped, "true-cost(smartspec)", &wrong), right);
    assert_ne!(e2e(&smartspec, "smartspec", &wrong), right);
}

/// A wrapper that replaces a policy's belief (its assumption about costs or acceptance) is refused if the policy does
/// not have this belief, or if the policy is unknown.
#[test]
fn a_wrapper_around_an_unsuitable_policy_is_refused() {
    let refused = |policy: &str, source: &str, args: &[&str], says: &[&str]| {
        let text = small().replacen("{ adaspec = {} }", policy, 1).replacen("constant = { rate = 0.7 }", source, 1);
        let error = Place::holding(&text).fails(args, 2);
        says.iter().for_each(|part| assert!(error.contains(part), "{part} in\n{error}"));
    };
    let run = ["run", "x.toml", "-o", "out"];
    let constant = "constant = { rate = 0.7 }";
    refused(
        "{ true-cost = { policy = { fixed = { k = 2 } } } }",
        constant,
        &run,
        &["x.toml", "fixed-2 has no belief about the cost of passes that could be put right"],
    );
    refused("{ true-rates = { policy = { no-such = {} } } }", constant, &run, &["no-such"]);
}

#[test]
fn what_has_no_ladder_is_refused() {
    let refused = |from: &str, to: &str, says: &[&str]| {
        let text = small();
        assert!(text.contains(from), "{from}");
        let error = Place::holding(&text.replacen(from, to, 1)).fails(&["ladder", "x.toml", "-o", "out"], 2);
        says.iter().for_each(|part| assert!(error.contains(part), "{part} in\n{error}"));
    };
    refused("constant = { rate = 0.7 }", "recorded = {}", &["has outcomes and no law", "a law that was fitted"]);
    let given = "{ fixed = { k = 3 } }, { adaspec = {} }, ";
    refused(given, "", &["no policy of the experiment can climb a ladder"]);
}

/// A scenario of the arena needs an oracle among its policies; the ladder adds one itself.
#[test]
fn a_scenario_with_other_policies_needs_no_oracle() {
    let text = small().replacen(
        "[slo]\nadaspec-scale = 1.0",
        "[slo]\ntpot_s = 0.1\n\n[arena]\nset = \"tuning\"\nabout = \"a test\"",
        1,
    );
    let place = Place::holding(&text);
    let set = "policies=[{ fixed = { k = 2 } }]";
    let output = place.foretoken().args(["ladder", "x.toml", "-o", "out", "--set", set]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().contains("fixed-2"));
}
