//! `export vllm`: rows that were reached, from every seed, and what is said of the rest.

use crate::support::{EXPERIMENT, Place};
use serde_json::Value;

/// [`EXPERIMENT`] with one engine.
fn one() -> Place {
    Place::holding(&EXPERIMENT.replace("{ sweep = [8, 64] }", "64"))
}

/// `foretoken export vllm x.toml` with more arguments: the JSON and stderr.
fn table(place: &Place, more: &[&str]) -> (Value, String) {
    let output = place.foretoken().args(["export", "vllm", "x.toml"]).args(more).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

/// The line of a batch size.
fn row(said: &str, size: u32) -> &str {
    let found = said.lines().find(|l| l.split_whitespace().next() == Some(&size.to_string()));
    found.unwrap_or_else(|| panic!("no row {size} in\n{said}"))
}

#[test]
fn the_best_table_goes_out_as_vllms_config() {
    // Cheap tokens at first, dear ones in large batches: the best length falls with the batch size.
    let place =
        Place::holding(&EXPERIMENT.replace("gamma_s = 55e-6", "gamma_s = 400e-6").replace("{ sweep = [8, 64] }", "64"));
    let args = ["export", "vllm", "x.toml", "--batch-sizes", "1,8,32", "--method", "eagle", "--model", "draft"];
    let output = place.foretoken().args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    let table = config["num_speculative_tokens_per_batch_size"].as_array().unwrap();
    let k = |i: usize| table[i][2].as_u64().unwrap();
    assert_eq!(table[0][0], 1);
    assert!(table.len() > 1 && k(0) > k(table.len() - 1), "{config}");
    assert_eq!(config["num_speculative_tokens"].as_u64(), Some(k(0)));
    assert_eq!((&config["method"], &config["model"]), (&"eagle".into(), &"draft".into()));
    // What was written runs as it is.
    let policy = format!(
        "policies=[{{ vllm-dynamic = {{ num_speculative_tokens_per_batch_size = {} }} }}]",
        Value::from(table.clone())
    );
    place.run("out", &["--set", &policy]);
}

#[test]
fn rows_have_their_steps_and_an_interval_over_all_seeds() {
    let (_, said) = table(&one(), &["--batch-sizes", "1,8"]);
    for size in [1, 8] {
        let row = row(&said, size);
        let steps: u64 = row.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(steps >= 200, "{row}");
        assert!(row.contains(" % [") && row.contains("against length"), "{row}");
    }
    assert!(said.contains("interval over 2 seeds"), "{said}");
    let (_, said) = table(&one(), &["--batch-sizes", "8", "--set", "seeds=[1]"]);
    assert!(said.contains("One seed: no intervals") && !row(&said, 8).contains('['), "{said}");
}

#[test]
fn what_the_engine_cannot_reach_is_said_and_not_filled_in() {
    // One batch larger than the engine, and one larger than anything.
    let args = ["--batch-sizes", "4,16,32,1000000", "--set", "engine.max_num_seqs=16"];
    let (config, said) = table(&one(), &args);
    let ranges = config["num_speculative_tokens_per_batch_size"].as_array().unwrap();
    assert_eq!(ranges.last().unwrap()[1], 16, "{config}");
    for size in [32, 1_000_000] {
        assert!(row(&said, size).contains("not reached: engine.max_num_seqs = 16"), "{said}");
    }
    // 100 blocks hold twelve prompts of 128 tokens, and fewer requests that have grown to 192.
    let place = one();
    let (config, said) = table(&place, &["--batch-sizes", "4,11,40", "--set", "engine.num_gpu_blocks=100"]);
    assert!(row(&said, 40).contains("KV memory of 100 blocks holds at most 12 requests"), "{said}");
    assert!(row(&said, 11).contains("not reached"), "{said}");
    assert_eq!(config["num_speculative_tokens_per_batch_size"][0][1], 4, "{config}");
    let error = place.fails(&["export", "vllm", "x.toml", "--batch-sizes", "1000000"], 2);
    assert!(error.contains("no batch size was reached") && error.contains("engine.max_num_seqs"), "{error}");
    let sets = ["--set", "engine.max_num_seqs=100000", "--set", "engine.max_num_batched_tokens=1000000"];
    let more = ["--set", "engine.num_gpu_blocks=10000000", "--batch-sizes", "50000"];
    let args = [&["export", "vllm", "x.toml"][..], &sets, &more].concat();
    assert!(place.fails(&args, 2).contains("sizes up to 4096 are tried"));
}

#[test]
fn a_sweep_that_matters_is_refused_with_what_to_write() {
    let error = Place::new().fails(&["export", "vllm", "x.toml"], 2);
    assert!(error.contains("engine.max_num_seqs (8, 64)") && error.contains("a table is for one setting"), "{error}");
    assert!(error.contains("--set engine.max_num_seqs=8"), "{error}");
    let both = ["--set", "workload.arrivals.poisson.rate={ sweep = [1.0, 2.0] }"];
    let error = Place::new().fails(&[&["export", "vllm", "x.toml"][..], &both].concat(), 2);
    assert!(error.contains("max_num_seqs") && !error.contains("poisson.rate ("), "{error}");
}

#[test]
fn a_draft_without_a_name_is_said() {
    let (config, said) = table(&one(), &["--batch-sizes", "4"]);
    assert!(config.get("method").is_none() && said.contains("names no method and no model"), "{said}");
    assert!(said.contains("--method") && said.contains("--model"), "{said}");
    let (_, said) = table(&one(), &["--batch-sizes", "4", "--method", "eagle3"]);
    assert!(said.contains("names no model") && !said.contains("no method"), "{said}");
    let (_, said) = table(&one(), &["--batch-sizes", "4", "--method", "ngram"]);
    assert!(!said.contains("names no"), "{said}");
}

/// The experiment and the command of `docs/experiments.md`, on a small trace.
#[test]
fn the_documents_line_works_as_printed() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/experiments.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let mine = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(mine.starts_with("name = \"mine\"") && readme.contains("foretoken export vllm mine.toml"), "{mine}");
    let place = Place::holding("");
    std::fs::write(place.path("mine.toml"), mine).unwrap();
    let rows: String = (0..80).map(|i| format!("{}.0,{},{}\n", i, 60 + i % 7, 40 + i % 5)).collect();
    std::fs::write(place.path("my-requests.csv"), format!("t_s,input_tokens,output_tokens\n{rows}")).unwrap();
    let args = ["export", "vllm", "mine.toml", "--batch-sizes", "1,4"];
    let output = place.foretoken().args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("rate-scale makes no difference to closed loops"), "{said}");
    assert!(said.contains("the preset vicuna-68m"), "{said}");
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(config["num_speculative_tokens"].as_u64() > Some(0), "{config}");
}
