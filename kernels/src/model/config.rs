//! Reading a Hugging Face `config.json`.
//!
//! Must refuse what the forward pass does not compute: a model that runs and answers nonsense is worse than an error.

use super::{BadShape, LlamaShape, RopeScaling};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A `config.json` that cannot be read, or describes a model that is not Llama-shaped.
#[derive(Debug, thiserror::Error)]
pub enum BadConfigFile {
    /// It cannot be opened or read.
    #[error("{}: {why}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's words.
        why: std::io::Error,
    },
    /// It is not JSON.
    #[error("{}: {why}", file.display())]
    NotJson {
        /// The file.
        file: PathBuf,
        /// The parser's words, with line and column.
        why: serde_json::Error,
    },
    /// A key is missing, has the wrong type, or asks for something that is not computed here.
    #[error("{}: `{key}`: {why}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Reads `config.json`: `model_type` `llama` or `mistral`, without biases, sliding window or quantisation.
///
/// # Errors
/// The file, the key and what is wrong with it.
pub fn read_config(file: &Path) -> Result<LlamaShape, BadConfigFile> {
    let text = std::fs::read(file).map_err(|why| BadConfigFile::Unreadable { file: file.into(), why })?;
    parse_config(file, &text)
}

/// Reads the text of a `config.json`, which messages call `file`.
pub(super) fn parse_config(file: &Path, text: &[u8]) -> Result<LlamaShape, BadConfigFile> {
    let json: Map<String, Value> =
        serde_json::from_slice(text).map_err(|why| BadConfigFile::NotJson { file: file.into(), why })?;
    let named = |BadKey { key, why }| BadConfigFile::Key { file: file.into(), key, why };
    let shape = shape(&json).map_err(named)?;
    shape.check().map_err(|BadShape { key, why }| named(BadKey::new(key, why)))?;
    Ok(shape)
}

struct BadKey {
    key: String,
    why: String,
}

impl BadKey {
    fn new(key: impl Into<String>, why: impl Into<String>) -> BadKey {
        BadKey { key: key.into(), why: why.into() }
    }
}

/// The object's value, if it is there and not null: Hugging Face writes both for "not set".
fn get<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|v| !v.is_null())
}

fn number(object: &Map<String, Value>, key: &str) -> Result<Option<f64>, BadKey> {
    let number = |v: &Value| v.as_f64().ok_or_else(|| BadKey::new(key, format!("{v} is not a number")));
    get(object, key).map(number).transpose()
}

fn size(object: &Map<String, Value>, key: &str) -> Result<Option<u32>, BadKey> {
    let size = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
    get(object, key).map(|v| size(v).ok_or_else(|| BadKey::new(key, format!("{v} is not a size")))).transpose()
}

fn needed<T>(key: &str, value: Option<T>) -> Result<T, BadKey> {
    value.ok_or_else(|| BadKey::new(key, "is missing"))
}

fn shape(json: &Map<String, Value>) -> Result<LlamaShape, BadKey> {
    refuse_what_is_not_computed(json)?;
    let hidden = needed("hidden_size", size(json, "hidden_size")?)?;
    let heads = needed("num_attention_heads", size(json, "num_attention_heads")?)?;
    let head_dim = match size(json, "head_dim")? {
        Some(dim) => dim,
        None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
        None => return Err(BadKey::new("head_dim", format!("is missing, and {heads} heads do not divide {hidden}"))),
    };
    let (rope_theta, rope_scaling) = rope(json)?;
    Ok(LlamaShape {
        layers: needed("num_hidden_layers", size(json, "num_hidden_layers")?)?,
        hidden,
        heads,
        kv_heads: size(json, "num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        intermediate: needed("intermediate_size", size(json, "intermediate_size")?)?,
        vocab: needed("vocab_size", size(json, "vocab_size")?)?,
        tied: get(json, "tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false),
        rms_norm_eps: needed("rms_norm_eps", number(json, "rms_norm_eps")?)? as f32,
        rope_theta,
        rope_scaling,
        max_positions: needed("max_position_embeddings", size(json, "max_position_embeddings")?)?,
    })
}

fn refuse_what_is_not_computed(json: &Map<String, Value>) -> Result<(), BadKey> {
    let model_type = get(json, "model_type").and_then(Value::as_str);
    if !matches!(model_type, Some("llama" | "mistral")) {
        return Err(BadKey::new("model_type", format!("expected \"llama\" or \"mistral\", found {model_type:?}")));
    }
    let activation = get(json, "hidden_act").and_then(Value::as_str).unwrap_or("silu");
    if activation != "silu" {
        return Err(BadKey::new("hidden_act", format!("expected \"silu\", found {activation:?}")));
    }
    for key in ["attention_bias", "mlp_bias"] {
        if get(json, key).is_some_and(|v| v != &Value::Bool(false)) {
            return Err(BadKey::new(key, "biases are not computed"));
        }
    }
    for key in ["quantization_config", "sliding_window"] {
        if let Some(v) = get(json, key) {
            return Err(BadKey::new(key, format!("is not computed, found {v}")));
        }
    }
    Ok(())
}

/// `rope_theta` and `rope_scaling`, or transformers 5's `rope_parameters`, which holds both.
fn rope(json: &Map<String, Value>) -> Result<(f64, Option<RopeScaling>), BadKey> {
    let (key, nested) = match get(json, "rope_parameters") {
        Some(v) => ("rope_parameters", Some(v)),
        None => ("rope_scaling", get(json, "rope_scaling")),
    };
    let Some(nested) = nested else { return Ok((number(json, "rope_theta")?.unwrap_or(1e4), None)) };
    let nested = nested.as_object().ok_or_else(|| BadKey::new(key, format!("{nested} is not an object")))?;
    let under = |e: BadKey| BadKey::new(format!("{key}.{}", e.key), e.why);
    let theta = match number(nested, "rope_theta").map_err(under)? {
        Some(theta) => theta,
        None => number(json, "rope_theta")?.unwrap_or(1e4),
    };
    let kind = get(nested, "rope_type").or_else(|| get(nested, "type")).and_then(Value::as_str);
    match kind {
        Some("default") => Ok((theta, None)),
        Some("llama3") => {
            let need = |key: &str| number(nested, key).and_then(|v| needed(key, v)).map_err(under);
            let original = "original_max_position_embeddings";
            Ok((
                theta,
                Some(RopeScaling {
                    factor: need("factor")?,
                    low_freq_factor: need("low_freq_factor")?,
                    high_freq_factor: need("high_freq_factor")?,
                    original_max_position_embeddings: size(nested, original)
                        .and_then(|v| needed(original, v))
                        .map_err(under)?,
                }),
            ))
        }
        _ => Err(BadKey::new(key, format!("expected rope_type \"default\" or \"llama3\", found {kind:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::preset;
    use serde_json::json;

    fn read(json: &Value) -> Result<LlamaShape, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        std::fs::write(&file, json.to_string()).unwrap();
        read_config(&file).map_err(|e| e.to_string().split_once("config.json: ").unwrap().1.to_string())
    }

    fn llama_3_2_1b() -> Value {
        json!({
            "model_type": "llama", "hidden_act": "silu", "hidden_size": 2048, "num_hidden_layers": 16,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192,
            "vocab_size": 128_256, "tie_word_embeddings": true, "rms_norm_eps": 1e-5, "attention_bias": false,
            "max_position_embeddings": 131_072, "rope_theta": 500_000.0, "quantization_config": null,
            "rope_scaling": {
                "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        })
    }

    #[test]
    fn a_config_is_the_preset_of_its_name() {
        assert_eq!(read(&llama_3_2_1b()), Ok(preset("llama-3.2-1b").unwrap()));
        // Transformers 5 nests the base; older files leave out what has a default.
        let mut newer = llama_3_2_1b();
        let mut nested = newer["rope_scaling"].take();
        nested["rope_theta"] = newer["rope_theta"].take();
        newer["rope_parameters"] = nested;
        newer.as_object_mut().unwrap().remove("head_dim");
        assert_eq!(read(&newer), Ok(preset("llama-3.2-1b").unwrap()));
        let older = json!({
            "model_type": "llama", "hidden_size": 768, "num_hidden_layers": 2, "num_attention_heads": 12,
            "intermediate_size": 3072, "vocab_size": 32_000, "rms_norm_eps": 1e-6, "max_position_embeddings": 2048,
        });
        assert_eq!(read(&older), Ok(preset("vicuna-68m").unwrap()));
    }

    #[test]
    fn what_is_not_computed_is_named() {
        let with = |key: &str, value: Value| {
            let mut json = llama_3_2_1b();
            json[key] = value;
            read(&json).unwrap_err()
        };
        assert_eq!(
            with("model_type", json!("qwen3")),
            r#"`model_type`: expected "llama" or "mistral", found Some("qwen3")"#
        );
        assert_eq!(with("hidden_size", Value::Null), "`hidden_size`: is missing");
        assert_eq!(with("hidden_size", json!(-1)), "`hidden_size`: -1 is not a size");
        assert_eq!(with("vocab_size", json!(0)), "`vocab_size`: 0 is not a size between 1 and 16777216");
        assert_eq!(with("num_key_value_heads", json!(5)), "`num_key_value_heads`: 5 does not divide 32 heads");
        assert_eq!(with("attention_bias", json!(true)), "`attention_bias`: biases are not computed");
        assert_eq!(with("hidden_act", json!("gelu")), r#"`hidden_act`: expected "silu", found "gelu""#);
        assert_eq!(with("rope_scaling", json!({"type": "llama3"})), "`rope_scaling.factor`: is missing");
        assert!(with("rope_scaling", json!({"type": "yarn"})).starts_with("`rope_scaling`: expected rope_type"));
        assert!(with("quantization_config", json!({})).contains("`quantization_config`"));
    }

    #[test]
    fn a_file_that_is_no_config_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        assert!(matches!(read_config(&file), Err(BadConfigFile::Unreadable { .. })));
        std::fs::write(&file, "{\n  oops").unwrap();
        let error = read_config(&file).unwrap_err();
        assert!(error.to_string().contains("config.json: key must be a string at line 2"), "{error}");
    }
}
