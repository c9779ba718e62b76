//! `foretoken ladder`: the rungs sum to the loss, dashes where nothing is to be corrected, and what has no ladder.

use crate::support::{EXPERIMENT, Place};

fn small() -> String {
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
    let of = |policy: &str| ladders.iter().find(|ladder| ladder["policy"] == policy).unwrap();
    let dash = |policy: &str, rung: usize| of(policy)["rungs"][rung]["height"].is_null();
    assert!((0..3).all(|rung| dash("fixed-3", rung)), "a fixed length believes nothing");
    // A wrapper or bound that the program lacks is named, and its rung is a dash.
    let lacks = |name: &str| json["absent"].as_array().is_some_and(|all| all.iter().any(|absent| absent == name));
    assert_eq!(dash("adaspec", 0), lacks("true-cost"), "adaspec believes costs");
    for (rung, bound) in [(3, "knows-rates"), (4, "knows-confidences"), (5, "knows-lengths")] {
        assert_eq!((dash("fixed-3", rung), dash("adaspec", rung)), (lacks(bound), lacks(bound)), "{bound}");
    }
    assert!(!dash("fixed-3", 6) && !dash("adaspec", 6));
    let text = run(&[]);
    for part in ["cost", "calibration", "hindsight", "adaspec", "the rungs sum to it"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let page = std::fs::read_to_string(place.path("out/ladder.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("NaN"));
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
