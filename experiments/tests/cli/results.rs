//! What a run leaves behind: the folder, the table, the JSON, and that they are always the same bytes.

use crate::support::{Place, bytes_of};

#[test]
fn thread_count_changes_no_byte() {
    let place = Place::new();
    let one = place.run("one", &["--threads", "1"]);
    let two = place.run("two", &["--threads", "2"]);
    assert_eq!(one, two);
    let (one, two) = (bytes_of(&place.path("one")), bytes_of(&place.path("two")));
    assert_eq!(one.keys().collect::<Vec<_>>(), two.keys().collect::<Vec<_>>());
    for (name, bytes) in &one {
        assert!(bytes == &two[name], "{name} differs");
    }
    for name in ["manifest.json", "experiment.toml", "summary.parquet", "requests.parquet", "steps.parquet"] {
        assert!(one.contains_key(name), "{name} is missing");
    }
    assert!(one.keys().any(|name| name.starts_with("figures/") && name.ends_with(".svg")));
    assert!(!one.keys().any(|name| name.starts_with("cells/") || name.ends_with(".partial")), "{:?}", one.keys());
}

#[test]
fn the_table_states_source_seeds_and_intervals() {
    let text = Place::new().run("out", &[]);
    for part in ["simulated", "seeds 1 2", "95 % interval", "engine.max_num_seqs = 8, 400 requests", "SLO TPOT <="] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    for policy in ["fixed-1", "fixed-3", "adaspec", "oracle-goodput"] {
        assert_eq!(text.lines().filter(|l| l.trim_start().starts_with(&format!("{policy} "))).count(), 2, "{text}");
    }
    assert!(!text.lines().any(|l| l.trim_start().starts_with("autoregressive")), "the implied baseline is not shown");
    assert!(text.is_ascii());
}

#[test]
fn the_implied_baseline_is_shown_on_request() {
    let text = Place::new().run("out", &["--show-implied"]);
    assert_eq!(text.lines().filter(|l| l.trim_start().starts_with("autoregressive")).count(), 2, "{text}");
}

#[test]
fn json_is_one_document_with_the_same_numbers() {
    let place = Place::new();
    let document: serde_json::Value = serde_json::from_str(&place.run("out", &["--format", "json"])).unwrap();
    assert_eq!(document["source"], "simulated");
    let variants = document["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 2);
    assert_eq!(variants[1]["sweep"][0]["path"], "engine.max_num_seqs");
    assert_eq!(variants[1]["sweep"][0]["number"], 64.0);
    let policies = variants[0]["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 5);
    assert_eq!(policies[0]["policy"], "autoregressive");
    assert_eq!(policies[0]["implied"], true);
    assert_eq!(policies[0]["speedup"]["mean"], 1.0);
    assert!(policies[1]["speedup"]["mean"].as_f64().unwrap() > 1.0);
    assert_eq!(policies[1]["speedup"]["n"], 2);
    assert!(policies[1]["speedup"]["half_width"].as_f64().unwrap() > 0.0);
    assert_eq!(policies[4]["sees_hidden_truth"], true);
    assert_eq!(policies[4]["regret_to_oracle_goodput"]["mean"], 0.0);
    // The AdaSpec bound is the baseline's own P90: nine in ten of its requests meet it.
    assert!((policies[0]["slo_attainment"]["mean"].as_f64().unwrap() - 0.9).abs() < 0.01);
}

#[test]
fn one_seed_has_no_interval_and_says_so() {
    let text = Place::new().run("out", &["--set", "seeds=[7]"]);
    assert!(text.contains("one seed: no intervals") && !text.contains("+-"), "{text}");
}

#[test]
fn the_resolved_experiment_gives_the_same_results() {
    let place = Place::new();
    place.run("out", &["--set", "engine.block_size=32"]);
    std::fs::copy(place.path("out/experiment.toml"), place.path("x.toml")).unwrap();
    place.run("again", &[]);
    assert!(bytes_of(&place.path("out")) == bytes_of(&place.path("again")));
}

#[test]
fn set_may_sweep_and_default_folder_is_named_by_digest() {
    let place = Place::new();
    let set = "hardware.noise_cv={ sweep = [0.0, 0.1] }";
    let output = place.foretoken().args(["run", "x.toml", "--no-figures", "--set", set]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("hardware.noise_cv = 0.1"));
    let names: Vec<_> = std::fs::read_dir(place.path("results")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1);
    assert!(names[0].to_string_lossy().starts_with("small-"));
}

#[test]
fn a_complete_folder_is_not_run_again() {
    let place = Place::new();
    let first = place.run("out", &[]);
    let before = bytes_of(&place.path("out"));
    assert_eq!(place.run("out", &["--resume"]), first);
    assert!(before == bytes_of(&place.path("out")));
    assert_eq!(place.run("out", &["--overwrite"]), first);
    assert!(before == bytes_of(&place.path("out")));
}

#[test]
fn a_request_that_never_fits_is_rejected_and_shown() {
    let place = Place::new();
    // 20 usable blocks of 16 tokens: the prompts of 128 fit, one of 400 would not.
    std::fs::write(place.path("t.csv"), "t_s,input_tokens,output_tokens\n0.0,128,8\n1.0,400,8\n2.0,128,8\n").unwrap();
    let sets = [
        "--set",
        "workload={ arrivals = { trace = { path = 't.csv' } } }",
        "--set",
        "engine={ num_gpu_blocks = 21 }",
        "--set",
        "seeds=[1]",
    ];
    let output = place.foretoken().args(["run", "x.toml", "-o", "out"]).args(sets).output().unwrap();
    let (text, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{notes}");
    assert!(notes.contains("fixed-1: 1 of 3 requests were rejected"), "{notes}");
    let row = text.lines().find(|l| l.trim_start().starts_with("fixed-1")).unwrap();
    assert!(row.trim_end().ends_with(" 1"), "{text}");
}
