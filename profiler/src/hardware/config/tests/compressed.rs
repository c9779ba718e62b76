//! Tests with DeepSeek-V4: a window, and compressed entries of older tokens.

use super::{fault, with};
use crate::hardware::RooflineSpec;
use crate::hardware::config::read;
use crate::hardware::models::{Attention, AttentionWork, FeedForward, ModelChoice, ModelShape, entry};
use foretoken_sim::PassShape;
use serde_json::{Value, json};

fn file(ratios: Value) -> Value {
    json!({
        "model_type": "deepseek_v4", "hidden_size": 4096, "vocab_size": 129280, "num_hidden_layers": 3, "head_dim": 512,
        "num_attention_heads": 64, "num_key_value_heads": 1, "q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024,
        "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512, "sliding_window": 128,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 6, "n_shared_experts": 1,
        "num_nextn_predict_layers": 1, "compress_ratios": ratios,
    })
}

fn shape(config: &Value) -> ModelShape {
    read(&config.to_string(), "m").unwrap().shape
}

#[test]
fn matrices_are_those_of_the_published_code() {
    let layers = shape(&file(json!([0, 4, 128, 0]))).layers;
    let [window, sparse, heavy] = [0, 1, 2].map(|i| layers[i].attention.parameters(4096));
    // The layer's matrices: the compressed queries; one key, which is also the value; an output projection from the
    // heads of each group to 1,024 numbers, and one from the 8 groups to the hidden size.
    let queries = 1024.0 * (4096.0 + 64.0 * 512.0);
    let output = 64.0 * 512.0 * 1024.0 + 8.0 * 1024.0 * 4096.0;
    assert_eq!(window, queries + 4096.0 * 512.0 + output);
    // A layer with compressed KV entries has two more matrices, a projection and a gate, which compute the entries.
    assert_eq!(heavy - window, 2.0 * 4096.0 * 512.0);
    // In the layer with an indexer, the projection and the gate are twice as wide, both for the compressed KV entries
    // and for the indexer's keys. The indexer also has weights for the queries and the scores of 64 heads.
    let indexer = 4.0 * 4096.0 * 128.0 + 1024.0 * 64.0 * 128.0 + 4096.0 * 64.0;
    assert_eq!(sparse - window, 4.0 * 4096.0 * 512.0 + indexer);
}

#[test]
fn counts_are_the_published_ones_without_the_module() {
    for (name, published, layers, experts) in
        [("deepseek-v4-flash", 284_333_146_519.0, 43.0, 256.0), ("deepseek-v4-pro", 1_572_997_335_779.0, 61.0, 384.0)]
    {
        let shape = &entry(name).unwrap().shape;
        let hidden = f64::from(shape.hidden);
        // The shape does not count two kinds of weights: the routers, and 24 weights for each of the 4 copies of the
        // hidden state at each of a layer's two blocks.
        let beside = layers * hidden * (experts + 2.0 * 24.0 * 4.0);
        assert!(((shape.parameters() + beside) / published - 1.0_f64).abs() < 2e-5, "{name}: {}", shape.parameters());
    }
    // The expected numbers are 13.7 and 49.5 billion active parameters. The model cards state 13 and 49 billion.
    assert!((entry("deepseek-v4-flash").unwrap().shape.active_parameters() / 13.7e9 - 1.0).abs() < 0.01);
    assert!((entry("deepseek-v4-pro").unwrap().shape.active_parameters() / 49.5e9 - 1.0).abs() < 0.01);
}

#[test]
fn kv_grows_by_entries_and_a_window_is_kept_once() {
    let kept = |ratio: u32| {
        let work = shape(&file(json!([ratio, ratio, ratio]))).work();
        (work.kv_bytes_token(1.0) / 3.0, work.request_bytes / 3.0)
    };
    let window = 128.0 * 512.0 * 2.0;
    assert_eq!(kept(0), (0.0, window));
    // 4 tokens share an entry of 512 numbers (2 bytes each) and an indexer key of 128 bytes. Tokens that are not
    // compressed yet take 4 bytes a number.
    assert_eq!(kept(4), ((1024.0 + 128.0) / 4.0, window + 2.0 * 4.0 * 2.0 * (512.0 + 128.0) * 4.0));
    assert_eq!(kept(128), (1024.0 / 128.0, window + 2.0 * 128.0 * 512.0 * 4.0));
    // There is one KV head, so every GPU of a tensor-parallel group holds a copy of the KV.
    let work = shape(&file(json!([4, 4, 4]))).work();
    assert_eq!(work.kv_bytes_token(8.0), 8.0 * work.kv_bytes_token(1.0));
}

#[test]
fn a_decode_reads_its_window_its_chosen_entries_and_all_keys() {
    let spec = |ratio: u32, gpu: &str| {
        let model = ModelChoice::Shape(Box::new(shape(&file(json!([ratio, ratio, ratio])))));
        RooflineSpec { model, floors: false, ..RooflineSpec::new(gpu, "") }.build().unwrap()
    };
    let decode = |context: u64| PassShape { requests: 1, batched: 1, context, pairs: context + 1 };
    let growth = |ratio: u32, from: u64, to: u64| {
        let model = spec(ratio, "h100");
        model.pass_s(decode(to)) - model.pass_s(decode(from))
    };
    let bandwidth = 3.35e12 * 0.8;
    let reads = |bytes: f64| 3.0 * bytes / bandwidth;
    let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-3, "{found} against {wanted}");
    // A layer without compressed KV entries reads no more bytes when the context grows beyond the window.
    assert_eq!(growth(0, 1000, 100_000), 0.0);
    near(growth(128, 1000, 101_000), reads(100_000.0 / 128.0 * 1024.0));
    // With up to 512 compressed KV entries (of 4 tokens each), a token reads all entries. If the context has more
    // entries, a token still reads only 512, and further context adds only bytes of the indexer's keys.
    near(growth(4, 1000, 2000), reads(1000.0 / 4.0 * (1024.0 + 128.0)));
    near(growth(4, 10_000, 110_000), reads(100_000.0 / 4.0 * 128.0));
}

#[test]
fn kinds_of_reach_are_summed_once() {
    // `work().attention` has one entry for all layers whose tokens attend to the same kind of tokens. DeepSeek-V4-Pro
    // has three such kinds: the tokens of a window, all compressed KV entries, and chosen compressed KV entries.
    let reach = |a: &AttentionWork| (a.window, a.by_token);
    let kinds: Vec<_> = entry("deepseek-v4-pro").unwrap().shape.work().attention.iter().map(reach).collect();
    assert_eq!(kinds, [(Some(128.0), false), (None, false), (Some(4096.0), true)]);
}

#[test]
fn the_module_attends_to_a_window() {
    let module = &entry("deepseek-v4-flash-mtp").unwrap().shape;
    assert!(matches!(module.layers[0].attention, Attention::Compressed { ratio: 0, window: 128, .. }));
    assert!(matches!(module.layers[0].feed_forward, FeedForward::Experts { total: 256, .. }));
    // The module's own weights, without the output head that it shares with the model. The expected number is the
    // published count of the model with its MTP module minus the published count without it.
    let own = module.parameters() - module.head_parameters();
    assert!((own / (290_944_616_402.0 - 284_333_146_519.0) - 1.0).abs() < 1e-3, "{own}");
}

#[test]
fn names_say_what_numbers_say() {
    let names = json!(["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]);
    let named = with(file(Value::Null), json!({ "layer_types": names, "mlp_layer_types": ["hash_moe", "moe", "moe"] }));
    assert_eq!(shape(&named), shape(&file(json!([0, 4, 128]))));
    let rates = json!({ "compress_rates": { "compressed_sparse_attention": 8 } });
    let said = fault(&with(named, rates));
    assert!(said.contains("compress_rates.compressed_sparse_attention: 8 is not modelled"), "{said}");
}

#[test]
fn experts_may_have_a_type_of_their_own() {
    let fp8 = json!({ "quantization_config": { "quant_method": "fp8" }, "expert_dtype": "fp4" });
    let bits = shape(&with(file(json!([0, 4, 128])), fp8.clone())).bits;
    assert_eq!((bits.weights, bits.dense, bits.experts, bits.expert_activations), (8.0, None, 4.25, 8.0));
    // If `quantized_layers` does not name the experts, they keep the bits of `expert_dtype`. If it names them, its
    // algorithm gives their bits.
    let listed = |modules: Value| {
        let quantised = json!({ "quant_method": "fp8", "quantized_layers": modules });
        shape(&with(file(json!([0, 4, 128])), json!({ "quantization_config": quantised, "expert_dtype": "fp4" }))).bits
    };
    let nvfp4 = |name: &str| listed(json!({ name: { "quant_algo": "NVFP4" } }));
    assert_eq!((nvfp4("layers.0.attn").experts, nvfp4("layers.0.attn").weights), (4.25, 4.5));
    assert_eq!((nvfp4("layers.0.ffn.experts").experts, nvfp4("layers.0.ffn.experts").weights), (4.5, 8.0));
    let said = fault(&with(with(file(json!([0, 4, 128])), fp8), json!({ "expert_dtype": "fp3" })));
    assert!(said.contains("expert_dtype: `fp3` is not one of fp4 and fp8"), "{said}");
}

#[test]
fn faults_are_named() {
    for (ratios, changes, wanted) in [
        (json!([0, 4]), json!({}), "compress_ratios: lists 2 layers of 3 and 1 MTP modules"),
        (json!([0, 4, 4, 0, 0]), json!({}), "compress_ratios: lists 5 layers of 3"),
        (json!([0, 4, 4, 4]), json!({}), "gives an MTP module compressed entries"),
        (json!([0, 4, 16]), json!({}), "compress_ratios: 16 is not one of 0, 4 and 128"),
        (json!([0, 4, "x"]), json!({}), "compress_ratios: expected a list of whole numbers"),
        (Value::Null, json!({}), "compress_ratios: missing"),
        (Value::Null, json!({ "layer_types": ["sliding_attention"] }), "layer_types: lists 1 layers of 3"),
        (Value::Null, json!({ "layer_types": ["a", "b", "c"] }), "layer_types: `a` is not a kind"),
        (json!([0, 4, 128]), json!({ "o_groups": 7 }), "o_groups: 7 does not divide num_attention_heads 64"),
        (json!([0, 4, 128]), json!({ "num_key_value_heads": 8 }), "num_key_value_heads: 8; this family keeps one"),
        (json!([0, 4, 128]), json!({ "index_topk": null }), "index_topk: missing"),
        (json!([0, 4, 128]), json!({ "sliding_window": null }), "sliding_window: missing"),
        (json!([0, 4, 128]), json!({ "head_dim": null }), "head_dim: missing"),
    ] {
        let said = fault(&with(file(ratios), changes));
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
    // A file whose layers have no indexer needs no keys for an indexer.
    shape(&with(file(json!([0, 128, 128])), json!({ "index_topk": null, "index_n_heads": null })));
}

#[test]
fn a_shape_that_cannot_be_is_refused() {
    let with = |change: fn(&mut Attention)| {
        let mut shape = shape(&file(json!([4, 4, 4])));
        change(&mut shape.layers[0].attention);
        shape.check().unwrap_err().to_string()
    };
    let said = with(|a| {
        if let Attention::Compressed { ratio, .. } = a {
            *ratio = 0;
        }
    });
    assert!(said.contains("no entries to choose from at ratio 0"), "{said}");
    let said = with(|a| {
        if let Attention::Compressed { output_groups, .. } = a {
            *output_groups = 7;
        }
    });
    assert!(said.contains("do not fall into 7 equal groups"), "{said}");
}
