//! Tests with MiMo-V2: values are narrower than keys, and layers with a window have another number of KV heads.

use super::{fault, with};
use crate::hardware::config::read;
use crate::hardware::models::{Attention, entry};
use serde_json::{Value, json};

fn file() -> Value {
    json!({
        "model_type": "mimo_v2_flash", "hidden_size": 4096, "vocab_size": 152576, "num_hidden_layers": 2,
        "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128,
        "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128,
        "sliding_window": 128, "hybrid_layer_pattern": [0, 1], "intermediate_size": 16384, "moe_layer_freq": [0, 0],
    })
}

#[test]
fn values_are_narrower_than_keys() {
    let layers = read(&file().to_string(), "m").unwrap().shape.layers;
    let [full, window] = [0, 1].map(|i| layers[i].attention);
    assert!(matches!(full, Attention::Grouped { kv_heads: 4, value_dim: Some(128), window: None, .. }), "{full:?}");
    assert!(matches!(window, Attention::Grouped { kv_heads: 8, window: Some(128), .. }), "{window:?}");
    let wanted = |kv: f64| 4096.0 * (64.0 * 192.0 + kv * 192.0 + kv * 128.0 + 64.0 * 128.0);
    assert_eq!((full.parameters(4096), window.parameters(4096)), (wanted(4.0), wanted(8.0)));
    // 9 layers attend to all tokens and 39 have a window. Each KV head stores 320 numbers (key and value) of 2 bytes in
    // both kinds of layer.
    let work = entry("mimo-v2-flash").unwrap().shape.work();
    assert_eq!(work.kv_bytes_token(1.0), 640.0 * (9.0 * 4.0 + 39.0 * 8.0));
    let all = work.attention.iter().find(|a| a.window.is_none()).unwrap();
    assert_eq!(all.pair_flops, 9.0 * 2.0 * 64.0 * 320.0);
}

#[test]
fn faults_are_named() {
    for (changes, wanted) in [
        (json!({ "hybrid_layer_pattern": [0] }), "hybrid_layer_pattern: lists 1 layers of 2"),
        (json!({ "hybrid_layer_pattern": [0, 2] }), "hybrid_layer_pattern: 2 is not 0 or 1"),
        (json!({ "sliding_window": null }), "has a layer with a window, and sliding_window is missing"),
        (json!({ "swa_head_dim": null }), "swa_head_dim: missing"),
        (json!({ "swa_num_key_value_heads": 7 }), "swa_num_key_value_heads: 7 does not divide swa_num_attention_heads"),
        (json!({ "v_head_dim": null }), "v_head_dim: missing"),
    ] {
        let said = fault(&with(file(), changes));
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
}
