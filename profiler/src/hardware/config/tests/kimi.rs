//! Tests with Kimi Linear and Kimi K3: layers with a recurrent state, and output gates.

use super::{fault, with};
use crate::hardware::config::read;
use crate::hardware::models::{Attention, FeedForward, LayerGroup, ModelShape, entry};
use serde_json::{Value, json};

fn file() -> Value {
    json!({
        "model_type": "kimi_linear", "hidden_size": 7168, "vocab_size": 163840, "num_hidden_layers": 4,
        "num_attention_heads": 96, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 33792, "moe_intermediate_size": 3072,
        "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "first_k_dense_replace": 1,
        "linear_attn_config": {
            "kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 96, "head_dim": 128,
        },
    })
}

fn shape(config: &Value) -> ModelShape {
    read(&config.to_string(), "m").unwrap().shape
}

/// The number of weights of the first layer's attention and of the last layer's attention, in the model that `config`
/// describes.
fn ends(config: &Value) -> (f64, f64) {
    let layers = shape(config).layers;
    let weights = |group: &LayerGroup| group.attention.parameters(7168);
    (weights(&layers[0]), weights(&layers[layers.len() - 1]))
}

#[test]
fn gates_of_full_rank_have_their_weights() {
    let mut gated = with(file(), json!({ "mla_use_output_gate": true }));
    gated["linear_attn_config"]["use_full_rank_gate"] = json!(true);
    let ((low, plain), (full, with_gate)) = (ends(&file()), ends(&gated));
    let width = 96.0 * 128.0;
    assert_eq!(full - low, 7168.0 * width - 128.0 * (7168.0 + width));
    assert_eq!(with_gate - plain, 7168.0 * width);
}

#[test]
fn k3_has_24_layers_of_attention_and_experts_of_half_the_width() {
    let k3 = &entry("kimi-k3").unwrap().shape;
    let count = |which: fn(&LayerGroup) -> bool| k3.layers.iter().filter(|g| which(g)).map(|g| g.count).sum::<u32>();
    assert_eq!(count(|g| matches!(g.attention, Attention::Latent { gated: true, .. })), 24);
    assert_eq!(count(|g| matches!(g.attention, Attention::Recurrent { .. })), 69);
    let narrow = |g: &LayerGroup| {
        matches!(g.feed_forward, FeedForward::Experts { latent: Some(3584), shared_intermediate: 6144, .. })
    };
    assert_eq!(count(narrow), 92);
    // The expected number of Kimi K3's weights is the published count without the vision tower, minus the weights of 92
    // routers of 896 rows. Of these expected weights, the shape leaves out only the norms.
    let routers = 92.0 * 896.0 * 7168.0;
    assert!((k3.parameters() / (2_779_484_478_208.0 - routers) - 1.0).abs() < 1e-5, "{}", k3.parameters());
    // The weights of Kimi K3's experts have 4 bits, and 32 weights share a scale of 8 bits. The other parts are not
    // quantised.
    assert_eq!((k3.bits.experts, k3.bits.weights, k3.bits.dense), (4.25, 16.0, None));
    assert_eq!(entry("kimi-k3").unwrap().warnings, ["`text_config.attn_res_block_size` is not modelled"]);
}

#[test]
fn each_layer_is_named_once() {
    for changes in [
        json!({ "kda_layers": [1, 2] }),
        json!({ "kda_layers": [1, 2, 3, 4] }),
        json!({ "full_attn_layers": [4, 5] }),
        json!({ "kda_layers": [0, 1, 2], "full_attn_layers": null }),
    ] {
        let mut config = file();
        config["linear_attn_config"] = with(config["linear_attn_config"].clone(), changes);
        let said = fault(&config);
        assert!(said.contains("linear_attn_config.kda_layers: with full_attn_layers it must name each of"), "{said}");
    }
    let mut config = file();
    config["linear_attn_config"]["full_attn_layers"] = Value::Null;
    assert_eq!(shape(&config), shape(&file()));
}
