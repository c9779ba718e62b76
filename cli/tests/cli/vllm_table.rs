//! `export vllm` writes a table of draft lengths by batch size. Each row comes from whole closed loops over all seeds.
//! A message names the batch sizes without a row.

use crate::support::{EXPERIMENT, Place};
use serde_json::Value;

/// [`EXPERIMENT`] with `engine.max_num_seqs` = 64 and without a sweep over this setting.
fn one() -> Place {
    Place::holding(&EXPERIMENT.replace("{ sweep = [8, 64] }", "64"))
}

/// Runs `foretoken export vllm x.toml` with the arguments `more`. Returns the JSON and stderr.
fn table(place: &Place, more: &[&str]) -> (Value, String) {
    let output = place.foretoken().args(["export", "vllm", "x.toml"]).args(more).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

/// The line for one batch size in the messages on stderr.
fn row(said: &str, size: u32) -> &str {
    let found = said.lines().find(|l| l.split_whitespace().next() == Some(&size.to_string()));
    found.unwrap_or_else(|| panic!("no row {size} in\n{said}"))
}

#[test]
fn the_best_table_goes_out_as_vllms_config() {
    // Tokens are cheap in small batches and expensive in large ones, so the best draft length falls with the batch
    // size.
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
    // An experiment can run with the written configuration.
    let policy = format!(
        "policies=[{{ vllm-dynamic = {{ num_speculative_tokens_per_batch_size = {} }} }}]",
        Value::from(table.clone())
    );
    place.run("out", &["--set", &policy]);
}

#[test]
fn rows_come_from_all_seeds_and_one_seed_has_no_intervals() {
    let (_, said) = table(&one(), &["--batch-sizes", "1,8"]);
    for size in [1, 8] {
        let numbers: Vec<&str> = row(&said, size).split_whitespace().take(8).collect();
        assert_eq!(numbers[1], size.to_string(), "everything fits, and steps schedule all clients: {said}");
        assert!(numbers[2..].iter().all(|n| n.parse::<u32>().is_ok()), "{said}");
    }
    let lengths = said.split("Each length against the fastest").nth(1).unwrap();
    assert!(lengths.contains(" +-") && lengths.contains("length 8"), "{said}");
    assert!(said.contains("interval over 2 seeds"), "{said}");
    let (_, said) = table(&one(), &["--batch-sizes", "8", "--set", "seeds=[1]"]);
    assert!(said.contains("One seed: no intervals") && said.contains("note: several seeds tell"), "{said}");
    assert!(!said.split("clients: each").next().unwrap().contains("+-"), "{said}");
}

#[test]
fn unreachable_batch_sizes_are_reported_and_left_out() {
    // The third batch size is beyond the engine's limit, and the fourth is beyond any limit.
    let args = ["--batch-sizes", "4,16,32,1000000", "--set", "engine.max_num_seqs=16"];
    let (config, said) = table(&one(), &args);
    let ranges = config["num_speculative_tokens_per_batch_size"].as_array().unwrap();
    assert_eq!(ranges.last().unwrap()[1], 16, "{config}");
    for size in [32, 1_000_000] {
        assert!(row(&said, size).contains("not reached: engine.max_num_seqs = 16"), "{said}");
    }
    let place = one();
    let error = place.fails(&["export", "vllm", "x.toml", "--batch-sizes", "1000000"], 2);
    assert!(error.contains("no batch size was reached") && error.contains("engine.max_num_seqs"), "{error}");
    let sets = ["--set", "engine.max_num_seqs=100000", "--set", "engine.max_num_batched_tokens=1000000"];
    let more = ["--set", "engine.num_gpu_blocks=10000000", "--batch-sizes", "50000"];
    let args = [&["export", "vllm", "x.toml"][..], &sets, &more].concat();
    assert!(place.fails(&args, 2).contains("sizes up to 4096 are tried"));
}

/// 100 KV blocks hold twelve requests with prompts of 128 tokens, and fewer requests when they have grown to 192
/// tokens. So steps schedule fewer requests than there are clients. The batch sizes in the table count scheduled
/// requests.
#[test]
fn a_row_stands_for_the_batch_size_that_its_loop_schedules() {
    let (config, said) = table(&one(), &["--batch-sizes", "4,11,12,40", "--set", "engine.num_gpu_blocks=100"]);
    let scheduled: u32 = row(&said, 11).split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((5..11).contains(&scheduled), "{said}");
    assert!(row(&said, 12).contains("not reached: steps schedule") && row(&said, 12).contains("KV memory"), "{said}");
    assert!(row(&said, 40).contains("KV memory of 100 blocks holds at most 12 requests"), "{said}");
    let ranges = config["num_speculative_tokens_per_batch_size"].as_array().unwrap();
    assert_eq!(ranges.last().unwrap()[1], scheduled, "{config}");
}

/// An experiment with requests of one length on a server with linear costs. `rate` is the share of draft tokens that
/// are right, `draft_s` the seconds of a draft pass.
fn one_length(prompt: u32, output: u32, rate: f64, draft_s: f64) -> Place {
    Place::holding(&format!(
        "name = 'one-length'
        seeds = [1, 2, 3]
        policies = [{{ fixed = {{ k = 1 }} }}]
        hardware.target.linear = {{ alpha_s = 0.3e-6, gamma_s = 55e-6, delta_s = 11e-3 }}
        hardware.draft.linear = {{ alpha_s = 0.0, gamma_s = 0.0, delta_s = {draft_s:e} }}
        workload.arrivals = {{ closed-loop = 1 }}
        workload.lengths.fixed = {{ prompt = {prompt}, output = {output} }}
        workload.requests = 100
        acceptance.source.constant.rate = {rate}
        engine.max_draft_len = 5"
    ))
}

/// The draft length that the table has for a batch size, looked up in the way of vLLM.
fn looked_up(config: &Value, size: u64) -> u64 {
    let ranges = config["num_speculative_tokens_per_batch_size"].as_array().unwrap();
    let begun = ranges.iter().rev().find(|range| range[0].as_u64().unwrap() <= size).unwrap();
    begun[2].as_u64().unwrap()
}

/// Measured separately, closed loops of 32 clients give 1,993 tok/s at draft length 1, 2,488 at 4 and 2,405 at 5.
#[test]
fn a_perfect_free_draft_is_not_used_for_one_token() {
    let (config, said) = table(&one_length(64, 16, 1.0, 0.0), &["--batch-sizes", "32"]);
    assert_eq!(looked_up(&config, 32), 4, "{said}");
    assert!(row(&said, 32).contains("next is 5: -3."), "{said}");
}

/// Measured separately, closed loops of 16 clients have a TPOT of 11.9 ms at draft length 1, and of 10.7 ms at lengths
/// 3 and 4.
#[test]
fn requests_of_one_length_get_the_length_that_is_fastest_in_a_loop() {
    let (config, said) = table(&one_length(128, 32, 0.85, 0.5e-3), &["--batch-sizes", "16"]);
    assert!((3..=4).contains(&looked_up(&config, 16)), "{said}");
    assert!(row(&said, 16).split_whitespace().nth(4).unwrap() != "1", "{said}");
}

/// An H100 runs Llama-3.1-8B with a draft model of 1B parameters, at the lengths of the Azure code trace. Prompts take
/// most of the time. With more draft tokens, fewer clients decode at the same time.
#[test]
fn long_prompts_of_a_real_trace_count_in_every_row() {
    let Some(traces) = foretoken_tests::traces() else { return };
    let trace = traces.join("azure/AzureLLMInferenceTrace_code.csv");
    let place = Place::holding(&format!(
        "name = 'azure-code'
        seeds = [1, 2, 3]
        policies = [{{ fixed = {{ k = 1 }} }}]
        hardware.target.roofline = {{ gpu = 'h100', model = 'llama-3.1-8b' }}
        hardware.draft.roofline = {{ gpu = 'h100', model = 'llama-3.2-1b' }}
        workload.arrivals.trace.path = '{}'
        acceptance.source.constant.rate = 0.7",
        trace.display()
    ));
    let (config, said) = table(&place, &["--batch-sizes", "8,16"]);
    let numbers: Vec<u64> = row(&said, 16).split_whitespace().take(8).map(|n| n.parse().unwrap()).collect();
    let [clients, scheduled, length, .., table, _plain] = numbers[..] else { panic!("{said}") };
    assert!(clients == 16 && scheduled < 16, "clients wait for the token budget: {said}");
    assert_eq!((length, looked_up(&config, scheduled)), (1, 1), "{said}");
    // A server that drafts by the exported table of draft lengths is as fast, within 1 %, as a server with one fixed
    // draft length, the table's entry. A server without a drafter is faster.
    let alone = numbers[3];
    assert!(table.abs_diff(alone) * 100 <= alone, "{said}");
    assert!(said.contains("without a drafter the server is faster than with any length: at 8 clients"), "{said}");
}

#[test]
fn export_refuses_a_sweep_with_a_hint() {
    let error = Place::new().fails(&["export", "vllm", "x.toml"], 2);
    assert!(error.contains("engine.max_num_seqs (8, 64)") && error.contains("a table is for one setting"), "{error}");
    assert!(error.contains("--set engine.max_num_seqs=8"), "{error}");
    let both = ["--set", "workload.arrivals.poisson.rate={ sweep = [1.0, 2.0] }"];
    let error = Place::new().fails(&[&["export", "vllm", "x.toml"][..], &both].concat(), 2);
    assert!(error.contains("max_num_seqs") && !error.contains("poisson.rate ("), "{error}");
}

#[test]
fn a_missing_draft_name_is_reported() {
    let (config, said) = table(&one(), &["--batch-sizes", "4"]);
    assert!(config.get("method").is_none() && said.contains("names no method and no model"), "{said}");
    assert!(said.contains("--method") && said.contains("--model"), "{said}");
    let (_, said) = table(&one(), &["--batch-sizes", "4", "--method", "eagle3"]);
    assert!(said.contains("names no model") && !said.contains("no method"), "{said}");
    let (_, said) = table(&one(), &["--batch-sizes", "4", "--method", "ngram"]);
    assert!(!said.contains("names no"), "{said}");
}

/// Runs the experiment and the command of `docs/experiments.md` on a small trace.
#[test]
fn the_export_example_of_the_documentation_works() {
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

/// The form of vLLM's open RFC #48627, the gain of each cell, and an experiment that can run the table.
#[test]
fn a_table_by_context_goes_out_as_the_rfc_proposes_it() {
    // A token of context is dear, and so is a token of a batch: short contexts in large batches want fewer drafts.
    let costs = EXPERIMENT.replace("gamma_s = 55e-6", "gamma_s = 400e-6").replace("{ sweep = [8, 64] }", "64");
    let place = Place::holding(&costs);
    let args = ["export", "vllm-context", "x.toml", "--batch-sizes", "1,8,32", "--contexts", "200,1600"];
    let sets =
        ["--set", "hardware.target.linear.alpha_s=3e-6", "--set", "engine.num_gpu_blocks=40000", "--set", "seeds=[1]"];
    let output = place.foretoken().args(args).args(sets).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    let table = config["num_speculative_tokens_per_batch_size"].as_array().unwrap();
    let by_context: Vec<&Value> = table.iter().filter(|cell| cell.as_array().unwrap().len() == 5).collect();
    let k = |cell: &Value| cell[4].as_u64().unwrap();
    assert!(by_context.len() >= 2 && by_context.len().is_multiple_of(2), "{config}");
    assert!(by_context.chunks(2).all(|cells| k(cells[0]) < k(cells[1])), "more context, longer drafts: {config}");
    assert!(said.contains("200 tokens") && said.contains("Nothing is") && said.contains("RFC #48627"), "{said}");
    assert!(said.contains("Where contexts are mixed"), "{said}");
    assert!(
        place.fails(&["export", "vllm-context", "x.toml", "--contexts", "200"], 2).contains("two contexts at least")
    );
}
