//! Files and output of a run: folder, table, JSON. Equal runs must give equal bytes.

use crate::support::{Place, bytes_of};

#[test]
fn thread_count_changes_no_byte() {
    let place = Place::new();
    let one = place.run_drawn("one", &["--threads", "1"]);
    let two = place.run_drawn("two", &["--threads", "2"]);
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
    for part in [
        "simulated", "seeds 1 2", "95 % interval", "most running requests = 8 requests, 200 requests a seed",
        " requests/s, ", " output tokens/s, SLO TPOT <=",
    ] {
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
    let [low, mean, high] = ["low", "mean", "high"].map(|end| policies[1]["speedup"][end].as_f64().unwrap());
    assert!(0.0 < low && low < mean && mean < high, "{low} {mean} {high}");
    assert_eq!(policies[4]["sees_hidden_truth"], true);
    assert_eq!(policies[4]["regret_to_oracle_goodput"]["mean"], 0.0);
    // The AdaSpec bound is the P90 TPOT of the baseline, so nine of ten requests of the baseline meet the bound.
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
    place.run_drawn("out", &["--set", "engine.block_size=32"]);
    std::fs::copy(place.path("out/experiment.toml"), place.path("x.toml")).unwrap();
    place.run_drawn("again", &[]);
    assert!(bytes_of(&place.path("out")) == bytes_of(&place.path("again")));
}

#[test]
fn set_may_sweep_and_default_folder_is_named_by_digest() {
    let place = Place::new();
    let set = "hardware.noise_cv={ sweep = [0.0, 0.1] }";
    let output = place.foretoken().args(["run", "x.toml", "--no-figures", "--set", set]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("noise of pass times = 0.1"));
    let names: Vec<_> = std::fs::read_dir(place.path("results")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1);
    assert!(names[0].to_string_lossy().starts_with("small-"));
}

#[test]
fn a_complete_folder_is_not_run_again() {
    let place = Place::new();
    let first = place.run_drawn("out", &[]);
    let before = bytes_of(&place.path("out"));
    assert_eq!(place.run_drawn("out", &["--resume"]), first);
    assert!(before == bytes_of(&place.path("out")));
    assert_eq!(place.run_drawn("out", &["--overwrite"]), first);
    assert!(before == bytes_of(&place.path("out")));
}

#[test]
fn a_request_that_never_fits_is_rejected_and_shown() {
    let place = Place::new();
    // There are 20 usable KV blocks of 16 tokens. Prompts of 128 tokens fit, and a prompt of 400 tokens would not.
    std::fs::write(place.path("t.csv"), "t_s,input_tokens,output_tokens\n0.0,128,8\n1.0,400,8\n2.0,128,8\n").unwrap();
    let sets = [
        "--set", "workload={ arrivals = { trace = { path = 't.csv' } } }", "--set", "engine={ num_gpu_blocks = 21 }",
        "--set", "seeds=[1]",
    ];
    let output = place.foretoken().args(["run", "x.toml", "-o", "out"]).args(sets).output().unwrap();
    let (text, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{notes}");
    assert!(notes.contains("every policy: requests that can never run were rejected: the prompt is longer"), "{notes}");
    let row = text.lines().find(|l| l.trim_start().starts_with("fixed-1")).unwrap();
    assert!(row.trim_end().ends_with(" 1"), "{text}");
}

/// Two variants (swept values) with different numbers of KV blocks: the legend must give the number of blocks of each.
#[test]
fn the_legend_gives_the_pool_of_each_variant() {
    let place = Place::new();
    let pools =
        ["--set", "engine={ num_gpu_blocks = { sweep = [101, 202] }, draft_kv = { equal-split = { ratio = 1.0 } } }"];
    let text = place.run("varies", &pools);
    for part in ["KV 100 blocks, 49 with a drafter", "KV 201 blocks, 100 with a drafter", "KV: varies"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let text = place.run("split", &["--set", "engine={ draft_kv = { equal-split = { ratio = 1.0 } } }"]);
    assert!(text.contains("KV: 8191 blocks without a drafter, 4095 with one: its weights and its KV"), "{text}");
    let text = place.run("own", &["--set", "engine={ draft_kv = { separate = { blocks = 900 } } }"]);
    assert!(text.contains("pool of its own, 900 blocks, beside the target's 8191"), "{text}");
    assert!(text.contains("does not speculate in a step that it expects to miss it"), "{text}");
    assert!(!place.run("free", &["--set", "slo={}"]).contains("not speculating"));
}

#[test]
fn options_that_a_complete_folder_cannot_serve_are_reported() {
    let place = Place::new();
    place.run_drawn("out", &["--no-figures"]);
    let output = place.foretoken().args(["run", "x.toml", "-o", "out", "--resume", "--show-implied"]).output().unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(notes.contains("run without figures") && notes.contains("lacks the implied run"), "{notes}");
}

/// The results folder has a copy of the experiment with all settings written out. A run of this copy from the results
/// folder is the same experiment.
#[test]
fn the_resolved_experiment_runs_from_the_results_folder() {
    let place = Place::new();
    std::fs::create_dir(place.path("data")).unwrap();
    std::fs::write(place.path("data/t.csv"), "t_s,input_tokens,output_tokens\n0.0,128,8\n1.0,40,8\n").unwrap();
    let set = ["--set", "workload={ arrivals = { trace = { path = 'data/t.csv' } } }"];
    let first = place.run("deep/out", &set);
    let mut again = place.foretoken();
    again.current_dir(place.path("deep/out")).args(["run", "experiment.toml", "-o", "../again"]);
    let again = again.output().unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(String::from_utf8(again.stdout).unwrap(), first);
    let text = |out: &str| std::fs::read_to_string(place.path(out).join("experiment.toml")).unwrap();
    assert!(text("deep/out").contains("path = \"../../data/t.csv\""), "{}", text("deep/out"));
    assert_eq!(text("deep/out"), text("deep/again"));
}

/// The experiment of these tests runs with each of `parts`: settings, such as a draft method or a cost model, that
/// replace settings of the experiment.
#[test]
fn every_kind_of_part_runs() {
    let place = Place::new();
    let parts = [
        "engine={ version = 'vllm-v0', max_model_len = 2048 }",
        "engine={ version = 'vllm-0.32', method = 'eagle3' }",
        "engine={ draft_kv = { equal-split = { ratio = 0.1 } } }",
        "engine={ draft_kv = { separate = { blocks = 900 } } }",
        "hardware.context_reads=per-position",
        "acceptance.source={ by-depth = { rates = [0.8, 0.6, 0.4] } }",
        "workload={ arrivals = { closed-loop = 4 }, lengths = { fixed = { prompt = 64, output = 16 } }, requests = 30 }",
        "hardware.draft={ staircase = { steps = [[1, 1e-3], [64, 2e-3]], alpha_s = 0.0, tail_gamma_s = 1e-5, \
         tail_delta_s = 1e-3 } }",
    ];
    for (i, part) in parts.iter().enumerate() {
        let small = ["--no-figures", "--set", "seeds=[1]", "--set", "workload.requests=30", "--set", part];
        let text = place.run_drawn(&format!("out{i}"), &small);
        assert!(text.contains("fixed-3") && text.contains("30 requests"), "{part}\n{text}");
    }
}

/// A shipped experiment runs on real traces.
#[test]
fn adaspec_conv_runs_on_real_traces() {
    let Some(traces) = foretoken_tests::traces() else { return };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments/adaspec-conv.toml");
    let few = ["--set", "workload.transform=[{ max-requests = 40 }]", "--set", "seeds=[1]", "--no-figures"];
    let place = Place::new();
    let mut command = place.foretoken();
    command.env("FORETOKEN_TRACES", traces).args(["run", file, "-o", "out"]).args(few);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().contains("40 requests"));
}

/// The number in a column of one row of the table that `--why` prints, in milliseconds.
fn milliseconds(row: &str, column: usize) -> f64 {
    row.split_whitespace().filter(|w| !w.starts_with("+-")).nth(column).unwrap().parse().unwrap()
}

#[test]
fn why_splits_the_difference_to_plain_decoding() {
    let place = Place::new();
    let text = place.run_drawn("out", &["--why", "--no-figures"]);
    let (table, why) = text.split_once("\nWhy: ").unwrap();
    assert!(table.contains("speedup") && why.contains("engine.max_num_seqs = 8"), "{text}");
    let rows: Vec<&str> = why.lines().filter(|l| l.starts_with(" fixed-") || l.starts_with(" adaspec")).collect();
    assert_eq!(rows.len(), 6, "{why}");
    for row in rows {
        let parts: f64 = (2..10).map(|column| milliseconds(row, column)).sum();
        // The difference and its eight parts are each rounded to 0.1 ms. So the sum of the parts may differ from the
        // difference by 9 · 0.05 ms.
        assert!((parts - milliseconds(row, 1)).abs() < 0.46, "{row}");
        assert!(
            milliseconds(row, 2) < 0.0 && milliseconds(row, 3) > 0.0,
            "fewer target passes, more draft passes: {row}"
        );
    }
    assert!(why.contains(" than plain decoding, mostly because of "), "{why}");
    // A resumed run prints the same `--why` table from the stored results. `report.json` has the parts without
    // rounding.
    let again = place.run_drawn("out", &["--why", "--no-figures", "--resume"]);
    assert_eq!(again.split_once("\nWhy: ").unwrap().1, why);
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(place.path("out/report.json")).unwrap()).unwrap();
    for variant in json["variants"].as_array().unwrap() {
        let policies = variant["policies"].as_array().unwrap();
        let e2e = |p: &serde_json::Value| p["e2e_mean_s"]["mean"].as_f64().unwrap();
        let plain = policies.iter().find(|p| p["policy"] == "autoregressive").unwrap();
        assert_eq!(plain.get("why"), None);
        for policy in policies.iter().filter(|p| p["policy"] != "autoregressive") {
            let parts = policy["why"]["parts_s"].as_object().unwrap().values();
            let sum: f64 = parts.map(|part| part["mean"].as_f64().unwrap()).sum();
            let difference = e2e(policy) - e2e(plain);
            assert!((sum - difference).abs() < 1e-9 * e2e(plain), "{sum} is not {difference}: {policy}");
        }
    }
}

#[test]
fn without_another_policy_there_is_nothing_to_explain() {
    let place = Place::new();
    let args = ["run", "x.toml", "-o", "out", "--no-figures", "--why", "--set", "policies=[{ autoregressive = {} }]"];
    let output = place.foretoken().args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no policy here can be compared with plain decoding"), "{said}");
    assert!(said.contains("add one to `policies`"), "{said}");
}
