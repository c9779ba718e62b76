//! Tests that read the `config.json` files of many model families. Some files have faults, which must give errors or
//! warnings.

mod block_sparse;
mod blocks;
mod compressed;
mod gemma4;
mod groups;
mod indexers;
mod kimi;
mod mimo;
mod quantised;
mod releases;
mod removed;

use super::read;
use crate::hardware::models::{Attention, Bits, FeedForward, entry};
use serde_json::{Value, json};

fn dense() -> Value {
    json!({
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": false,
    })
}

/// `config` with the keys of `changes` set to new values. A null removes the key.
fn with(mut config: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn fault(config: &Value) -> String {
    read(&config.to_string(), "m").unwrap_err().to_string()
}

#[test]
fn a_dense_file_is_its_preset() {
    let read = read(&dense().to_string(), "llama-3.1-8b").unwrap();
    assert_eq!(read.shape, entry("llama-3.1-8b").unwrap().shape);
    assert_eq!((read.mtp, read.warnings), (None, vec![]));
}

#[test]
fn faults_name_the_key_and_what_to_do() {
    for (changes, wanted) in [
        (json!({ "model_type": "rwkv9" }), "model_type: `rwkv9` is not known"),
        (json!({ "model_type": null }), "model_type: missing"),
        (json!({ "hidden_size": null }), "hidden_size: missing"),
        (json!({ "hidden_size": 0 }), "hidden_size: 0 is not a whole number of at least 1"),
        (json!({ "vocab_size": -3 }), "vocab_size: -3 is not"),
        (json!({ "num_hidden_layers": "many" }), "num_hidden_layers: \"many\" is not"),
        (json!({ "num_key_value_heads": 5 }), "num_key_value_heads: 5 does not divide num_attention_heads 32"),
        (json!({ "num_attention_heads": 33, "num_key_value_heads": 33 }), "33 heads do not divide hidden_size 4096"),
        (json!({ "layer_types": ["full_attention"] }), "layer_types: lists 1 layers of 32"),
        (json!({ "num_experts": 8 }), "num_experts_per_tok: missing"),
        (json!({ "num_experts": 8, "num_experts_per_tok": 9 }), "9 of 8 experts cannot be active"),
        (json!({ "quantization_config": { "quant_method": "magic" } }), "quantization_config.quant_method: `magic`"),
        (json!({ "torch_dtype": "int3" }), "torch_dtype: `int3`"),
    ] {
        let said = fault(&with(dense(), changes));
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
    assert!(read("{", "m").unwrap_err().to_string().starts_with("line 1: this is not JSON"));
    assert!(read("[1]", "m").unwrap_err().to_string().contains("a config.json is a JSON object"));
}

#[test]
fn an_unknown_key_is_a_warning() {
    let read = read(&with(dense(), json!({ "hyper_loops": 3, "rope_theta": 5e5 })).to_string(), "m").unwrap();
    assert_eq!(read.warnings, ["`hyper_loops` is not modelled"]);
}

#[test]
fn layers_are_grouped_by_kind() {
    let shape = &entry("deepseek-v3").unwrap().shape;
    let [dense, sparse] = shape.layers.as_slice() else { panic!("{:?}", shape.layers) };
    assert_eq!((dense.count, sparse.count), (3, 58));
    assert!(matches!(dense.feed_forward, FeedForward::Dense { intermediate: 18_432, .. }));
    let FeedForward::Experts { total: 256, active: 8, shared_intermediate: 2048, .. } = sparse.feed_forward else {
        panic!("{sparse:?}")
    };
    // In DeepSeek-V3 a token stores 512 + 64 numbers of 2 bytes in each of 61 layers. Every GPU of a tensor-parallel
    // group holds all these numbers.
    let work = shape.work();
    assert_eq!((work.kv_bytes_token(1.0), work.kv_bytes_token(8.0)), (70_272.0, 8.0 * 70_272.0));
    // A token uses about 37 billion of DeepSeek-V3's 671 billion weights.
    assert!((shape.active_parameters() / 37.5e9 - 1.0).abs() < 0.02, "{}", shape.active_parameters());
}

#[test]
fn windows_and_states_are_read() {
    let windows = |name: &str| {
        let has = |g: &&crate::hardware::models::LayerGroup| {
            matches!(g.attention, Attention::Grouped { window: Some(_), .. })
        };
        entry(name).unwrap().shape.layers.iter().filter(has).map(|g| g.count).sum::<u32>()
    };
    assert_eq!((windows("gpt-oss-120b"), windows("gemma-2-9b"), windows("qwen2.5-7b")), (18, 21, 0));
    // Gemma 3 27B has 62 layers. Every sixth layer attends to all tokens, the other 52 have a window.
    assert_eq!(windows("gemma-3-27b"), 52);
    let hybrid = &entry("qwen3-next-80b-a3b").unwrap().shape;
    let states = hybrid.layers.iter().filter(|g| matches!(g.attention, Attention::Recurrent { .. }));
    assert_eq!((states.map(|g| g.count).sum::<u32>(), hybrid.num_layers()), (36, 48));
}

#[test]
fn quantised_files_have_fewer_bits() {
    let bits = |name: &str| entry(name).unwrap().shape.bits;
    let all = Bits::default();
    assert_eq!(bits("llama-3.1-8b"), all);
    let fp8 = Bits { weights: 8.0, experts: 8.0, activations: 8.0, expert_activations: 8.0, ..all };
    assert_eq!(bits("deepseek-v3"), fp8);
    // Only the experts of gpt-oss are quantised.
    assert_eq!(bits("gpt-oss-120b"), Bits { experts: 4.25, ..all });
}

#[test]
fn an_mtp_module_is_one_layer_and_a_matrix() {
    let module = &entry("deepseek-v3-mtp").unwrap().shape;
    assert_eq!((module.num_layers(), module.joining_parameters), (1, 2.0 * 7168.0 * 7168.0));
    // The MTP module of DeepSeek-V3 has 11.6 billion weights without the embedding and the output head, which are the
    // target's.
    let own = module.parameters() - module.head_parameters();
    assert!((own / 11.61e9 - 1.0).abs() < 0.01, "{own}");
}

#[test]
fn an_eagle_head_reads_two_hidden_states_and_has_its_own_vocabulary() {
    let head = &entry("eagle3-llama-3.1-8b").unwrap().shape;
    assert_eq!((head.vocab, head.num_layers()), (32_000, 1));
    assert!((head.parameters() / 424.7e6 - 1.0).abs() < 0.001, "{}", head.parameters());
}
