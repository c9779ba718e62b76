//! Published acceptance: golden curves and their commands, forced acceptance, speculation profiles, and numbers of the
//! wrong kind.

use crate::support::Place;
use std::process::Output;

const PAIR: &str = r#"name = "golden"
seeds = [1, 2]
policies = [{ autoregressive = {} }, { fixed = { k = { sweep = [1, 3, 7] } } }]
hardware = { target = { roofline = { gpu = "b200", model = "deepseek-v4-pro", tensor_parallel = 8 } }, draft = { roofline = { gpu = "b200", model = "deepseek-v4-pro-mtp", tensor_parallel = 8 } } }
engine = { method = "mtp" }
acceptance = {}
[workload]
arrivals = { closed-loop = 8 }
lengths = { fixed = { prompt = 200, output = 400 } }
requests = 64
[output]
figures = false
"#;

fn run(place: &Place, sets: &[&str]) -> Output {
    let mut command = place.foretoken();
    command.args(["run", "x.toml", "-o", "out", "--overwrite", "--format", "json"]);
    for set in sets {
        command.args(["--set", set]);
    }
    command.output().unwrap()
}

/// The mean tokens of a round by policy, and what the run says on stderr.
fn lengths_of(place: &Place, sets: &[&str]) -> (Vec<(String, f64)>, String) {
    let out = run(place, sets);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let mut all = Vec::new();
    for variant in json["variants"].as_array().unwrap() {
        for policy in variant["policies"].as_array().unwrap() {
            if let Some(mean) = policy["mean_acceptance_length"]["mean"].as_f64() {
                all.push((policy["policy"].as_str().unwrap().to_owned(), mean));
            }
        }
    }
    (all, said)
}

fn refused(place: &Place, set: &str, parts: &[&str]) {
    let out = run(place, &[set]);
    let said = String::from_utf8_lossy(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(out.status.code(), Some(2), "{said}");
    parts.iter().for_each(|part| assert!(said.contains(part), "{part} is missing in\n{said}"));
}

/// A drafter with a published curve has it as its acceptance, and each run the mean of its own K.
#[test]
fn a_drafter_takes_its_golden_curve_and_says_where_it_is_from() {
    let place = Place::holding(PAIR);
    let published = [("fixed-1", 1.79), ("fixed-3", 2.49), ("fixed-7", 2.54)];
    for sets in [&[][..], &["acceptance.source={ forced = { golden = \"deepseek-v4-pro-mtp\" } }"]] {
        let (found, said) = lengths_of(&place, sets);
        for (policy, tokens) in published {
            let mean = found.iter().find(|(name, _)| name == policy).unwrap().1;
            assert!((mean / tokens - 1.0).abs() < 0.02, "{policy}: {mean} for {tokens}");
        }
        for part in
            ["golden curve deepseek-v4-pro-mtp-thinking", "SPEED-Bench", "2026-06-26", "does not say that it is code"]
        {
            assert!(said.contains(part), "{part} is missing in\n{said}");
        }
        assert!(said.contains("K = 7 emits 2.54 tokens a round, fewer than the 2.55 with K = 6"), "{said}");
    }
    let stored = std::fs::read_to_string(place.path("out/experiment.toml")).unwrap();
    assert!(stored.contains("deepseek-v4-pro-mtp"), "{stored}");
}

#[test]
fn a_length_without_a_number_is_held_and_said() {
    let place = Place::holding(PAIR);
    let longer = ["engine.max_draft_len=9", "policies=[{ fixed = { k = { sweep = [5, 9] } } }]"];
    let golden = "acceptance.source={ golden = \"deepseek-v4.1-flash-dspark-no-thinking\" }";
    let (found, said) = lengths_of(&place, &[longer[0], longer[1], golden]);
    assert!(said.contains("no length is given for K = 9: the one of K = 5 is held"), "{said}");
    assert!(found.iter().all(|(_, mean)| (mean / 4.07 - 1.0).abs() < 0.02), "{found:?}");
    let gap = "acceptance.source={ mean-length = { lengths = [[2, 2.1], [7, 3.67]] } }";
    let (_, said) = lengths_of(&place, &[longer[0], longer[1], gap]);
    assert!(
        said.contains("no length is given for K = 5: its drafts are the first ones of the next longer length"),
        "{said}"
    );
    let code = "workload.lengths={ categories = { code = { share = 1.0, lengths = { fixed = { prompt = 200, output = 100 } } } } }";
    assert!(!lengths_of(&place, &[code]).1.contains("does not say that it is code"));
}

#[test]
fn numbers_that_cannot_be_are_refused_with_what_to_do() {
    let place = Place::holding(PAIR);
    let list = "`foretoken acceptance list` prints the curves";
    refused(
        &place,
        "acceptance.source={ golden = \"glm-5.2-mpt\" }",
        &["no curve of golden lengths is called", "did you mean", list],
    );
    refused(&place, "acceptance.source={ forced = { golden = \"x\" } }", &["acceptance.source.forced.golden", list]);
    refused(
        &place,
        "acceptance.source={ forced = { golden = \"glm-5.2-mtp\", lengths = [[1, 1.5]] } }",
        &["leave one of both out"],
    );
    refused(&place, "acceptance.source={ forced = {} }", &["needs at least one [K, tokens], or `golden` and a name"]);
    refused(
        &place,
        "acceptance.source={ mean-length = { lengths = [[3, 4.5]] } }",
        &["4.5 tokens at K = 3", "from 1 to 4 tokens"],
    );
    refused(&place, "acceptance.source={ mean-length = { lengths = [[3, 0.5]] } }", &["0.5 tokens at K = 3"]);
    for list in ["[0.62, 0.36, 0.22]", "{ conditional = { rates = [0.62, 0.36] } }"] {
        refused(&place, &format!("acceptance.source={list}"), &["marginal = { shares", "by-depth = { rates"]);
    }
    refused(
        &place,
        "acceptance.source={ marginal = { shares = [0.5, 0.6] } }",
        &["shares that rise are conditional ones"],
    );
    refused(&place, "acceptance.source={ drafted-share = { share = 63.0, k = 3 } }", &["63 is not a probability"]);
    refused(&place, "acceptance.source={ profile = { path = \"none.json\" } }", &["none.json"]);
}

/// Shares of all rounds that stand where rates among the rounds that reach a place are asked for: the note says both.
#[test]
fn shares_that_look_marginal_are_noted() {
    let place = Place::holding(PAIR);
    let (_, said) = lengths_of(&place, &["acceptance.source={ by-depth = { rates = [0.62, 0.36, 0.22] } }"]);
    assert!(said.contains("1.89 tokens a round with 3 drafts") && said.contains("2.20 tokens"), "{said}");
    let (found, said) = lengths_of(&place, &["acceptance.source={ marginal = { shares = [0.62, 0.36, 0.22] } }"]);
    let three = found.iter().find(|(name, _)| name == "fixed-3").unwrap().1;
    assert!((three / 2.20 - 1.0).abs() < 0.02 && !said.contains("write marginal"), "{three} {said}");
}

const PROFILE: &str = r#"{"schema_version": "1.0", "measured": true, "method": "dflash", "num_speculative_tokens": 3,
"target_model": {"path": "MiniMaxAI/MiniMax-M2.7"}, "verification_method": "longest_prefix",
"conditional_accept_rates": [0.816082, 0.776577, 0.749591], "marginal_accept_rates": [0.816082, 0.63375, 0.475053],
"mean_accept_length": 2.924887, "accept_length_by_k": {"3": 2.924887}}"#;

#[test]
fn a_speculation_profile_is_read_and_a_wrong_one_refused() {
    let place = Place::holding(PAIR);
    std::fs::write(place.path("speculation_profile.json"), PROFILE).unwrap();
    let set = "acceptance.source={ profile = { path = \"speculation_profile.json\" } }";
    let (found, said) = lengths_of(&place, &[set]);
    for (policy, tokens) in [("fixed-1", 1.816), ("fixed-3", 2.925), ("fixed-7", 2.925)] {
        let mean = found.iter().find(|(name, _)| name == policy).unwrap().1;
        assert!((mean / tokens - 1.0).abs() < 0.02, "{policy}: {mean}");
    }
    assert!(said.contains("measured up to 3 drafts: deeper ones are never right"), "{said}");
    assert!(
        said.contains("of the target MiniMaxAI/MiniMax-M2.7, and this experiment's is deepseek-ai/DeepSeek-V4-Pro"),
        "{said}"
    );
    let wrong = PROFILE.replace("[0.816082, 0.776577, 0.749591]", "[0.816082, 0.63375, 0.475053]");
    std::fs::write(place.path("speculation_profile.json"), wrong).unwrap();
    refused(&place, set, &["conditional_accept_rates says 2.58 tokens a round", "the other kind of rate"]);
}

#[test]
fn every_golden_curve_is_listed_and_shown() {
    let place = Place::new();
    let said = |args: &[&str]| {
        let out = place.foretoken().args(args).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let list = said(&["acceptance", "list"]);
    let names: Vec<&str> = list.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names.len(), 17, "{list}");
    assert!(
        list.contains("deepseek-v4.1-flash-dspark-thinking") && list.contains("  3.51     -     -     -"),
        "{list}"
    );
    for name in names {
        let shown = said(&["acceptance", "show", name]);
        let golden = format!("golden = \"{name}\"");
        for part in ["source: GitHub ", "Actions run ", "coding prompts", "drafter: ", &golden] {
            assert!(shown.contains(part), "{part} is missing in\n{shown}");
        }
    }
    let json: serde_json::Value =
        serde_json::from_str(&said(&["acceptance", "show", "glm-5.2-mtp", "--format", "json"])).unwrap();
    assert_eq!(json["lengths"][7][1], 4.06);
    assert!(
        place
            .fails(&["acceptance", "show", "glm-5.2-mpt-thinking"], 2)
            .contains("did you mean `glm-5.2-mtp-thinking`?")
    );
}

/// A profile beside no runs at all: acceptance is calibrated, and it is the file's.
#[test]
fn calibrate_reads_a_speculation_profile_and_aiperfs_requests() {
    let place = Place::new();
    let calibrated = |file: &str, text: &str| {
        std::fs::write(place.path(file), text).unwrap();
        let out = place.foretoken().args(["calibrate", file, "-o", "cal", "--overwrite"]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let said = String::from_utf8_lossy(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        let written = std::fs::read_to_string(place.path("cal/speculation_profile.json")).unwrap();
        (String::from_utf8_lossy(&out.stdout).into_owned(), said, serde_json::from_str(&written).unwrap())
    };
    let (found, said, written): (_, _, serde_json::Value) = calibrated("speculation_profile.json", PROFILE);
    assert!(found.contains("accepted, if reached    0.816, 0.777, 0.750"), "{found}");
    assert!(
        said.contains("acceptance is the file's (target MiniMaxAI/MiniMax-M2.7), 2.92 tokens a round at K = 3"),
        "{said}"
    );
    assert!((written["mean_accept_length"].as_f64().unwrap() - 2.9249).abs() < 1e-3, "{written}");
    // 12 rounds: 5 accepted none, 7 of 12 the first draft, 4 of 6 the second (one had no second), 3 of 4 the third.
    let requests = include_str!("../../../fuzz/seeds/aiperf-records/four.jsonl");
    let (found, said, _) = calibrated("profile_export.jsonl", requests);
    assert!(found.contains("accepted, if reached    0.571, 0.625, 0.667"), "{found}");
    assert!(said.contains("only acceptance and requests are calibrated"), "{said}");
}

#[test]
fn two_recorded_drafters_are_played_on_the_same_text() {
    let lengths = "workload.lengths={ trace = { path = \"two.jsonl\" } }";
    let place = Place::holding(PAIR);
    std::fs::write(place.path("two.jsonl"), include_str!("../../../fuzz/seeds/trace-any/written-specdecode-bench"))
        .unwrap();
    let tokens = |drafter: &str| {
        let source = format!("acceptance.source={{ counterfactual = {{ drafter = {drafter} }} }}");
        let sets = [lengths, "workload.requests=2", "policies=[{ fixed = { k = 7 } }]", &source];
        let (found, said) = lengths_of(&place, &sets);
        assert!(said.contains("length of the recorded run"), "{said}");
        found[0].1
    };
    // The lookup drafts only where it matches, so its rounds are few and long.
    let [model, lookup, longer] = ["\"model\"", "\"lookup\"", "\"longer\""].map(tokens);
    assert!(model < longer && longer < lookup, "{model} {lookup} {longer}");
    refused(
        &place,
        "acceptance.source={ counterfactual = { drafter = \"model\" } }",
        &["no recording of two drafters"],
    );
}
