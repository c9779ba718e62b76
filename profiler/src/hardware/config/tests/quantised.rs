//! Tests that read the bits of a model's parts from `quantization_config`.

use super::{dense, fault, with};
use crate::hardware::config::read;
use crate::hardware::models::Bits;
use serde_json::{Value, json};

/// A `config.json` with routed and shared experts and with the `quantization_config` `quantised`.
fn file(quantised: Value) -> Value {
    let experts = json!({
        "model_type": "glm4_moe", "first_k_dense_replace": 0, "n_routed_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 1024,
        "n_shared_experts": 1, "quantization_config": quantised,
    });
    with(dense(), experts)
}

fn bits(config: &Value) -> Bits {
    read(&config.to_string(), "m").unwrap().shape.bits
}

fn of(weights: f64, dense: Option<f64>, experts: f64) -> Bits {
    let as_wide = |bits: f64| match bits {
        4.5 => 4.0,
        other => other,
    };
    Bits {
        weights,
        dense,
        experts,
        activations: as_wide(weights),
        dense_activations: dense.map(as_wide),
        expert_activations: as_wide(experts),
        ..Bits::default()
    }
}

/// The full names of the modules `names` in each of 32 layers.
fn layers(names: &[&str]) -> Vec<String> {
    (0..32).flat_map(|i| names.iter().map(move |name| format!("model.layers.{i}.{name}"))).collect()
}

#[test]
fn a_norm_that_is_left_out_is_not_the_attention() {
    let left = layers(&["post_attention_layernorm", "self_attn.q_a_layernorm", "mlp.gate", "self_attn.indexers_proj"]);
    let quantised = json!({ "quant_method": "fp8", "modules_to_not_convert": left });
    assert_eq!(bits(&file(quantised)), of(8.0, None, 8.0));
}

#[test]
fn parts_that_are_left_out_stay_as_they_were() {
    let nvfp4 = |left: &[&str]| {
        bits(&file(json!({ "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": layers(left) })))
    };
    // Shared experts count as dense blocks, not as experts.
    assert_eq!(nvfp4(&["self_attn*", "mlp.shared_experts*"]), of(16.0, None, 4.5));
    assert_eq!(nvfp4(&["self_attn*"]), of(16.0, Some(4.5), 4.5));
    assert_eq!(nvfp4(&["mlp.shared_experts*"]), of(4.5, Some(16.0), 4.5));
    assert_eq!(nvfp4(&["self_attn*", "mlp.shared_experts*", "mlp.experts*"]), of(16.0, None, 16.0));
    assert_eq!(nvfp4(&[]), of(4.5, None, 4.5));
}

#[test]
fn a_dense_model_has_bits_for_its_blocks() {
    let left = layers(&["self_attn*"]);
    let quantised = json!({ "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": left });
    let shape = read(&with(dense(), json!({ "quantization_config": quantised })).to_string(), "m").unwrap().shape;
    // The attention of 32 layers, the embedding and the output head have 16 bits. The three matrices of 4,096 × 14,336
    // in each layer have 4.5 bits.
    let attention = 32.0 * 4096.0 * 128.0 * (32.0 + 16.0 + 32.0);
    let blocks = 32.0 * 3.0 * 4096.0 * 14_336.0;
    let work = shape.work();
    assert_eq!(work.weight_bytes, 2.0 * (attention + 2.0 * 128_256.0 * 4096.0) + 4.5 / 8.0 * blocks);
    assert_eq!((work.token_flops.bf16, work.token_flops.fp4), (2.0 * attention, 2.0 * blocks));
}

#[test]
fn a_few_layers_that_are_left_out_are_a_warning() {
    let left = ["model.layers.0.self_attn*", "model.layers.31.self_attn*"];
    let config = file(json!({ "quant_method": "fp8", "ignored_layers": left }));
    let read = read(&config.to_string(), "m").unwrap();
    assert_eq!(read.shape.bits, of(8.0, None, 8.0));
    assert_eq!(read.warnings, ["attention: 2 layers are not quantised, and are counted as if they were"]);
}

#[test]
fn modules_may_have_algorithms_of_their_own() {
    let modules = json!({
        "model.layers.0.self_attn.q_proj": { "quant_algo": "FP8" },
        "model.layers.0.mlp.shared_experts.up_proj": { "quant_algo": "MXFP8" },
        "model.layers.0.mlp.experts.3.w1": { "quant_algo": "NVFP4" },
        "model.layers.1.mlp.experts.3.w1": { "quant_algo": "NVFP4" },
    });
    let table = |method: &str, modules: &Value| {
        file(json!({ "quant_method": method, "quant_algo": "MIXED_PRECISION", "quantized_layers": modules }))
    };
    let wanted = Bits { dense_activations: Some(8.0), ..of(8.0, Some(8.25), 4.5) };
    assert_eq!(bits(&table("modelopt", &modules)), wanted);
    // With the method `modelopt`, parts that `quantized_layers` does not list keep 16 bits. With `fp8` they have 8
    // bits.
    let experts = json!({ "layers.0.ffn.experts": { "quant_algo": "NVFP4" } });
    assert_eq!(bits(&table("modelopt", &experts)), of(16.0, None, 4.5));
    assert_eq!(bits(&table("fp8", &experts)), of(8.0, None, 4.5));
    for (modules, wanted) in [
        (json!({ "a.self_attn": { "quant_algo": "FP3" } }), "quantized_layers: `a.self_attn`: `FP3` is not known"),
        (json!({ "a.self_attn": {} }), "`a.self_attn` has no quant_algo"),
        (json!([1]), "quantized_layers: expected a table"),
        (
            json!({ "l.0.self_attn": { "quant_algo": "FP8" }, "l.1.self_attn": { "quant_algo": "NVFP4" } }),
            "gives attention different algorithms",
        ),
    ] {
        let said = fault(&table("modelopt", &modules));
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
    let said = fault(&file(json!({ "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION" })));
    assert!(said.contains("quant_algo: `MIXED_PRECISION` is not known"), "{said}");
}

#[test]
fn scales_have_16_bits_for_whole_numbers_and_8_for_floats() {
    let group = |kind: &str, size: u32| {
        let weights = json!({ "num_bits": 4, "type": kind, "group_size": size });
        bits(&file(json!({ "quant_method": "compressed-tensors", "config_groups": { "g": { "weights": weights } } })))
    };
    assert_eq!((group("int", 32).experts, group("float", 32).experts, group("float", 16).experts), (4.5, 4.25, 4.5));
}

#[test]
fn the_kv_cache_may_be_quantised() {
    let scheme = json!({ "dynamic": false, "num_bits": 8, "type": "float" });
    let modelopt = json!({ "quant_algo": "NVFP4", "kv_cache_scheme": scheme });
    assert_eq!(bits(&file(modelopt)).kv, 8.0);
    assert_eq!(bits(&file(json!({ "quant_method": "modelopt", "quant_algo": "FP8" }))).kv, 16.0);
    let said = fault(&file(json!({ "kv_cache_scheme": scheme })));
    assert!(said.contains("quant_method: missing"), "{said}");
}
