//! Tests with MiniMax-M3: grouped attention to blocks of tokens that an indexer chooses.

use super::{fault, with};
use crate::hardware::config::read;
use crate::hardware::models::{Attention, AttentionWork, Bits, FeedForward, LayerGroup, entry};
use serde_json::{Value, json};

fn file(sparse: Value) -> Value {
    let table = json!({
        "use_sparse_attention": true, "sparse_attention_freq": [0, 1, 1], "sparse_disable_index_value": [0, 1, 1],
        "sparse_block_size": 128, "sparse_topk_blocks": 16, "sparse_index_dim": 128, "sparse_num_index_heads": 4,
    });
    json!({
        "model_type": "minimax_m3", "hidden_size": 6144, "vocab_size": 200064, "num_hidden_layers": 3, "head_dim": 128,
        "num_attention_heads": 64, "num_key_value_heads": 4, "intermediate_size": 3072, "moe_layer_freq": [0, 1, 1],
        "dense_intermediate_size": 12288, "num_local_experts": 128, "num_experts_per_tok": 4, "n_shared_experts": 1,
        "shared_intermediate_size": 3072, "sparse_attention_config": with(table, sparse),
    })
}

fn layers(config: &Value) -> Vec<LayerGroup> {
    read(&config.to_string(), "m").unwrap().shape.layers
}

#[test]
fn sparse_layers_have_an_indexer_and_dense_layers_none() {
    let found = layers(&file(json!({})));
    let [dense, sparse] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((dense.count, sparse.count), (1, 2));
    assert!(matches!(dense.feed_forward, FeedForward::Dense { intermediate: 12_288, .. }));
    assert_eq!(dense.attention.selection(), None);
    // The indexer projects the input to four query heads and one key, 128 numbers each.
    assert_eq!(sparse.attention.parameters(6144) - dense.attention.parameters(6144), 6144.0 * 5.0 * 128.0);
    let all = layers(&file(json!({ "use_sparse_attention": false })));
    assert!(all.iter().all(|group| group.attention.selection().is_none()));
}

#[test]
fn chosen_blocks_are_read_and_keys_are_kept_in_16_bits() {
    let work = entry("minimax-m3").unwrap().shape.work();
    let find = |which: fn(&&AttentionWork) -> bool| work.attention.iter().find(which).unwrap();
    // 57 layers attend to 16 blocks of 128 tokens each. In each layer, a token's KV has a key and a value for each of 4
    // heads, with 128 numbers of 2 bytes.
    let chosen = find(|a| a.by_token);
    assert_eq!((chosen.window, chosen.bytes, chosen.split), (Some(2048.0), 57.0 * 2048.0, 4.0));
    assert_eq!(chosen.pair_flops, 57.0 * 4.0 * 64.0 * 128.0);
    let keys = find(|a| !a.by_token && a.split == 1.0);
    assert_eq!((keys.window, keys.bytes, keys.pair_flops), (None, 57.0 * 256.0, 57.0 * 2.0 * 4.0 * 128.0));
    assert_eq!(work.kv_bytes_token(1.0), 60.0 * 2048.0 + 57.0 * 256.0);
}

#[test]
fn what_is_missing_or_not_modelled_is_an_error() {
    for (changes, wanted) in [
        (json!({ "sparse_attention_freq": [0, 1] }), "sparse_attention_freq: lists 2 layers of 3"),
        (json!({ "sparse_attention_freq": null }), "sparse_attention_freq: missing"),
        (json!({ "sparse_disable_index_value": [1] }), "sparse_disable_index_value: lists 1 layers of 3"),
        (json!({ "sparse_disable_index_value": [0, 0, 1] }), "an indexer with values is not modelled"),
        (json!({ "sparse_block_size": 0 }), "sparse_block_size: 0 is not"),
        (json!({ "sparse_block_size": 1_000_000_000u32 }), "sparse_block_size: too many tokens"),
        (json!({ "sparse_index_dim": null }), "sparse_index_dim: missing"),
    ] {
        let said = fault(&file(changes));
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
    let said = fault(&with(file(json!({})), json!({ "attention_output_gate": true })));
    assert!(said.contains("attention_output_gate: true; the width of this gate is not known"), "{said}");
    let windows = json!({ "sliding_window": 128, "layer_types": vec!["sliding_attention"; 3] });
    let said = fault(&with(file(json!({})), windows));
    assert!(said.contains("chooses tokens in a layer that does not attend to all of them"), "{said}");
    let latent = json!({
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    });
    let said = fault(&with(file(json!({})), latent));
    assert!(said.contains("chosen blocks of latent vectors are not modelled"), "{said}");
}

#[test]
fn a_window_and_a_selection_exclude_each_other() {
    let mut shape = read(&file(json!({})).to_string(), "m").unwrap().shape;
    if let Attention::Grouped { window, .. } = &mut shape.layers[1].attention {
        *window = Some(128);
    }
    assert!(shape.check().unwrap_err().to_string().contains("has a window and a selection"));
    assert_eq!(shape.bits, Bits::default());
}
