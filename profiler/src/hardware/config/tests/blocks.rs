//! Tests with Nemotron-H: each layer is one block (Mamba, attention or feed-forward); experts have a smaller width; the
//! file lists the layers of the MTP module.

use super::{fault, with};
use crate::hardware::config::read;
use crate::hardware::models::{Attention, FeedForward, ModelShape, entry};
use crate::hardware::{RooflineSpec, models::ModelChoice};
use foretoken_sim::PassShape;
use serde_json::{Value, json};

fn file() -> Value {
    json!({
        "model_type": "nemotron_h", "hidden_size": 4096, "vocab_size": 131072, "head_dim": 128, "intermediate_size": 2688,
        "num_attention_heads": 32, "num_key_value_heads": 2, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8,
        "ssm_state_size": 128, "n_routed_experts": 512, "num_experts_per_tok": 22, "moe_intermediate_size": 2688,
        "moe_shared_expert_intermediate_size": 5376, "hybrid_override_pattern": "ME*-", "tie_word_embeddings": false,
    })
}

fn shape(config: &Value) -> ModelShape {
    read(&config.to_string(), "m").unwrap().shape
}

#[test]
fn names_and_letters_list_the_same_layers() {
    let names = json!(["mamba", "moe", "attention", "mlp"]);
    let by_name = with(file(), json!({ "hybrid_override_pattern": null, "layers_block_type": names }));
    assert_eq!(shape(&by_name), shape(&file()));
    // transformers writes these names of layer types since version 5.
    let newer = json!(["linear_attention", "moe", "full_attention", "mlp"]);
    assert_eq!(shape(&with(by_name, json!({ "layers_block_type": newer }))), shape(&file()));
}

#[test]
fn faults_of_the_list_are_named() {
    let by_name = |names: Value| with(file(), json!({ "hybrid_override_pattern": null, "layers_block_type": names }));
    for (config, wanted) in [
        (with(file(), json!({ "hybrid_override_pattern": "MX" })), "hybrid_override_pattern: `X` is not one of"),
        (with(file(), json!({ "hybrid_override_pattern": "" })), "hybrid_override_pattern: lists no layer"),
        (with(file(), json!({ "num_hidden_layers": 5 })), "says 5, and hybrid_override_pattern has 4 layers"),
        (by_name(json!(["mamba", "conv"])), "layers_block_type: `conv` is not one of"),
        (by_name(json!(["mamba", 3])), "layers_block_type: expected a list of texts"),
        (by_name(json!([])), "layers_block_type: lists no layer"),
        (by_name(Value::Null), "num_hidden_layers: missing"),
        (with(file(), json!({ "moe_latent_size": 0 })), "moe_latent_size: 0 is not"),
        (with(file(), json!({ "n_routed_experts": null })), "has a layer of experts, and n_routed_experts is missing"),
        (with(file(), json!({ "mtp_layers_block_type": ["head"] })), "mtp_layers_block_type: `head`"),
    ] {
        let said = fault(&config);
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
}

#[test]
fn experts_work_in_the_latent_width() {
    let block = |config: &Value| {
        let layers = shape(config).layers;
        layers.into_iter().map(|g| g.feed_forward).find(|f| matches!(f, FeedForward::Experts { .. })).unwrap()
    };
    let (wide, latent) = (block(&file()), block(&with(file(), json!({ "moe_latent_size": 1024 }))));
    assert_eq!((wide.expert_parameters(4096), latent.expert_parameters(4096)), (22_020_096.0, 5_505_024.0));
    // The shared expert keeps the full width. Every token also uses the projections into the latent width and back.
    assert_eq!(latent.dense_parameters(4096) - wide.dense_parameters(4096), 2.0 * 4096.0 * 1024.0);
}

#[test]
fn tokens_travel_to_experts_in_the_latent_width() {
    // By how many seconds expert parallelism makes a pass slower than tensor parallelism, for 100,000 tokens on 8 GPUs.
    let more_s = |config: &Value| {
        let pass_s = |expert_parallel| {
            let model = ModelChoice::Shape(Box::new(shape(config)));
            let spec = RooflineSpec {
                model,
                tensor_parallel: 8,
                expert_parallel,
                floors: false,
                ..RooflineSpec::new("h100", "")
            };
            spec.build().unwrap().pass_s(PassShape { requests: 1, batched: 100_000, context: 0, pairs: 0 })
        };
        pass_s(true) - pass_s(false)
    };
    let (wide, latent) = (more_s(&file()), more_s(&with(file(), json!({ "moe_latent_size": 1024 }))));
    // In the latent width each of a token's 22 experts receives 3,072 numbers (2 bytes) fewer and sends back 3,072
    // fewer. 7 of 8 experts are on other GPUs. The 8 GPUs send at the same time.
    let sent = 2.0 * 7.0 / 8.0 * 22.0 * 3072.0 * 2.0 * 1e5 / 8.0 / 450e9;
    assert!(((wide - latent) / sent - 1.0).abs() < 1e-6, "{wide} - {latent} against {sent}");
}

#[test]
fn the_module_of_super_is_attention_and_experts() {
    let module = &entry("nemotron-3-super-120b-a12b-mtp").unwrap().shape;
    let [attention, experts] = module.layers.as_slice() else { panic!("{:?}", module.layers) };
    assert!(matches!(attention.attention, Attention::Grouped { heads: 32, .. }));
    assert!(matches!(experts.feed_forward, FeedForward::Experts { latent: Some(1024), .. }));
    // The module's own weights, without the output head that it shares with the model. The expected number is the
    // published count of the model with its MTP module minus the published count without it.
    let own = module.parameters() - module.head_parameters();
    assert!((own / 2_942_319_616.0 - 1.0).abs() < 1e-3, "{own}");
}
