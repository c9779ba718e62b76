//! `foretoken ask http://…`: what a server says of itself becomes the line, the load and the acceptance of a question.

use crate::serve::{EXPERIMENT, Server};
use crate::support::Place;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

/// Answers of a server by path. Returns its address. It ends with the test's process.
fn answers(pages: Vec<(&'static str, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut head = String::new();
            let mut lines = BufReader::new(connection.try_clone().unwrap());
            while lines.read_line(&mut head).unwrap() > 2 {}
            let path = head.split(' ').nth(1).unwrap_or("/");
            let page = pages.iter().find(|(at, _)| *at == path).map(|(_, page)| page);
            let (status, body) = page.map_or(("404 Not Found", ""), |page| ("200 OK", page.as_str()));
            let length = body.len();
            let whole = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            connection.write_all(whole.as_bytes()).unwrap();
        }
    });
    format!("http://{address}")
}

/// The answer, and the experiment that was run.
fn asked(place: &Place, line: &str, more: &[&str]) -> (Value, toml::Table) {
    let more = [more, &["--batch-sizes", "1", "--format", "json", "--out", "q.toml", "--overwrite"]].concat();
    let output = place.foretoken().args(["ask", line, "--gpu", "h200"]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let experiment = std::fs::read_to_string(place.path("q.toml")).unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), experiment.parse().unwrap())
}

fn model(root: &str, owner: &str) -> String {
    json!({ "object": "list", "data": [{ "id": "served", "root": root, "owned_by": owner, "max_model_len": 512 }] })
        .to_string()
}

/// Our own server after some requests: its limits, its acceptance by position and the means of its requests come back.
#[test]
fn our_own_server_says_what_it_does() {
    let place = Place::holding(EXPERIMENT);
    let server = Server::start(&place, &[]);
    for _ in 0..25 {
        server.json("/v1/completions", r#"{"prompt": [1, 2, 3, 4], "max_tokens": 40, "ignore_eos": true}"#);
    }
    let line = format!("http://{}", server.address);
    let (answer, experiment) = asked(&place, &line, &["--config", "llama-3.1-8b"]);
    let engine = &experiment["engine"];
    for (key, value) in [("num_gpu_blocks", 500), ("block_size", 16), ("max_model_len", 1024)] {
        assert_eq!(engine[key].as_integer(), Some(value), "{key} of {experiment}");
    }
    assert_eq!(engine["prefix_caching"].as_bool(), Some(true));
    let rates = experiment["acceptance"]["source"]["by-depth"]["rates"].as_array().unwrap();
    assert_eq!(rates.len(), 3, "{rates:?}");
    // Each is right with 0.7; 250 rounds and more leave 0.09 at three standard deviations.
    assert!(rates.iter().all(|r| (r.as_float().unwrap() - 0.7).abs() < 0.1), "{rates:?}");
    let lengths = &experiment["workload"]["lengths"]["log-normal"];
    assert_eq!((lengths["prompt"]["mean"].as_float(), lengths["output"]["mean"].as_float()), (Some(4.0), Some(40.0)));
    let assumed = answer["assumed"].to_string();
    for words in ["drafts 3 tokens and does not say how: eagle3", "rounds that it counted", "25 that it counted"] {
        assert!(assumed.contains(words), "{words}: {assumed}");
    }
    assert_eq!(answer["now"], "K = 3");
    let paste = answer["paste"].as_str().unwrap_or("num_speculative_tokens");
    assert!(paste.contains("num_speculative_tokens") || paste.contains("remove"), "{paste}");
    // What the user says goes before what the server counted, and flags follow the address.
    let more = ["--config", "llama-3.1-8b", "--input", "100", "--output", "20", "--accept", "marginal=0.5,0.2"];
    let (answer, experiment) = asked(&place, &format!("{line} --tensor-parallel-size 2 --max-num-seqs 9"), &more);
    assert_eq!(experiment["hardware"]["target"]["roofline"]["tensor_parallel"].as_integer(), Some(2));
    assert_eq!(experiment["engine"]["max_num_seqs"].as_integer(), Some(9));
    assert_eq!(experiment["workload"]["lengths"]["log-normal"]["prompt"]["mean"].as_float(), Some(100.0));
    assert!(!answer["assumed"].to_string().contains("that it counted"), "{answer}");
}

/// The metrics of a real vLLM 0.32 after one request: too little for an average. Its configuration, as its
/// `/server_info` names it, is read without metrics too.
#[test]
fn a_recorded_vllm_is_read() {
    let place = Place::new();
    let metrics = include_str!("../../../servers/fixtures/vllm-0.32-metrics.txt");
    let pages = vec![
        ("/v1/models", model("Qwen/Qwen3-8B", "vllm")),
        ("/version", json!({ "version": "0.32.0" }).to_string()),
        ("/metrics", metrics.to_owned()),
    ];
    let load = ["--clients", "2", "--input", "100", "--output", "20"];
    let url = answers(pages.clone());
    let (answer, experiment) = asked(&place, &url, &load);
    let engine = &experiment["engine"];
    assert_eq!((engine["num_gpu_blocks"].as_integer(), engine["block_size"].as_integer()), (Some(10_922), Some(32)));
    assert_eq!(experiment["hardware"]["target"]["roofline"]["memory_utilization"].as_float(), Some(0.92));
    assert_eq!((engine["prefix_caching"].as_bool(), &answer["now"]), (Some(false), &"K = 3".into()));
    let assumed = answer["assumed"].to_string();
    assert!(!assumed.contains("that it counted") && assumed.contains("VLLM_SERVER_DEV_MODE=1"), "{assumed}");
    let read = answer["read"].as_str().unwrap();
    assert!(read.starts_with("vllm serve Qwen/Qwen3-8B --max-model-len 512 --block-size 32"), "{read}");

    let config = json!({ "vllm_config": {
        "model_config": { "model": "Qwen/Qwen3-8B", "max_model_len": 4096, "quantization": null },
        "parallel_config": { "tensor_parallel_size": 2, "pipeline_parallel_size": 1, "data_parallel_size": 1,
            "enable_expert_parallel": false },
        "scheduler_config": { "max_num_seqs": 32, "max_num_batched_tokens": 4096, "enable_chunked_prefill": true,
            "async_scheduling": true, "disable_hybrid_kv_cache_manager": true },
        "cache_config": { "block_size": 16, "cache_dtype": "fp8_e4m3", "gpu_memory_utilization": 0.9,
            "enable_prefix_caching": true, "num_gpu_blocks": 30_000, "kv_cache_size_tokens": 100_000 },
        "speculative_config": { "method": "eagle3", "model": "AngelSlim/Qwen3-8B_eagle3",
            "num_speculative_tokens": 5, "draft_model_config": { "model": "AngelSlim/Qwen3-8B_eagle3" } },
    } });
    let url = answers([pages[..2].to_vec(), vec![("/server_info?config_format=json", config.to_string())]].concat());
    let (answer, experiment) = asked(&place, &url, &load);
    let engine = &experiment["engine"];
    for (key, value) in [
        ("max_num_seqs", 32),
        ("max_num_batched_tokens", 4096),
        ("max_model_len", 4096),
        ("num_gpu_blocks", 30_000),
        ("sliding_window", 0),
    ] {
        assert_eq!(engine[key].as_integer(), Some(value), "{key} of {experiment}");
    }
    let roofline = &experiment["hardware"]["target"]["roofline"];
    assert_eq!((roofline["tensor_parallel"].as_integer(), roofline["kv_bits"].as_float()), (Some(2), Some(8.0)));
    assert_eq!((engine["method"].as_str(), &answer["now"]), (Some("eagle3"), &"K = 5".into()));
    if let Some(paste) = answer["paste"].as_str() {
        let changes = [" -> ", "remove "].iter().any(|words| paste.contains(words));
        assert!(paste.starts_with(&format!("in the flags of {url}:")) && changes, "{paste}");
    }
}

/// SGLang's arguments, by the names of 0.5.23, and its average length of acceptance.
#[test]
fn sglangs_arguments_are_flags() {
    let place = Place::new();
    let info = json!({
        "model_path": "Qwen/Qwen3-8B", "tp_size": 2, "pp_size": 1, "dp_size": 1, "ep_size": 1,
        "enable_dp_attention": false, "max_running_requests": 48, "chunked_prefill_size": 4096,
        "context_length": null, "mem_fraction_static": 0.8, "max_total_tokens": null, "max_total_num_tokens": 160_000,
        "kv_cache_dtype": "auto", "page_size": 1, "quantization": null, "disable_radix_cache": true,
        "schedule_policy": "lof", "schedule_conservativeness": 0.7, "enable_mixed_chunk": true,
        "disable_overlap_schedule": true, "max_prefill_tokens": 8192, "radix_eviction_policy": "lfu",
        "enable_priority_scheduling": false, "enable_hierarchical_cache": false, "disaggregation_mode": "null",
        "speculative_adaptive": false, "speculative_adaptive_config": null,
        "speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "AngelSlim/Qwen3-8B_eagle3",
        "speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4,
        "internal_states": [{ "avg_spec_accept_length": 2.2 }], "version": "0.5.23",
    });
    let pages = vec![("/v1/models", model("Qwen/Qwen3-8B", "sglang")), ("/get_server_info", info.to_string())];
    let (answer, experiment) = asked(&place, &answers(pages), &["--clients", "2", "--input", "100", "--output", "20"]);
    let engine = &experiment["engine"];
    assert_eq!((engine["max_num_seqs"].as_integer(), engine["num_gpu_blocks"].as_integer()), (Some(48), Some(160_000)));
    assert_eq!((engine["prefix_caching"].as_bool(), &answer["now"]), (Some(false), &"K = 3".into()));
    assert_eq!(engine["async_scheduling"].as_bool(), Some(false));
    let sglang = &engine["sglang"];
    assert_eq!(
        (sglang["schedule_policy"].as_str(), sglang["radix_eviction_policy"].as_str()),
        (Some("lof"), Some("lfu"))
    );
    assert_eq!(
        (sglang["schedule_conservativeness"].as_float(), sglang["enable_mixed_chunk"].as_bool()),
        (Some(0.7), Some(true))
    );
    assert_eq!(sglang["max_prefill_tokens"].as_integer(), Some(8192));
    // r + r^2 + r^3 = 1.2.
    let rate = experiment["acceptance"]["source"]["constant"]["rate"].as_float().unwrap();
    assert!((rate + rate.powi(2) + rate.powi(3) - 1.2).abs() < 1e-4, "{rate}");
}

#[test]
fn a_server_that_cannot_be_asked_is_one_error() {
    let place = Place::new();
    let ask = |line: &str| {
        let output = place.foretoken().args(["ask", line, "--gpu", "h200"]).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(ask(&format!("http://{closed}")).contains("cannot be reached"));
    let empty = answers(vec![("/v1/models", json!({ "data": [] }).to_string())]);
    assert!(ask(&empty).contains("names no model in /v1/models"));
    let other = answers(vec![("/v1/models", model("acme/secret-9b", "vllm"))]);
    let said = ask(&other);
    assert!(said.contains("no preset has the shape of acme/secret-9b") && said.contains("--config"), "{said}");
}
