//! Tests with files that give the parts of a model different bits, or whose keys cannot be true.

use super::{dense, fault, with};
use crate::hardware::config::{ReadConfig, read};
use serde_json::{Value, json};

fn quantised(table: Value) -> Value {
    with(dense(), json!({ "quantization_config": table }))
}

fn read_all(config: &Value) -> ReadConfig {
    read(&config.to_string(), "m").unwrap()
}

fn groups(groups: Value) -> Value {
    quantised(json!({ "quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"] }))
}

fn group(targets: &[&str], weights: Value, activations: u32) -> Value {
    json!({ "targets": targets, "weights": weights, "input_activations": { "num_bits": activations } })
}

fn fp8(targets: &[&str]) -> Value {
    group(targets, json!({ "num_bits": 8, "type": "float" }), 8)
}

fn nvfp4(targets: &[&str]) -> Value {
    group(targets, json!({ "num_bits": 4, "type": "float", "group_size": 16 }), 4)
}

/// The weights of attention and of dense blocks of `dense()`.
const ATTENTION: f64 = 32.0 * 4096.0 * 128.0 * (32.0 + 16.0 + 32.0);
const BLOCKS: f64 = 32.0 * 3.0 * 4096.0 * 14_336.0;
/// The weights of its embedding and output head together.
const ENDS: f64 = 2.0 * 128_256.0 * 4096.0;

#[test]
fn every_group_is_read() {
    let read = read_all(&groups(json!({
        "group_0": fp8(&["re:.*self_attn.*"]), "group_1": nvfp4(&["re:.*mlp.*"]),
    })));
    assert_eq!(read.warnings, Vec::<String>::new());
    let b = read.shape.bits;
    assert_eq!((b.weights, b.activations, b.dense, b.dense_activations), (8.0, 8.0, Some(4.5), Some(4.0)));
    // 6.61 GB by hand; the first group alone is 9.08 GB.
    assert_eq!(read.shape.work().weight_bytes, ATTENTION + 4.5 / 8.0 * BLOCKS + 2.0 * ENDS);
    assert!((read.shape.work().weight_bytes / 6.61e9 - 1.0).abs() < 0.001);
}

#[test]
fn a_name_comes_before_a_class_whatever_the_order() {
    let bits = |table: Value| read_all(&groups(table)).shape.bits;
    let (class, name) = (fp8(&["Linear"]), nvfp4(&["re:.*mlp.*"]));
    let one = bits(json!({ "group_0": class, "group_1": name }));
    assert_eq!(one, bits(json!({ "group_0": name, "group_1": class })));
    assert_eq!((one.weights, one.dense, one.head), (8.0, Some(4.5), 16.0));
}

#[test]
fn a_part_of_several_bits_has_their_mean_and_a_warning() {
    let read = read_all(&groups(json!({
        "group_0": fp8(&["re:.*self_attn.*", "re:.*down_proj"]), "group_1": nvfp4(&["re:.*(gate|up)_proj"]),
    })));
    let mean = (8.0 + 4.5 + 4.5) / 3.0;
    assert!((read.shape.bits.dense.unwrap() - mean).abs() < 1e-12, "{:?}", read.shape.bits);
    assert!(read.warnings[0].starts_with("dense blocks and shared experts: modules of different bits"), "{read:?}");
    // A pattern without digits may tell numbers of one digit from numbers of two.
    let short = read_all(&groups(json!({ "group_0": nvfp4(&[r"re:model\.layers\..\.self_attn"]) }))).shape.bits;
    assert!((short.weights - (10.0 * 4.5 + 22.0 * 16.0) / 32.0).abs() < 1e-9, "{short:?}");
    // Half of the layers, by their numbers.
    let half = read_all(&groups(json!({ "group_0": nvfp4(&[r"re:model\.layers\.([0-9]|1[0-5])\..*"]) }))).shape.bits;
    assert_eq!((half.weights, half.dense), ((4.5 + 16.0) / 2.0, None));
}

#[test]
fn an_excluded_pattern_is_read_as_a_pattern() {
    let table = |ignore: &str| {
        let all = json!({ "group_0": nvfp4(&["Linear"]) });
        let table = json!({ "quant_method": "compressed-tensors", "config_groups": all, "ignore": [ignore] });
        read_all(&quantised(table)).shape.bits
    };
    assert_eq!((table("re:.*").weights, table("re:.*").dense), (16.0, None));
    assert_eq!((table("re:.*mlp.*").weights, table("re:.*mlp.*").dense), (4.5, Some(16.0)));
    assert_eq!(table("re:.*self_attn.*").weights, 16.0);
}

#[test]
fn the_output_head_is_read() {
    let head = |table: Value| read_all(&quantised(table)).shape;
    let gptq = json!({ "quant_method": "gptq", "bits": 4, "group_size": 128 });
    assert_eq!((head(gptq.clone()).bits.head, head(gptq.clone()).bits.embedding), (16.0, None));
    let with_head = head(with(gptq.clone(), json!({ "lm_head": true })));
    let packed = 4.0 + 20.0 / 128.0;
    assert_eq!((with_head.bits.head, with_head.bits.embedding), (packed, Some(16.0)));
    let saved = head(gptq).work().weight_bytes - with_head.work().weight_bytes;
    assert_eq!(saved, (16.0 - packed) / 8.0 * ENDS / 2.0);
    let listed = json!({ "quant_method": "fp8", "quantized_layers": { "lm_head": { "quant_algo": "FP8" } } });
    assert_eq!(head(listed).bits.head, 8.0);
}

#[test]
fn modules_of_gptq_and_autoround_have_their_own_bits() {
    let gptq = json!({
        "quant_method": "gptq", "bits": 4, "group_size": 128,
        "dynamic": { r"-:.*self_attn.*": {}, r"+:.*\.mlp\..*": { "bits": 8 } },
    });
    let b = read_all(&quantised(gptq)).shape.bits;
    assert_eq!((b.weights, b.dense), (16.0, Some(8.0 + 24.0 / 128.0)));
    let own = (0..32).map(|i| (format!("model.layers.{i}.self_attn.q_proj"), json!({ "bits": 16 })));
    let own: serde_json::Map<_, _> = own.collect();
    let auto = json!({ "quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": own });
    let read = read_all(&quantised(auto));
    let (packed, queries) = (4.0 + 20.0 / 128.0, 1.0 / 2.5);
    assert!((read.shape.bits.weights - (packed * (1.0 - queries) + 16.0 * queries)).abs() < 1e-9, "{read:?}");
    assert_eq!(read.shape.bits.dense, Some(packed));
}

#[test]
fn every_nested_key_is_read_or_named() {
    let warnings = |table: Value| read_all(&quantised(table)).warnings;
    let awq = json!({ "quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm" });
    assert_eq!(warnings(awq.clone()), Vec::<String>::new());
    let odd = with(awq, json!({ "sparse_rows": 3, "svd_rank": null }));
    assert_eq!(warnings(odd), ["`quantization_config.sparse_rows` is not modelled"]);
    let mut deep = fp8(&["Linear"]);
    deep["weights"]["hadamard"] = json!(true);
    let read = read_all(&groups(json!({ "group_0": deep })));
    assert_eq!(read.warnings, ["`quantization_config.config_groups.group_0.weights.hadamard` is not modelled"]);
}

#[test]
fn what_cannot_be_true_is_refused() {
    let q = |table: Value| json!({ "quantization_config": table });
    for (changes, wanted) in [
        (q(json!({ "quant_method": "gptq" })), "quantization_config.bits: missing"),
        (q(json!({ "quant_method": "gptq", "bits": 40 })), "bits: 40 is not a number of bits"),
        (
            q(json!({ "quant_method": "bitsandbytes" })),
            "load_in_4bit: one of load_in_4bit and load_in_8bit must be true",
        ),
        (q(json!({ "quant_method": "bitsandbytes", "load_in_4bit": true, "load_in_8bit": true })), "both are"),
        (q(json!({ "quant_algo": "FP8", "kv_cache_quant_algo": "INT2" })), "kv_cache_quant_algo: `INT2` is not"),
        (q(json!({ "quant_algo": "FP8", "kv_cache_scheme": { "num_bits": 99 } })), "kv_cache_scheme.num_bits: 99"),
        (q(json!({ "quant_method": "compressed-tensors", "config_groups": {} })), "config_groups: missing"),
        (json!({ "architectures": ["MixtralForCausalLM"] }), "architectures: `MixtralForCausalLM` is not a class of"),
        (json!({ "num_hidden_layers": 100_000_000 }), "num_hidden_layers: 100000000 layers are more than 10000"),
        (json!({ "num_hidden_layers": 4_294_967_295u32 }), "num_hidden_layers: 4294967295 is over"),
        (json!({ "hidden_size": 4_294_967_295u32 }), "hidden_size: 4294967295 is over"),
    ] {
        let said = fault(&with(dense(), changes));
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
    for (targets, wanted) in [
        (json!({ "g": fp8(&["re:(?!x).*"]) }), "the pattern `(?!x).*` cannot be read"),
        (json!({ "g": fp8(&["Conv9d"]) }), "`Conv9d` is not a class that is known"),
        (json!({ "g": fp8(&["Linear"]), "h": nvfp4(&["Linear"]) }), "`Linear` is the target of two groups"),
        (json!({ "g": fp8(&["Linear"]), "h": { "weights": { "num_bits": 4 } } }), "h.targets: missing"),
        (json!({ "g": { "targets": ["Linear"] } }), "g.weights: missing"),
        (
            json!({ "g": group(&["Linear"], json!({ "num_bits": 4, "type": "ternary" }), 16) }),
            "`ternary` is not one of",
        ),
    ] {
        let said = fault(&groups(targets));
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
}

#[test]
fn double_quantisation_makes_scales_smaller() {
    let bits = |double: bool| {
        let table =
            json!({ "quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": double });
        read_all(&quantised(table)).shape.bits.weights
    };
    assert_eq!(bits(false), 4.5);
    assert!((bits(true) - 4.127).abs() < 1e-3);
}

#[test]
fn a_default_of_the_class_is_said() {
    let mut config = dense();
    config.as_object_mut().unwrap().remove("intermediate_size");
    let read = read_all(&config);
    assert_eq!(read.warnings, ["`intermediate_size` is missing: transformers' default of this family is taken, 11008"]);
    // Qwen3-MoE without the width of an expert is not as wide as its dense block.
    let experts = json!({ "model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8, "head_dim": 128 });
    let wide = read_all(&with(dense(), experts)).shape;
    assert!(wide.parameters() < 45e9, "{}", wide.parameters());
}
