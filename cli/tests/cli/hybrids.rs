//! Hybrid models: the recurrent states that a request holds by K limit how many requests run at once, in every command
//! that simulates an engine.

use crate::support::Place;
use serde_json::{Value, json};

/// An engine with the KV pool of a server of an RTX 3090, which printed 69,758 tokens. A request holds 147 blocks for
/// each of its 1 + K states, and 25 to 27 blocks of tokens.
const EXPERIMENT: &str = r#"
name = "hybrid"
seeds = [1]
policies = [{ autoregressive = {} }, { fixed = { k = 4 } }, { fixed = { k = 7 } }, { fixed = { k = 15 } }]

[hardware]
target = { roofline = { gpu = "rtx-3090", model = { config = "hybrid.json" } } }
draft = { linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.002 } }

[engine]
method = "dflash"
max_draft_len = 15
max_num_seqs = 64
num_gpu_blocks = 4360
draft_kv = "none"
step_overhead_s = 0.0001

[workload]
arrivals = { closed-loop = 32 }
lengths = { fixed = { prompt = 400, output = 20 } }
requests = 96

[acceptance.source]
constant = { rate = 0.7 }

[slo]
e2e_s = 4.0

[capacity]
share = 0.9
requests = 60
warm_up_requests = 6
tolerance = 0.05
"#;

/// The draft lengths, with the number of requests that fit: 4,359 blocks / (25 + 147 · (1 + K)).
const FITS: [(u32, u32); 4] = [(0, 25), (4, 5), (7, 3), (15, 1)];

/// The shape of Qwen3.5-27B in 4 bits: 48 of 64 layers have a recurrent state.
fn place() -> Place {
    let place = Place::holding(EXPERIMENT);
    let layer = |i: usize| if i % 4 == 3 { "full_attention" } else { "linear_attention" };
    let config = json!({
        "model_type": "qwen3_5",
        "text_config": {
            "model_type": "qwen3_5_text", "hidden_size": 5120, "num_hidden_layers": 64, "vocab_size": 248320,
            "intermediate_size": 17408, "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256,
            "attn_output_gate": true, "layer_types": (0..64).map(layer).collect::<Vec<_>>(),
            "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
            "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 48,
            "mamba_ssm_dtype": "float32", "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
            "max_position_embeddings": 262144, "dtype": "bfloat16", "hidden_act": "silu"
        },
        "tie_word_embeddings": false,
        "quantization_config": {
            "quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": true, "data_type": "int",
            "packing_format": "auto_round:auto_gptq"
        }
    });
    std::fs::write(place.path("hybrid.json"), config.to_string()).unwrap();
    place
}

/// The settings of an engine without states in which `fits` requests run at once, however much memory they take.
fn limited(k: u32, fits: u32) -> Vec<String> {
    let policy = if k == 0 { "{ autoregressive = {} }".to_owned() } else { format!("{{ fixed = {{ k = {k} }} }}") };
    vec![
        "engine.state_blocks=0".to_owned(),
        "engine.num_gpu_blocks=100000".to_owned(),
        format!("engine.max_num_seqs={fits}"),
        format!("policies=[{policy}]"),
    ]
}

/// Runs a command with `sets`, and reads the JSON that it prints or, with `file`, writes.
fn answer(place: &Place, args: &[&str], sets: &[String], file: Option<&str>) -> Value {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let out = place.foretoken().args(args).args(sets).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = file.map_or(out.stdout, |file| std::fs::read(place.path(file)).unwrap());
    serde_json::from_slice(&text).unwrap()
}

/// The mean E2E of each policy of a run.
fn run(place: &Place, out: &str, sets: &[String]) -> Vec<f64> {
    let args = ["run", "x.toml", "-o", out, "--no-figures", "--format", "json"];
    let report = answer(place, &args, sets, None);
    let policies = report["variants"][0]["policies"].as_array().unwrap();
    policies.iter().map(|policy| policy["e2e_mean_s"]["mean"].as_f64().unwrap()).collect()
}

/// Where n requests fit, the numbers equal the numbers of an engine that runs at most n requests and has memory enough.
#[test]
fn a_run_and_a_recommendation_hold_the_states_of_each_draft_length() {
    let place = place();
    let whole = run(&place, "whole", &[]);
    let advice = answer(
        &place,
        &["recommend", "x.toml", "-o", "advice", "--longest", "15", "--now", "0", "--format", "json"],
        &[],
        None,
    );
    let candidates = advice["at_loads"][0]["candidates"].as_array().unwrap();
    for ((k, fits), e2e) in FITS.into_iter().zip(whole) {
        let of_n = run(&place, &format!("limited-{k}"), &limited(k, fits));
        assert_eq!(Some(&e2e), of_n.last(), "K = {k}: {fits} requests at once");
        let own = candidates.iter().find(|c| c["fixed"] == true && c["longest"] == k).unwrap();
        let cost = own["cost"].as_f64().unwrap();
        assert!((cost / e2e - 1.0).abs() < 1e-9, "K = {k}: recommend has {cost}, run {e2e}");
    }
}

#[test]
fn capacity_and_fleet_hold_the_states_of_each_draft_length() {
    let place = place();
    let open = "workload.arrivals={ poisson = { rate = 6.0 } }".to_owned();
    let fleet = || vec![open.clone(), "fleet={ router = \"round-robin\", price_gpu_hour = 2.0 }".to_owned()];
    let carried = |out: &str, sets: Vec<String>| -> Vec<f64> {
        let args = ["capacity", "x.toml", "-o", out, "--no-figures"];
        let found = answer(&place, &args, &sets, Some(&format!("{out}/capacity.json")));
        let all = found["capacities"].as_array().unwrap();
        all.iter().map(|c| c["req_s"]["mean"].as_f64().unwrap()).collect()
    };
    let replicas = |out: &str, sets: Vec<String>| -> Vec<u64> {
        let args = ["fleet", "x.toml", "-o", out, "--no-figures"];
        let found = answer(&place, &args, &sets, Some(&format!("{out}/fleet.json")));
        found["fleets"].as_array().unwrap().iter().map(|f| f["replicas"].as_u64().unwrap()).collect()
    };
    let (rates, fleets) = (carried("capacity", vec![open.clone()]), replicas("fleet", fleet()));
    // With memory for all states the longest draft carries another rate.
    let roomy = vec!["engine.state_blocks=0".to_owned(), "engine.num_gpu_blocks=100000".to_owned()];
    let free = carried("roomy", [roomy.clone(), vec![open.clone()]].concat());
    assert!((free[3] / rates[3] - 1.0).abs() > 0.05, "{free:?} with memory enough, {rates:?} with this pool");
    for (at, (k, fits)) in FITS.into_iter().enumerate() {
        let of_n = carried(&format!("capacity-{k}"), [limited(k, fits), vec![open.clone()]].concat());
        assert_eq!(Some(&rates[at]), of_n.last(), "K = {k}: {fits} requests at once");
        let of_n = replicas(&format!("fleet-{k}"), [limited(k, fits), fleet()].concat());
        assert_eq!(Some(&fleets[at]), of_n.last(), "K = {k}: {fits} requests at once");
    }
}

/// A server with a table holds states for the longest length of its table. The command names the batch sizes that
/// therefore never run.
#[test]
fn the_table_for_vllm_holds_the_states_of_its_longest_length() {
    let place = place();
    for (k, fits) in FITS.into_iter().skip(1) {
        let (sizes, longest) = (format!("{fits},{}", fits + 1), format!("engine.max_draft_len={k}"));
        let out = place
            .foretoken()
            .args(["export", "vllm", "x.toml", "--batch-sizes", &sizes, "--method", "dflash", "--model", "d"])
            .args(["--set", &longest, "--set", "policies=[{ autoregressive = {} }]"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{said}");
        let row = |clients: u32| {
            let own = |line: &&str| line.split_whitespace().next() == Some(&clients.to_string());
            said.lines().find(own).unwrap_or_else(|| panic!("no row {clients} in {said}"))
        };
        assert!(!row(fits).contains("not reached"), "K = {k}: {said}");
        let words = format!("not reached: KV memory of 4360 blocks holds at most {fits} requests");
        assert!(row(fits + 1).contains(&words), "K = {k}: {said}");
    }
}
