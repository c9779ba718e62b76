//! Reads a Hugging Face `config.json` for a model that runs on a device.
//!
//! The reader must refuse every model whose forward pass this crate does not compute: an error is better than wrong
//! output.

use super::{BadShape, LlamaShape, RopeScaling};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;
use std::path::{Path, PathBuf};

/// Why a `config.json` is refused: it cannot be read, or it describes a model that this crate's forward pass does not
/// compute.
#[derive(Debug, thiserror::Error)]
pub enum BadConfigFile {
    /// The `config.json` cannot be opened or read.
    #[error("{}: {why}", file.display())]
    Unreadable {
        file: PathBuf,
        /// The system's error when the `config.json` was opened or read.
        why: std::io::Error,
    },
    /// The `config.json` is not JSON, or its value is not a JSON object.
    #[error("{}: {why}", file.display())]
    NotJson {
        file: PathBuf,
        /// The parser's error, with line and column.
        why: serde_json::Error,
    },
    /// A key is missing, has the wrong type, or has a value that the forward pass does not support.
    #[error("{}: `{key}`: {why}", file.display())]
    Key {
        file: PathBuf,
        /// The path of the wrong key: its name after the names of the objects that contain it.
        key: String,
        /// What is wrong with the key of the `config.json`.
        why: String,
    },
}

/// Reads a `config.json`. The function accepts `model_type` `llama`, `mistral` or `qwen3` with SiLU. It refuses biases,
/// a sliding window and quantisation. The rotary frequencies may be unscaled, or scaled as in Llama 3.
pub fn read_config(file: &Path) -> Result<LlamaShape, BadConfigFile> {
    let text = std::fs::read(file).map_err(|why| BadConfigFile::Unreadable { file: file.into(), why })?;
    parse_config(file, &text)
}

/// Parses the text of a `config.json`. `file` is the name of the file in error messages.
pub fn parse_config(file: &Path, text: &[u8]) -> Result<LlamaShape, BadConfigFile> {
    let named = |BadKey { key, why }| BadConfigFile::Key { file: file.into(), key, why };
    // The architecture is checked first, because the other keys may have other meanings in another architecture.
    parse::<Architecture>(file, text)?.check().map_err(named)?;
    let shape = parse::<Config>(file, text)?.shape().map_err(named)?;
    shape.check().map_err(|BadShape { key, why }| named(BadKey::new(key, why)))?;
    Ok(shape)
}

/// Parses the keys of a `config.json` that `T` has as fields. An error gives the path of the wrong key: its name after
/// the names of the objects that contain it.
fn parse<T: DeserializeOwned>(file: &Path, text: &[u8]) -> Result<T, BadConfigFile> {
    let not_json = |why| BadConfigFile::NotJson { file: file.into(), why };
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let key = error.path().to_string();
        match error.into_inner() {
            why if why.classify() == Category::Data && key != "." => {
                BadConfigFile::Key { file: file.into(), key, why: why.to_string() }
            }
            why => not_json(why),
        }
    })?;
    json.end().map_err(not_json)?;
    Ok(read)
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

fn needed<T>(key: &str, value: Option<T>) -> Result<T, BadKey> {
    value.ok_or_else(|| BadKey::new(key, "is missing"))
}

/// The key of a `config.json` that names the architecture.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Architecture {
    model_type: Option<String>,
}

impl Architecture {
    fn check(&self) -> Result<(), BadKey> {
        match self.model_type.as_deref() {
            Some("llama" | "mistral" | "qwen3") => Ok(()),
            other => {
                let why = format!("expected \"llama\", \"mistral\" or \"qwen3\", found {other:?}");
                Err(BadKey::new("model_type", why))
            }
        }
    }
}

/// The keys of a `config.json` that decide sizes or arithmetic. Hugging Face omits a key that is not set, or writes
/// null.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Config {
    model_type: Option<String>,
    hidden_size: Option<u32>,
    num_hidden_layers: Option<u32>,
    num_attention_heads: Option<u32>,
    num_key_value_heads: Option<u32>,
    head_dim: Option<u32>,
    intermediate_size: Option<u32>,
    vocab_size: Option<u32>,
    max_position_embeddings: Option<u32>,
    rms_norm_eps: Option<f64>,
    tie_word_embeddings: Option<bool>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    /// The name that Transformers 5 gives to `rope_scaling`. The object `rope_parameters` also contains `rope_theta`.
    rope_parameters: Option<Rope>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    quantization_config: Option<Value>,
    sliding_window: Option<Value>,
    use_sliding_window: Option<bool>,
    /// The attention type of each layer, in files of Transformers 5. The type says whether the layer has a sliding
    /// window.
    layer_types: Option<Vec<String>>,
}

/// The settings of rotary position embeddings.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Rope {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
    /// The value under the earlier name of `rope_type`, which names the kind of scaling of the rotary frequencies.
    #[serde(rename = "type")]
    old_type: Option<String>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<u32>,
}

impl Config {
    fn shape(&self) -> Result<LlamaShape, BadKey> {
        self.refuse_what_is_not_computed()?;
        let hidden = needed("hidden_size", self.hidden_size)?;
        let heads = needed("num_attention_heads", self.num_attention_heads)?;
        let head_dim = match self.head_dim {
            Some(dim) => dim,
            None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                return Err(BadKey::new("head_dim", format!("is missing, and {heads} heads do not divide {hidden}")));
            }
        };
        let (rope_theta, rope_scaling) = self.rope()?;
        Ok(LlamaShape {
            layers: needed("num_hidden_layers", self.num_hidden_layers)?,
            hidden,
            heads,
            kv_heads: self.num_key_value_heads.unwrap_or(heads),
            head_dim,
            intermediate: needed("intermediate_size", self.intermediate_size)?,
            vocab: needed("vocab_size", self.vocab_size)?,
            tied: self.tie_word_embeddings.unwrap_or(false),
            qk_norm: self.model_type.as_deref() == Some("qwen3"),
            rms_norm_eps: needed("rms_norm_eps", self.rms_norm_eps)? as f32,
            rope_theta,
            rope_scaling,
            max_positions: needed("max_position_embeddings", self.max_position_embeddings)?,
        })
    }

    fn refuse_what_is_not_computed(&self) -> Result<(), BadKey> {
        let activation = self.hidden_act.as_deref().unwrap_or("silu");
        if activation != "silu" {
            return Err(BadKey::new("hidden_act", format!("expected \"silu\", found {activation:?}")));
        }
        for (key, bias) in [("attention_bias", self.attention_bias), ("mlp_bias", self.mlp_bias)] {
            if bias == Some(true) {
                return Err(BadKey::new(key, "biases are not computed"));
            }
        }
        // Qwen's files may give a `sliding_window` but set `use_sliding_window` to false: the model then has no window.
        let window = self.sliding_window.as_ref().filter(|_| self.use_sliding_window != Some(false));
        for (key, value) in [("quantization_config", self.quantization_config.as_ref()), ("sliding_window", window)] {
            if let Some(value) = value {
                return Err(BadKey::new(key, format!("is not computed, found {value}")));
            }
        }
        match self.layer_types.iter().flatten().find(|layer| *layer != "full_attention") {
            Some(other) => Err(BadKey::new("layer_types", format!("{other:?} is not computed"))),
            None => Ok(()),
        }
    }

    /// Returns (the base of the rotary frequencies, their scaling if there is one).
    fn rope(&self) -> Result<(f64, Option<RopeScaling>), BadKey> {
        let base = self.rope_theta.unwrap_or(1e4);
        let (key, rope) = match (&self.rope_parameters, &self.rope_scaling) {
            (Some(rope), _) => ("rope_parameters", rope),
            (None, Some(rope)) => ("rope_scaling", rope),
            (None, None) => return Ok((base, None)),
        };
        let theta = rope.rope_theta.unwrap_or(base);
        let kind = rope.rope_type.as_deref().or(rope.old_type.as_deref());
        match kind {
            Some("default") => Ok((theta, None)),
            Some("llama3") => Ok((theta, Some(rope.llama3(key)?))),
            _ => Err(BadKey::new(key, format!("expected rope_type \"default\" or \"llama3\", found {kind:?}"))),
        }
    }
}

impl Rope {
    /// Reads the scaling of Llama 3.1. `key` is the name of the object in `config.json`, for error messages.
    fn llama3(&self, key: &str) -> Result<RopeScaling, BadKey> {
        let number = |name: &str, value: Option<f64>| needed(&format!("{key}.{name}"), value);
        let original = format!("{key}.original_max_position_embeddings");
        Ok(RopeScaling {
            factor: number("factor", self.factor)?,
            low_freq_factor: number("low_freq_factor", self.low_freq_factor)?,
            high_freq_factor: number("high_freq_factor", self.high_freq_factor)?,
            original_max_position_embeddings: needed(&original, self.original_max_position_embeddings)?,
        })
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
        // Files of Transformers 5 have `rope_theta` within the rope object. Older files omit keys that have their
        // default value.
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
            with("model_type", json!("qwen2")),
            r#"`model_type`: expected "llama", "mistral" or "qwen3", found Some("qwen2")"#
        );
        assert_eq!(with("hidden_size", Value::Null), "`hidden_size`: is missing");
        for (key, value, why) in [
            ("hidden_size", json!(-1), "`hidden_size`: invalid value: integer `-1`, expected u32 at line 1 column "),
            ("head_dim", json!(64.5), "`head_dim`: invalid type: floating point `64.5`, expected u32"),
            ("rms_norm_eps", json!("small"), "`rms_norm_eps`: invalid type: string \"small\", expected f64"),
            ("tie_word_embeddings", json!(1), "`tie_word_embeddings`: invalid type: integer `1`, expected a boolean"),
            ("hidden_act", json!(["silu"]), "`hidden_act`: invalid type: sequence, expected a string"),
            ("rope_scaling", json!(2), "`rope_scaling`: invalid type: integer `2`, expected an object"),
            ("rope_scaling", json!({"factor": "x"}), "`rope_scaling.factor`: invalid type: string \"x\", expected f64"),
            ("layer_types", json!([1]), "`layer_types[0]`: invalid type: integer `1`, expected a string"),
        ] {
            let found = with(key, value);
            assert!(found.starts_with(why), "{found}");
        }
        // If the architecture is not supported, no other key is read. The error is therefore about `model_type`, and
        // not about the wrong `intermediate_size`.
        let mut other = llama_3_2_1b();
        (other["model_type"], other["intermediate_size"]) = (json!("nemotron"), json!([1, 2]));
        assert!(read(&other).unwrap_err().contains("`model_type`"));
        assert_eq!(with("vocab_size", json!(0)), "`vocab_size`: 0 is not a size between 1 and 16777216");
        assert_eq!(with("num_key_value_heads", json!(5)), "`num_key_value_heads`: 5 does not divide 32 heads");
        assert_eq!(with("attention_bias", json!(true)), "`attention_bias`: biases are not computed");
        assert_eq!(with("hidden_act", json!("gelu")), r#"`hidden_act`: expected "silu", found "gelu""#);
        assert_eq!(with("rope_scaling", json!({"type": "llama3"})), "`rope_scaling.factor`: is missing");
        assert!(with("rope_scaling", json!({"type": "yarn"})).starts_with("`rope_scaling`: expected rope_type"));
        assert!(with("quantization_config", json!({})).contains("`quantization_config`"));
        assert_eq!(with("sliding_window", json!(4096)), "`sliding_window`: is not computed, found 4096");
        let layers = json!(["full_attention", "sliding_attention"]);
        assert_eq!(with("layer_types", layers), "`layer_types`: \"sliding_attention\" is not computed");
    }

    /// The test's `config.json` has the keys of Qwen/Qwen3-0.6B's file that decide sizes or arithmetic.
    #[test]
    fn qwen3_normalises_queries_and_keys() {
        let mut json = json!({
            "model_type": "qwen3", "hidden_act": "silu", "hidden_size": 1024, "num_hidden_layers": 28,
            "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
            "vocab_size": 151_936, "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000,
            "rope_scaling": null, "max_position_embeddings": 40_960, "attention_bias": false, "sliding_window": null,
            "use_sliding_window": false, "max_window_layers": 28,
        });
        let shape = read(&json).unwrap();
        assert!(shape.qk_norm && shape.q_width() == 2 * shape.hidden as usize);
        assert_eq!(Ok(shape), preset("qwen3-0.6b").ok_or(String::new()));
        json["sliding_window"] = json!(4096);
        assert!(read(&json).is_ok(), "a window that is not used");
        json["attention_bias"] = json!(true);
        assert_eq!(read(&json).unwrap_err(), "`attention_bias`: biases are not computed");
    }

    #[test]
    fn a_file_that_is_no_config_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        assert!(matches!(read_config(&file), Err(BadConfigFile::Unreadable { .. })));
        std::fs::write(&file, "{\n  oops").unwrap();
        let error = read_config(&file).unwrap_err();
        assert!(error.to_string().contains("config.json: key must be a string at line 2"), "{error}");
        for (text, why) in [("[]", "expected an object"), ("{\"model_type\": \"llama\"} x", "trailing characters")] {
            std::fs::write(&file, text).unwrap();
            let error = read_config(&file).unwrap_err();
            assert!(matches!(&error, BadConfigFile::NotJson { .. }) && error.to_string().contains(why), "{error}");
        }
    }
}
