//! The defaults of the families' configuration classes in transformers, for keys that a file does not have.
//!
//! `defaults.json` is written by `tests/models/defaults.py` from transformers (Apache-2.0); the file names the release.
//! It has the keys that decide a shape. A value that a class computes from other keys is not in it: the code has these
//! rules, and `tests/removed.rs` compares them with the classes.

use super::bad::BadConfig;
use super::fields::Fields;
use serde_json::{Map, Value};
use std::sync::LazyLock;

static DEFAULTS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("defaults.json")).unwrap_or_else(|e| panic!("defaults.json: {e}"))
});

/// The defaults for the decoder's object `fields` of the file `whole`; `None` if transformers has no class for it.
pub fn of(whole: &Fields, fields: &Fields) -> Result<Option<&'static Map<String, Value>>, BadConfig> {
    let nested = fields.text("model_type")?;
    let names = [nested, whole.text("model_type")?];
    // The class of a multimodal model's decoder has a name of its own, as `qwen3_5_text`.
    let found =
        names.into_iter().flatten().find_map(|name| DEFAULTS.get(&format!("{name}_text")).or(DEFAULTS.get(name)));
    Ok(found.and_then(Value::as_object))
}

/// Keys whose default is what a reader of the file expects without them.
const EXPECTED: [&str; 12] = [
    "attention_k_eq_v", "conv_kernel", "decoder_sparse_step", "enable_moe_block", "first_k_dense_replace",
    "interleave_moe_layer_step", "linear_conv_kernel_dim", "max_window_layers", "no_rope_layer_interval",
    "num_kv_shared_layers", "sliding_window_pattern", "use_sliding_window",
];

/// Warnings about the defaults that were taken for keys that the file does not have, one sentence each.
pub fn words(fields: &Fields) -> Vec<String> {
    let taken = fields.taken().into_iter().filter(|(path, _)| {
        let key = path.rsplit('.').next().unwrap_or(path);
        !EXPECTED.contains(&key)
    });
    taken
        .map(|(key, value)| format!("`{key}` is missing: transformers' default of this family is taken, {value}"))
        .collect()
}

/// The class's default of `key` in the object `nested` of the file, or in the file.
#[cfg(test)]
pub fn for_test(file: &Value, nested: Option<&str>, key: &str) -> Option<Value> {
    let whole = Fields::of(file).ok()?;
    let fields = nested.map_or(Ok(None), |nested| whole.table(nested)).ok()?.unwrap_or_else(|| whole.clone());
    of(&whole, &fields).ok()??.get(key).cloned()
}
