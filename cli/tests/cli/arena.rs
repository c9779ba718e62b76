//! The arena, a comparison of all policies over a folder of experiments (scenarios): its table, page and files, skipped
//! scenarios, and invalid `[arena]` tables.

use crate::support::{self, EXPERIMENT, Place};
use std::path::Path;

/// The text of a scenario (an experiment over which all policies are compared) with few policies and a light load,
/// without a sweep.
fn scenario(name: &str, set: &str, quick: bool) -> String {
    EXPERIMENT
        .replacen("name = \"small\"", &format!("name = \"arena-{name}\""), 1)
        .replacen("seeds = [1, 2]", "seeds = [1, 2, 3]", 1)
        .replacen("max_num_seqs = { sweep = [8, 64] }", "max_num_seqs = 64", 1)
        .replacen("adaspec-scale = 1.0", "tpot_s = 0.05", 1)
        .replacen("requests = 200", "requests = 60", 1)
        + &format!("\n[arena]\nset = \"{set}\"\nabout = \"a light load\"\nquick = {quick}\n")
}

/// A folder `arena` with three scenarios (experiments that compare policies). One of them needs a trace that does not
/// exist.
pub fn folder() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("arena")).unwrap();
    let write = |name: &str, text: String| std::fs::write(place.path("arena").join(name), text).unwrap();
    write("a.toml", scenario("a", "tuning", true));
    let full = scenario("b", "held-out", false).replacen("rate = 4.0", "rate = 40.0", 1);
    write("b.toml", full.replacen("max_num_seqs = 64", "max_num_seqs = 8", 1));
    let trace = "arrivals = { trace = { path = \"${FORETOKEN_TRACES}/gone.csv\" } }";
    let text = scenario("c", "held-out", true).replacen("arrivals = { poisson = { rate = 4.0 } }", trace, 1);
    write("c.toml", text.replacen("requests = 60\n", "", 1));
    place
}

pub fn run(place: &Place, more: &[&str]) -> String {
    let output = place.foretoken().args(["run", "arena", "-o", "out", "--resume"]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_folder_of_scenarios_prints_one_table_in_every_format() {
    let place = folder();
    let text = run(&place, &[]);
    assert!(text.contains("arena: 2 scenarios (1 tuning, 0 seen, 1 held-out), 3 seeds each"), "{text}");
    assert!(text.contains("skipped: arena-c: the environment variable FORETOKEN_TRACES is not set"), "{text}");
    for policy in ["fixed-1", "fixed-3", "adaspec", "autoregressive", "oracle-goodput"] {
        assert!(text.contains(policy), "{policy} in\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&run(&place, &["--format", "json"])).unwrap();
    let rows = json["arena"]["rows"].as_array().unwrap();
    let row = |policy: &str| rows.iter().find(|row| row["policy"] == policy).unwrap();
    assert_eq!(row("oracle-goodput")["mean"], 0.0, "it is the reference");
    assert_eq!(row("oracle-goodput")["rank"], serde_json::Value::Null);
    assert!(row("adaspec")["score"].as_f64().unwrap() <= 0.3);
    // Scenario `arena-b` is overloaded: its engine runs 8 requests at a time and cannot serve 40 requests a second.
    assert_eq!(json["arena"]["scenarios"][1]["overload"], true);
    let args = ["run", "arena", "-o", "out", "--resume", "--format", "csv"];
    let stderr = place.foretoken().args(args).output().unwrap().stderr;
    assert!(String::from_utf8_lossy(&stderr).contains("skipped: arena-c: "), "CSV has no place to say it");
    let csv = run(&place, &["--format", "csv"]);
    assert_eq!(csv.lines().count(), 1 + 2 * 5, "{csv}");
    assert!(run(&place, &["--format", "markdown"]).starts_with("# The arena\n"));
    let page = std::fs::read_to_string(place.path("out/arena.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("held-out") && page.contains("Skipped: arena-c"));
    crate::pages::sound("arena.html", &page);
    assert_eq!(csv, std::fs::read_to_string(place.path("out/arena.csv")).unwrap());
}

/// The arena (a comparison of all policies over many experiments) states the loss of each policy: how much slower it is
/// than the best oracle. The test computes the loss of `adaspec` from the end-to-end latencies in the report of
/// scenario `arena-a`; both losses must be equal.
#[test]
fn the_loss_is_that_of_the_runs() {
    let place = folder();
    let json: serde_json::Value = serde_json::from_str(&run(&place, &["--format", "json"])).unwrap();
    let own = std::fs::read_to_string(place.path("out/arena-a/report.json")).unwrap();
    let own: serde_json::Value = serde_json::from_str(&own).unwrap();
    let entrants = own["arena"]["entrants"].as_array().unwrap();
    let e2e = |policy: &str| -> Vec<f64> {
        let runs = entrants.iter().find(|ran| ran["policy"] == policy).unwrap()["runs"].as_array().unwrap();
        runs.iter().map(|run| run["e2e_s"].as_f64().unwrap()).collect()
    };
    let logs: Vec<f64> = e2e("adaspec").iter().zip(e2e("oracle-goodput")).map(|(a, o)| (a / o).ln()).collect();
    let mean = logs.iter().sum::<f64>() / 3.0;
    let rows = json["arena"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["policy"] == "adaspec").unwrap();
    assert!((row["fields"][0]["loss"]["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
}

#[test]
fn a_quick_run_says_what_it_leaves_out() {
    let place = folder();
    let text = run(&place, &["--quick"]);
    assert!(text.contains("1 scenarios (1 tuning, 0 seen, 0 held-out), 2 seeds each"), "{text}");
    assert!(text.contains("quick: 2 seeds, 1 scenarios left out"), "{text}");
    std::fs::remove_file(place.path("arena/a.toml")).unwrap();
    let error = place.fails(&["run", "arena", "-o", "out", "--quick"], 2);
    assert!(error.contains("arena-c: the environment variable FORETOKEN_TRACES is not set"), "{error}");
    std::fs::remove_file(place.path("arena/c.toml")).unwrap();
    let error = place.fails(&["run", "arena", "-o", "out", "--quick"], 2);
    assert!(error.contains("holds no scenario with `quick = true`"), "{error}");
}

#[test]
fn a_scenario_without_policies_takes_all() {
    let text = scenario("all", "tuning", false);
    let given = text.lines().find(|line| line.starts_with("policies")).unwrap().to_owned();
    let place = Place::holding(&text.replacen(&given, "", 1).replacen("requests = 60", "requests = 8", 1));
    let table = place.run_drawn("out", &["--set", "seeds=[1]", "--no-figures"]);
    for policy in ["fixed-1 ", "fixed-8 ", "tetris", "vllm-adaptive", "eagle2", "nightjar-like", "oracle-goodput"] {
        assert!(table.contains(policy), "{policy} in\n{table}");
    }
    assert!(!table.contains("clairvoyant-static") && !table.contains("fixed-9"), "{table}");
}

#[test]
fn what_a_scenario_cannot_be_is_refused() {
    let text = scenario("x", "tuning", false);
    let refused = |from: &str, to: &str, says: &[&str]| support::refused(&text, from, to, says);
    refused("rate = 4.0", "rate = { sweep = [1.0, 2.0] }", &["a scenario of the arena sweeps nothing", "x.toml:"]);
    refused("tpot_s = 0.05", "adaspec-scale = 1.0", &["do not move with the load", "slo.tpot_s"]);
    refused(", { oracle-goodput = {} }", "", &["needs an oracle as reference", "leave `policies` out"]);
    refused("set = \"tuning\"", "set = \"test\"", &["tuning", "held-out"]);
    refused("about = \"a light load\"\n", "", &["missing field `about`"]);
}

#[test]
fn quick_and_csv_of_a_folder_are_for_the_arena() {
    let place = Place::new();
    let error = place.fails(&["run", "x.toml", "-o", "out", "--quick"], 2);
    assert!(error.contains("such as experiments/arena/"), "{error}");
    std::fs::create_dir(place.path("plain")).unwrap();
    std::fs::write(place.path("plain/a.toml"), EXPERIMENT).unwrap();
    for args in [["--format", "csv"].as_slice(), &["--quick"]] {
        let error = place.fails(&[&["run", "plain", "-o", "out"], args].concat(), 2);
        assert!(error.contains("holds no experiment with an [arena]"), "{error}");
    }
}

/// The shipped arena must have at least 28 tuning and held-out scenarios (experiments), at least 14 of them held out,
/// and at least 14 seen ones. Policies are tuned on tuning scenarios; held-out ones judge them; seen ones judged an
/// earlier version. Scenarios of different sets must share no seeds and no windows of a trace.
#[test]
fn no_held_out_scenario_shares_seeds_or_windows_with_tuning() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/arena");
    let mut windows: Vec<(String, f64, f64, String)> = Vec::new();
    let mut counts = std::collections::BTreeMap::new();
    let list = std::fs::read_to_string(folder.join("README.md")).unwrap();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let read: toml::Value = toml::from_str(&text).unwrap();
        let set = read["arena"]["set"].as_str().unwrap().to_owned();
        assert!(list.contains(&format!("({file})")), "{file} is missing in the list");
        assert_eq!(read["name"].as_str().unwrap(), format!("arena-{}", file.strip_suffix(".toml").unwrap()));
        let seeds: Vec<i64> = read["seeds"].as_array().unwrap().iter().map(|s| s.as_integer().unwrap()).collect();
        // Drawn scenarios came later, eight for each edition of the policy, and have seeds of their own.
        let number = file.strip_prefix("held-out-").and_then(|rest| rest.strip_suffix(".toml")?.parse::<u32>().ok());
        assert_eq!(number.is_some(), text.contains("# Drawn by draw.py"), "{file}");
        let held_out = match number {
            None => 201,
            Some(17..=24) => 301,
            Some(_) => 401,
        };
        let firsts = [("tuning", 1), ("seen", 101), ("held-out", held_out)];
        let first = firsts.into_iter().find(|(name, _)| *name == set).unwrap().1;
        assert_eq!(seeds, (first..first + 5).collect::<Vec<i64>>());
        *counts.entry(set.clone()).or_insert(0) += 1;
        let Some(trace) = read["workload"]["arrivals"].get("trace") else { continue };
        // AdaSpec's conversation trace is the first ten minutes of Azure's conversation trace, so both count as one
        // trace.
        let own = trace["path"].as_str().unwrap().replace("adaspec/conv.csv", "azure/AzureLLMInferenceTrace_conv.csv");
        let window = read["workload"]["transform"].as_array().unwrap().iter().find_map(|t| t.get("window"));
        let end = |key: &str| window.map(|w| w[key].as_float().unwrap());
        windows.push((own, end("start_s").unwrap_or(0.0), end("end_s").unwrap_or(600.0), set));
    }
    assert!(
        counts["tuning"] + counts["held-out"] >= 28 && counts["held-out"] >= 14 && counts["seen"] >= 14,
        "{counts:?}"
    );
    for a in &windows {
        for b in windows.iter().filter(|b| a.0 == b.0 && a.3 != b.3) {
            assert!(a.2 <= b.1 || b.2 <= a.1, "{a:?} overlaps {b:?}");
        }
    }
}
