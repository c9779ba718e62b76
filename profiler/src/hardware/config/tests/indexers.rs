//! Tests with GLM-5.2: layers that attend to the tokens that an earlier layer chose.

use super::{fault, with};
use crate::hardware::config::read;
use crate::hardware::models::{Attention, FeedForward, entry};
use serde_json::{Value, json};

fn file() -> Value {
    json!({
        "model_type": "glm_moe_dsa", "hidden_size": 6144, "vocab_size": 154880, "num_hidden_layers": 8,
        "num_attention_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64, "v_head_dim": 256, "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048,
        "intermediate_size": 12288, "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8,
        "n_shared_experts": 1, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1,
    })
}

/// Of the layers of the model that `config` describes: (number with an indexer, which chooses tokens; number that take
/// the choice of an earlier layer).
fn own_and_taken(config: &Value) -> (u32, u32) {
    let layers = read(&config.to_string(), "m").unwrap().shape.layers;
    let count = |taken| {
        let with = layers.iter().filter(|g| g.attention.selection().unwrap().taken == taken);
        with.map(|g| g.count).sum::<u32>()
    };
    (count(false), count(true))
}

#[test]
fn a_list_letters_and_a_schedule_say_the_same() {
    assert_eq!(own_and_taken(&file()), (8, 0));
    let listed = json!(["full", "full", "full", "shared", "shared", "shared", "full", "shared"]);
    for changes in [
        json!({ "indexer_types": listed }),
        json!({ "index_topk_pattern": "FFFSSSFS" }),
        json!({ "index_topk_freq": 4, "index_skip_topk_offset": 3 }),
    ] {
        assert_eq!(own_and_taken(&with(file(), changes)), (4, 4));
    }
}

#[test]
fn a_taken_choice_costs_no_indexer_and_keeps_no_key() {
    let (five, five_two) = (&entry("glm-5").unwrap().shape, &entry("glm-5.2").unwrap().shape);
    // In GLM-5.2, 57 of 78 layers have no indexer. An indexer has weights for queries (from 2,048 numbers), and for a
    // key and head weights (from 6,144 numbers). It stores a key of 128 bytes a token.
    let indexer = 2048.0 * 32.0 * 128.0 + 6144.0 * (128.0 + 32.0);
    assert_eq!(five.parameters() - five_two.parameters(), 57.0 * indexer);
    let kv = |s: &crate::hardware::models::ModelShape| s.work().kv_bytes_token(1.0);
    assert_eq!(kv(five) - kv(five_two), 57.0 * 128.0);
    // Layers without an indexer attend to the 2,048 tokens that an earlier layer chose.
    let chosen = five_two.work().attention.into_iter().find(|a| a.by_token).unwrap();
    assert_eq!((chosen.window, chosen.bytes), (Some(2048.0), 78.0 * 576.0 * 2.0));
    let module = &entry("glm-5.2-mtp").unwrap().shape;
    assert_eq!(module.layers, entry("glm-5-mtp").unwrap().shape.layers);
}

#[test]
fn dense_layers_can_be_listed() {
    let types = json!(["dense", "sparse", "dense", "sparse", "sparse", "sparse", "sparse", "sparse"]);
    let shape = read(&with(file(), json!({ "mlp_layer_types": types })).to_string(), "m").unwrap().shape;
    let dense = shape.layers.iter().filter(|g| matches!(g.feed_forward, FeedForward::Dense { .. }));
    assert_eq!(dense.map(|g| g.count).sum::<u32>(), 2);
}

#[test]
fn faults_of_lists_are_named() {
    for (changes, wanted) in [
        (json!({ "indexer_types": ["full"] }), "indexer_types: lists 1 layers of 8"),
        (json!({ "indexer_types": ["half"] }), "indexer_types: `half` is not one of"),
        (json!({ "indexer_types": "full" }), "indexer_types: expected a list of texts"),
        (json!({ "index_topk_pattern": "FFX" }), "index_topk_pattern: `X` is not one of"),
        (json!({ "index_topk_pattern": "SFFFFFFF" }), "index_topk_pattern: gives the first layer no indexer"),
        (json!({ "index_topk_freq": 0 }), "index_topk_freq: 0 is not"),
        (json!({ "mlp_layer_types": ["dense"] }), "mlp_layer_types: lists 1 layers of 8"),
        (json!({ "mlp_layer_types": vec!["soft"; 8] }), "mlp_layer_types: `soft` is not one of"),
        (json!({ "index_topk": null }), "index_topk: missing"),
    ] {
        let said = fault(&with(file(), changes));
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
}

#[test]
fn newer_names_of_sparse_layers_are_known() {
    let named = |name: &str| with(file(), json!({ "layer_types": vec![name; 8] }));
    let shape = read(&named("deepseek_sparse_attention").to_string(), "m").unwrap().shape;
    assert!(matches!(shape.layers[0].attention, Attention::Latent { selection: Some(_), .. }));
    assert_eq!(shape, read(&named("indexed_attention").to_string(), "m").unwrap().shape);
}
