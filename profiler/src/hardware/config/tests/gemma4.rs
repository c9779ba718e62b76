//! Tests with Gemma 4: layers without a window have another number and size of heads than layers with a window, and
//! each layer has a dense block beside its experts.

use super::{fault, with};
use crate::hardware::config::read;
use crate::hardware::models::{Attention, FeedForward, entry};
use serde_json::{Value, json};

fn file() -> Value {
    json!({
        "model_type": "gemma4_text", "hidden_size": 2816, "vocab_size": 262144, "num_hidden_layers": 6, "head_dim": 256,
        "num_attention_heads": 16, "num_key_value_heads": 8, "global_head_dim": 512, "num_global_key_value_heads": 2,
        "attention_k_eq_v": true, "sliding_window": 1024, "intermediate_size": 2112, "enable_moe_block": true,
        "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704, "hidden_size_per_layer_input": 0,
    })
}

/// The attention of the first and of the last layer of the model that `config` describes.
fn ends(config: &Value) -> (Attention, Attention) {
    let layers = read(&config.to_string(), "m").unwrap().shape.layers;
    (layers[0].attention, layers[layers.len() - 1].attention)
}

#[test]
fn layers_with_and_without_a_window_have_their_own_heads() {
    let (window, full) = ends(&file());
    let Attention::Grouped { kv_heads: 8, head_dim: 256, window: Some(1024), values_from_keys: false, .. } = window
    else {
        panic!("{window:?}")
    };
    let Attention::Grouped { kv_heads: 2, head_dim: 512, window: None, values_from_keys: true, .. } = full else {
        panic!("{full:?}")
    };
    // The layer has matrices for queries, keys and output. A layer with a value projection has one more matrix.
    assert_eq!(full.parameters(2816), 2816.0 * 512.0 * (16.0 + 2.0 + 16.0));
    assert_eq!(window.parameters(2816), 2816.0 * 256.0 * (16.0 + 8.0 + 8.0 + 16.0));
    let (_, plain) = ends(&with(file(), json!({ "attention_k_eq_v": false })));
    let Attention::Grouped { kv_heads: 8, head_dim: 512, values_from_keys: false, .. } = plain else {
        panic!("{plain:?}")
    };
}

#[test]
fn keys_and_values_are_both_kept() {
    let work = entry("gemma-4-26b-a4b").unwrap().shape.work();
    // 25 layers have 8 KV heads of 256 numbers, and 5 layers have 2 KV heads of 512 numbers. Each head stores a key and
    // a value, with 2 bytes a number.
    assert_eq!(work.kv_bytes_token(1.0), 4.0 * (25.0 * 8.0 * 256.0 + 5.0 * 2.0 * 512.0));
}

#[test]
fn a_dense_block_stands_beside_the_experts() {
    let block = |config: &Value| read(&config.to_string(), "m").unwrap().shape.layers[0].feed_forward;
    let FeedForward::Experts { total: 128, active: 8, intermediate: 704, shared_intermediate: 2112, .. } =
        block(&file())
    else {
        panic!("{:?}", block(&file()))
    };
    let dense = block(&with(file(), json!({ "enable_moe_block": false })));
    assert!(matches!(dense, FeedForward::Dense { intermediate: 2112, .. }), "{dense:?}");
}

#[test]
fn what_is_missing_or_not_modelled_is_an_error() {
    for (changes, wanted) in [
        (json!({ "global_head_dim": null }), "global_head_dim: missing; the layers of this family have heads"),
        (json!({ "head_dim": null }), "head_dim: missing"),
        (json!({ "num_global_key_value_heads": 3 }), "num_global_key_value_heads: 3 does not divide"),
        (json!({ "num_experts": null }), "num_experts: missing; enable_moe_block is true"),
        (json!({ "top_k_experts": null }), "num_experts_per_tok: missing"),
        (json!({ "num_kv_shared_layers": 2 }), "num_kv_shared_layers: layers that read the KV of another layer"),
        (json!({ "hidden_size_per_layer_input": 256 }), "hidden_size_per_layer_input: embeddings of their own"),
    ] {
        let said = fault(&with(file(), changes));
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
}
