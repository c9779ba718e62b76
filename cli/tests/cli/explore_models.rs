//! The JavaScript of the explorer's page reads `config.json` files as Foretoken's Rust library does, or refuses them
//! with a message.

use crate::browser::{attribute_of, open, text_of};
use crate::explore::{checked, explorer, silent};
use crate::explore_library::{Draws, escaped};
use foretoken_profiler::hardware::config::read;
use serde_json::{Value, json};
use std::path::Path;

/// Adds a script of the test to the end of the page. Removes the page's Content-Security-Policy, because it would keep
/// the script from running.
fn driven(page: &Path, script: &str) {
    let text = std::fs::read_to_string(page).unwrap();
    let policy = text.lines().find(|line| line.contains("Content-Security-Policy")).unwrap();
    let text = text.replacen(policy, "", 1);
    let driver = format!("<pre id=\"driven\"></pre><script>{}</script></body>", script.replace("</", "<\\/"));
    std::fs::write(page.with_file_name("driven.html"), text.replacen("</body>", &driver, 1)).unwrap();
}

/// What the page reads from these `config.json` files. For each file: the model's layers and sizes (its shape), the
/// bytes and operations of its passes (its work), and the keys that the page does not model; or why the page refuses
/// the file.
fn read_by_page(texts: &[String]) -> Option<Vec<Value>> {
    let (_place, page) = explorer(&[]);
    let script = format!(
        "const harmless = JSON.parse(document.getElementById('presets').textContent).harmless;
        const one = (text) => {{
          try {{ const {{ shape, unread }} = Config.read(text, 'm', harmless); return {{ shape, unread, work: Config.work(shape) }}; }}
          catch (error) {{ return {{ error: error.message }}; }}
        }};
        document.getElementById('driven').textContent = JSON.stringify({}.map(one));",
        json!(texts)
    );
    driven(&page, &script);
    let opened = open(&page.with_file_name("driven.html"), "")?;
    silent(&opened);
    Some(serde_json::from_str(&text_of(&opened.dom, "driven")).unwrap())
}

fn dense() -> Value {
    json!({
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "rope_theta": 5e5,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "architectures": ["LlamaForCausalLM"],
    })
}

/// A random `config.json` of a model family that the page reads.
fn any_config(draws: &mut Draws) -> Value {
    let families = [
        "llama", "mistral", "qwen2", "qwen3", "phi3", "granite", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe",
        "glm4_moe",
    ];
    let family = families[draws.below(families.len())];
    let kv_heads = 1 + draws.below(8);
    let heads = kv_heads * (1 + draws.below(8));
    let dtype = ["bfloat16", "float32", "float16"][draws.below(3)];
    let mut config = json!({
        "model_type": family, "hidden_size": heads * (64 + 32 * draws.below(4)), "num_hidden_layers": 2 + draws.below(80),
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": 512 + draws.below(30_000),
        "vocab_size": 1000 + draws.below(200_000), "tie_word_embeddings": draws.unit() < 0.5,
        "torch_dtype": dtype,
    });
    let mut sometimes = |key: &str, value: Value| {
        if draws.unit() < 0.4 {
            config[key] = value;
        }
    };
    sometimes("head_dim", json!(128));
    sometimes("sliding_window", json!(4096));
    sometimes("use_sliding_window", json!(false));
    sometimes("num_key_value_heads", Value::Null);
    sometimes("tie_word_embeddings", Value::Null);
    sometimes("hyper_loops", json!(3));
    sometimes("rms_norm_eps", json!(1e-5));
    if families[6..].contains(&family) {
        for (key, value) in [("num_experts", 64), ("num_experts_per_tok", 8), ("moe_intermediate_size", 768)] {
            config[key] = json!(value);
        }
        if family == "glm4_moe" {
            config["first_k_dense_replace"] = json!(draws.below(3));
        }
        if draws.unit() < 0.4 {
            config["shared_expert_intermediate_size"] = json!(draws.below(4096));
        }
    }
    config
}

/// Keys of a `config.json` that change a model's layers or the bits of its weights. The page must refuse a file with
/// such a key, or read it as Foretoken's Rust library does.
fn changes() -> Vec<Value> {
    vec![
        json!({ "model_type": "gemma2" }),
        json!({ "model_type": "deepseek_v3", "kv_lora_rank": 512 }),
        json!({ "model_type": null }),
        json!({ "quantization_config": { "quant_method": "fp8" } }),
        json!({ "quantization_config": { "quant_method": "awq", "bits": 4, "group_size": 128 } }),
        json!({ "torch_dtype": "float8_e4m3fn" }),
        json!({ "torch_dtype": "int3" }),
        json!({ "layer_types": vec!["full_attention"; 32], "sliding_window": 128 }),
        json!({ "layer_types": ["full_attention"] }),
        json!({ "layer_types": vec!["sliding_attention"; 32], "sliding_window": 128 }),
        json!({ "sliding_window": 128, "max_window_layers": 16 }),
        json!({ "sliding_window": 128 }),
        json!({ "num_experts": 8 }),
        json!({ "num_experts": 8, "num_experts_per_tok": 9 }),
        json!({ "num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [0, 3] }),
        json!({ "num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 2 }),
        json!({ "num_experts": 8, "num_experts_per_tok": 2, "moe_layer_freq": [1, 0] }),
        json!({ "num_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1 }),
        json!({ "num_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 40 }),
        json!({ "num_key_value_heads": 5 }),
        json!({ "num_attention_heads": 33, "num_key_value_heads": 33 }),
        json!({ "hidden_size": 0 }),
        json!({ "hidden_size": 4096.5 }),
        json!({ "vocab_size": null }),
        json!({ "num_hidden_layers": "many" }),
        json!({ "draft_vocab_size": 32000 }),
        json!({ "attention_output_gate": true }),
        json!({ "attn_output_gate": true }),
        json!({ "num_kv_shared_layers": 4 }),
        json!({ "dense_intermediate_size": 8192 }),
        json!({ "intermediate_size_mlp": 8192 }),
        json!({ "enable_moe_block": true }),
        json!({ "moe_latent_size": 1024, "num_experts": 8, "num_experts_per_tok": 2 }),
        json!({ "num_nextn_predict_layers": 1 }),
        json!({ "text_config": { "hidden_size": 5120 } }),
    ]
}

#[test]
fn config_files_are_read_as_by_the_library_or_refused_in_words() {
    let mut draws = Draws(10);
    let changed = changes().into_iter().map(|changes| {
        let mut config = dense();
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    });
    let random = (0..200).map(|_| any_config(&mut draws)).collect::<Vec<_>>();
    let configs: Vec<Value> = std::iter::once(dense()).chain(random).chain(changed).collect();
    let texts: Vec<String> = configs.iter().map(Value::to_string).chain(["{".into(), "[1]".into()]).collect();
    let Some(all) = read_by_page(&texts) else { return };
    let (mut accepted, mut refused) = (0, Vec::new());
    for (page, text) in all.iter().zip(&texts) {
        let library = read(text, "m");
        if let Some(error) = page["error"].as_str() {
            assert!(error.contains(": "), "no key: {error}");
            refused.push((error.to_owned(), text));
            continue;
        }
        let library = library.unwrap_or_else(|e| panic!("the page reads what the library refuses: {e}\n{text}"));
        let work: Value = serde_json::to_value(library.shape.work()).unwrap();
        for (key, value) in work.as_object().unwrap() {
            assert!(alike(value, &page["work"][key]), "{key} of {text}: {value} and {}", page["work"][key]);
        }
        let shape = serde_json::from_value(page["shape"].clone());
        assert_eq!(
            shape.map(|shape: foretoken_profiler::hardware::models::ModelShape| shape.work()).unwrap(),
            library.shape.work()
        );
        let unread = page["unread"].as_array().unwrap();
        assert_eq!(
            unread.is_empty(),
            !library.warnings.iter().any(|w| w.contains("not modelled")),
            "{unread:?} {text}"
        );
        accepted += 1;
    }
    // The page may refuse only a faulty file, or a file with a key that only Foretoken's Rust library can read.
    println!("{accepted} files are read, {} are refused", refused.len());
    assert!(accepted > 150, "{refused:#?}");
    for (part, about) in [
        ("model_type: this page does not read `gemma2`, only llama, ", "another family"),
        ("model_type: missing", "no family"),
        ("quantization_config: this page does not read it. The program may know it", "bits"),
        ("hidden_size: 0 is not a whole number of at least 1", "a size"),
        ("vocab_size: missing", "a missing size"),
        ("num_experts_per_tok: 9 of 8 experts cannot be active", "experts"),
        ("m: this is not JSON", "no JSON"),
        ("m: a config.json is a JSON object", "no table"),
    ] {
        assert!(refused.iter().any(|(error, _)| error.starts_with(part)), "{about}: {refused:#?}");
    }
}

/// Are the JSON values equal, apart from rounding of numbers?
fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-12 * a.abs()
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        (Value::Object(a), Value::Object(b)) => a.len() == b.len() && a.iter().all(|(key, a)| alike(a, &b[key])),
        _ => a == b,
    }
}

/// A `config.json` that is dropped onto the page becomes the target, and the page's link contains the model.
#[test]
fn a_dropped_file_is_the_target_and_the_link_has_it() {
    let (_place, page) = explorer(&[]);
    let drop = |file: &str, text: &str| {
        let script = format!(
            // The headless browser's virtual clock does not wait for a file to be read or for an animation frame. So
            // the script replaces both functions by functions that need no waiting.
            "window.requestAnimationFrame = (draw) => setTimeout(draw, 0);
            File.prototype.text = () => Promise.resolve({0});
            const data = new DataTransfer();
            data.items.add(new File([{0}], {1}));
            document.body.dispatchEvent(new DragEvent('drop', {{ dataTransfer: data, bubbles: true }}));
            setTimeout(() => {{ document.getElementById('driven').textContent = location.hash; }}, 1000);",
            json!(text),
            json!(file)
        );
        driven(&page, &script);
        let opened = open(&page.with_file_name("driven.html"), "#n=2&tp=2")?;
        silent(&opened);
        Some((
            text_of(&opened.dom, "read"),
            text_of(&opened.dom, "driven"),
            attribute_of(&opened.dom, "step_s", "data-value"),
        ))
    };
    let Some((read, hash, step)) = drop("mine.json", &dense().to_string()) else { return };
    assert_eq!(read, "mine.json is the target now: 16.1 GB of weights.");
    // The dropped file is Llama-3.1-8B's, so the numbers must equal the preset's.
    let all = checked(&page, &["n=2&tp=2&target=llama-3.1-8b", hash.trim_start_matches('#')]).unwrap();
    assert_eq!(all[0]["step_s"], all[1]["step_s"]);
    assert_eq!(step.parse::<f64>().unwrap(), all[0]["step_s"].as_f64().unwrap());
    assert!(all[1]["toml"].as_str().unwrap().contains("name = \"file mine\""));
    let (read, _, same) = drop("other.json", "{\"model_type\": \"rwkv\"}").unwrap();
    assert!(
        read.starts_with("other.json cannot be read. model_type: this page does not read `rwkv`, only llama"),
        "{read}"
    );
    assert_eq!(same, step, "the target stays Llama-3.1-8B");
    // The model in this link has a name and lacks its shape (layers and sizes).
    let opened = open(&page, &format!("#models={}&target=x", escaped("[{\"name\":\"file x\"}]"))).unwrap();
    assert!(text_of(&opened.dom, "link").contains("The link has a model that cannot be read"));
}
