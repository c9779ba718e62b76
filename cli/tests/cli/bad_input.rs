//! Every kind of bad input must give a clear message with place, hint and exit code, and must leave no files behind.

use crate::support::{EXPERIMENT, Place};

/// Runs the tests' small experiment with the text `from` replaced by `to`. It must be refused as bad input before
/// anything is written. Returns stderr.
fn refused(from: &str, to: &str) -> String {
    assert!(EXPERIMENT.contains(from), "{from} is not in the experiment");
    let place = Place::holding(&EXPERIMENT.replacen(from, to, 1));
    let error = place.fails(&["run", "x.toml", "-o", "out"], 2);
    assert!(!place.path("out").exists(), "something was written before the input was checked");
    error
}

/// Asserts that the error message `error` contains each of the texts `parts`.
fn says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "`{part}` is missing in\n{error}");
    }
}

#[test]
fn broken_toml() {
    says(&refused("[slo]", "[slo"), &["not valid TOML", "x.toml:21"]);
}

#[test]
fn unknown_keys_are_pointed_at_with_the_nearest() {
    says(&refused("max_num_seqs", "max_num_seq"), &["unknown key `max_num_seq`", "x.toml:11:1", "`max_num_seqs`"]);
    says(&refused("[slo]", "[sol]"), &["unknown key `sol`", "did you mean `slo`?"]);
    says(&refused("k = {", "length = {"), &["unknown key `length`", "x.toml:3"]);
    says(&refused("delta_s = 11e-3", "delta = 11e-3"), &["unknown key `delta`", "did you mean `delta_s`?"]);
}

#[test]
fn wrong_types() {
    says(&refused("requests = 200", "requests = \"many\""), &["invalid type: string", "u32", "x.toml:16:12"]);
    says(&refused("requests = 200", "requests = -1"), &["-1", "x.toml:16:12"]);
    says(&refused("seeds = [1, 2]", "seeds = 3"), &["invalid type", "x.toml:2"]);
}

/// At some keys an experiment needs a table. A list of the table's values, or another value, must be refused there.
/// serde alone would accept such a list.
#[test]
fn a_value_in_the_place_of_a_table() {
    let error = refused("constant = { rate = 0.7 }", "constant = 0.7");
    says(
        &error,
        &["`constant` is a table of settings, and 0.7 stands in its place", "write constant = { rate = 0.7 }"],
    );
    let error = refused("constant = { rate = 0.7 }", "by-depth = [0.8, 0.6]");
    says(&error, &["and [0.8, 0.6] stands in its place", "write by-depth = { rates = [0.8, 0.6] }", "x.toml:19"]);
    says(&refused("poisson = { rate = 4.0 }", "poisson = 4.0"), &["write poisson = { rate = 4.0 }"]);
}

#[test]
fn invalid_sweeps_are_refused() {
    says(&refused("max_num_seqs", "max_seqs"), &["unknown key `max_seqs`", "x.toml:11"]);
    says(&refused("[8, 64]", "[]"), &["an empty sweep", "x.toml:11"]);
    says(&refused("[8, 64]", "[8, 64, 8]"), &["the sweep has 8 twice", "x.toml:11:34"]);
    says(&refused("[8, 64]", "8"), &["`sweep` must be a list"]);
    says(&refused("[8, 64]", "[8, \"x\"]"), &["invalid type: string \"x\"", "x.toml:11"]);
    says(&refused("seeds = [1, 2]", "seeds = { sweep = [1, 2] }"), &["`seeds` cannot be swept", "x.toml:2"]);
}

#[test]
fn numbers_out_of_range() {
    says(&refused("delta_s = 11e-3", "delta_s = -11e-3"), &["hardware.target.linear.delta_s", "-0.011", "x.toml:6"]);
    says(&refused("noise_cv = 0.05", "noise_cv = nan"), &["hardware.noise_cv: NaN", "x.toml:8:12"]);
    says(&refused("rate = 4.0", "rate = -4.0"), &["workload.arrivals.poisson.rate: -4", "x.toml:14"]);
    says(&refused("rate = 0.7", "rate = 1.7"), &["acceptance.source.constant.rate", "1.7", "x.toml:19"]);
    says(&refused("adaspec-scale = 1.0", "adaspec-scale = 0.0"), &["slo.adaspec-scale: 0", "x.toml:22"]);
    says(&refused("adaspec-scale = 1.0", "adaspec-scale = 1.0\ntpot_s = 0.1"), &["both bound TPOT", "keep one"]);
    says(&refused("[engine]", "[engine]\nblock_size = 0"), &["engine.block_size", "at least 1", "x.toml:11"]);
}

#[test]
fn invalid_policies_are_refused() {
    let policies = "policies = [{ fixed = { k = { sweep = [1, 3] } } }, { adaspec = {} }, { oracle-goodput = {} }]";
    let with = |list: &str| refused(policies, &format!("policies = {list}"));
    says(&with("[]"), &["the list of policies is empty", "x.toml:3"]);
    says(&with("[{ adaspek = {} }]"), &["unknown name `adaspek`", "did you mean `adaspec`?", "x.toml:3:15"]);
    says(&with("[{ fixed = { k = 1 } }, { fixed = { k = 1 } }]"), &["are the same: both are `fixed-1`", "x.toml:3"]);
    says(&with("[{ fixed = { k = 99 } }]"), &["k", "99", "x.toml:3"]);
    says(&with("[{ fixed = {}, adaspec = {} }]"), &["exactly one choice"]);
}

#[test]
fn draft_lengths_above_the_engines() {
    let place = Place::new();
    let with = |sets: [&str; 2]| place.fails(&["run", "x.toml", "-o", "out", "--set", sets[0], "--set", sets[1]], 2);
    let error = with(["policies=[{ fixed = { k = 9 } }]", "slo={}"]);
    says(&error, &["policies[0].fixed.k: 9", "engine.max_draft_len = 8", "raise engine.max_draft_len to 9"]);
    let error = with(["policies=[{ ema-tier = {} }]", "engine.max_draft_len=5"]);
    says(&error, &["ema-tier.candidates: 7", "engine.max_draft_len = 5"]);
}

#[test]
fn hints_say_what_is_expected() {
    says(&refused("requests = 200", "requests = \"many\""), &["expected a whole number, 0 or more"]);
    says(&refused("delta_s = 11e-3", "delta_s = -11e-3"), &["expected a finite number, 0 or more"]);
    says(&refused("noise_cv = 0.05", "noise_cv = inf"), &["expected a finite number, 0 or more"]);
    let place = Place::new();
    let set = |argument: &str| place.fails(&["run", "x.toml", "-o", "out", "--set", argument], 2);
    says(&set("workload.transform=[{ rate-scale = 0.0 }]"), &["rate-scale", "expected a finite number above 0"]);
    says(&set("workload.arrivals={ closed-loop = 0 }"), &["number of clients", "expected a finite number above 0"]);
    says(&set("workload={ arrivals = { trace = { path = \"\" } } }"), &["the path is empty", "expected the path"]);
    says(&set("engine.max_num_seqs="), &["no value after `=`"]);
}

#[test]
fn invalid_names_and_seeds_are_refused() {
    says(&refused("seeds = [1, 2]", "seeds = [9223372036854775808]"), &["9223372036854775808", "x.toml:2"]);
    says(&refused("name = \"small\"", "name = \"../up\""), &["cannot name a folder", "x.toml:1"]);
    says(&refused("seeds = [1, 2]", "seeds = [1, 1]"), &["seed 1 is given twice", "x.toml:2"]);
    says(&refused("seeds = [1, 2]", "seeds = []"), &["no seeds"]);
}

#[test]
fn overrides_are_pointed_at_in_the_argument() {
    let place = Place::new();
    let set = |argument: &str| place.fails(&["run", "x.toml", "-o", "out", "--set", argument], 2);
    says(&set("engine.max_num_seq=8"), &["unknown key `max_num_seq`", "--set engine.max_num_seq=8", "`max_num_seqs`"]);
    says(&set("engine.wat={ sweep = [1] }"), &["unknown key `wat`"]);
    says(&set("policies.9.fixed.k=1"), &["index 9 is past the end"]);
    says(&set("engine"), &["no `=`"]);
    says(&set("slo.ttft_s=-1"), &["slo.ttft_s: -1", "--set slo.ttft_s=-1"]);
    assert!(!place.path("out").exists());
}

#[test]
fn a_missing_experiment() {
    says(&Place::new().fails(&["run", "nowhere.toml"], 2), &["nowhere.toml", "a shipped experiment: quickstart"]);
}

/// Runs the experiment on a trace with this text. The run must be refused and must leave no folder behind. A folder
/// that existed before must stay empty. Returns stderr.
fn on_trace(text: &str) -> String {
    let arrivals = "arrivals = { poisson = { rate = 4.0 } }";
    let place =
        Place::holding(&EXPERIMENT.replacen(arrivals, "arrivals = { trace = { path = \"t.csv\" } }", 1).replacen(
            "lengths = { fixed = { prompt = 128, output = 64 } }\nrequests = 200\n",
            "",
            1,
        ));
    std::fs::write(place.path("t.csv"), text).unwrap();
    let error = place.fails(&["run", "x.toml", "-o", "new/out"], 2);
    assert!(!place.path("new").exists(), "a run that came to nothing left its folder behind");
    // If the output folder existed before, it stays, and stays empty.
    std::fs::create_dir(place.path("mine")).unwrap();
    assert_eq!(place.fails(&["run", "x.toml", "-o", "mine"], 2), error);
    assert_eq!(std::fs::read_dir(place.path("mine")).unwrap().count(), 0);
    error
}

#[test]
fn traces_that_cannot_be_used() {
    const HEADER: &str = "t_s,input_tokens,output_tokens\n";
    let rows = |rows: &str| on_trace(&format!("{HEADER}{rows}"));
    says(&rows("0.0,10,5\n1.0,ten,5\n"), &["t.csv:3", "input_tokens", "ten"]);
    says(&rows("1.0,10,5\n0.5,10,5\n"), &["t.csv:3", "unsorted"]);
    says(&rows("0.0,10,5\n1.0,-3,5\n"), &["t.csv:3", "input_tokens"]);
    says(&rows(""), &["t.csv"]);
    says(&on_trace("a,b\n1,2\n"), &["t.csv", "no known format", "a, b"]);
}

#[test]
fn a_missing_or_unreadable_trace_is_pointed_at() {
    let arrivals = "arrivals = { poisson = { rate = 4.0 } }";
    let with = |path: &str| {
        let text = EXPERIMENT.replacen(arrivals, &format!("arrivals = {{ trace = {{ path = \"{path}\" }} }}"), 1);
        text.replacen("requests = 200\n", "", 1)
    };
    let error = Place::holding(&with("gone.csv")).fails(&["run", "x.toml", "-o", "out"], 2);
    says(&error, &["gone.csv", "no such file", "x.toml:14"]);
    let place = Place::holding(&with("folder"));
    std::fs::create_dir(place.path("folder")).unwrap();
    says(&place.fails(&["run", "x.toml", "-o", "out"], 2), &["folder", "x.toml:14"]);
    let error = Place::holding(&with("${FORETOKEN_TRACES}/t.csv")).fails(&["run", "x.toml", "-o", "out"], 2);
    says(&error, &["FORETOKEN_TRACES is not set", "x.toml:14", "FORETOKEN_TRACES=/path/to/folder"]);
}

#[test]
fn prompts_longer_than_the_pool() {
    let place = Place::new();
    let error = place.fails(&["run", "x.toml", "-o", "out", "--set", "engine={ num_gpu_blocks = 4 }"], 2);
    says(&error, &["not one of 200 requests can ever fit", "128 tokens", "num_gpu_blocks"]);
    assert!(!place.path("out").exists());
}

#[test]
fn the_limit_that_rejects_every_request_is_named() {
    let place = Place::new();
    let with = |engine: &str| place.fails(&["run", "x.toml", "-o", "out", "--set", &format!("engine={engine}")], 2);
    says(&with("{ max_model_len = 128 }"), &["engine.max_model_len = 128"]);
    says(&with("{ num_gpu_blocks = 10 }"), &["prompt + output outgrow the KV pool of 9 blocks"]);
    says(&with("{ draft_kv = { separate = { blocks = 4 } } }"), &["fixed-1", "draft_kv.separate.blocks"]);
}

#[test]
fn an_output_folder_in_use() {
    let place = Place::new();
    place.run_drawn("out", &[]);
    says(&place.fails(&["run", "x.toml", "-o", "out"], 2), &["is not empty", "--resume", "--overwrite"]);
    let other = ["run", "x.toml", "-o", "out", "--resume", "--set", "seeds=[9]"];
    says(&place.fails(&other, 2), &["results of another experiment", "--overwrite"]);

    std::fs::create_dir(place.path("mine")).unwrap();
    std::fs::write(place.path("mine/thesis.tex"), "precious").unwrap();
    says(&place.fails(&["run", "x.toml", "-o", "mine", "--resume"], 2), &["holds no run to resume"]);
    says(&place.fails(&["run", "x.toml", "-o", "mine", "--overwrite"], 2), &["thesis.tex", "not a result"]);
    assert_eq!(std::fs::read(place.path("mine/thesis.tex")).unwrap(), b"precious");
}

#[test]
fn a_folder_that_cannot_be_made() {
    let error = Place::new().fails(&["run", "x.toml", "-o", "x.toml/out"], 1);
    says(&error, &["cannot make the results folder", "-o"]);
}
