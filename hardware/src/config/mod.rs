//! Reads the shape of a model out of a Hugging Face `config.json`.
//!
//! The reader knows families by `model_type`: their names of keys, and which of their layers attend to a window, keep a
//! state or have experts (`layers.rs`). A family that it does not know is refused. A key that it does not know is named
//! in a warning, and so is what a file says and no roofline models.

mod attention;
mod bad;
mod block_sparse;
mod blocks;
mod compressed;
mod families;
mod feed_forward;
mod fields;
mod harmless;
mod heads;
mod indexers;
mod layers;
mod parts;
mod python;
mod quantization;
mod recurrent;
#[cfg(test)]
mod tests;

pub use bad::BadConfig;

use crate::models::{LayerGroup, ModelShape};
use fields::Fields;
use serde_json::Value;

/// What a `config.json` says.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadConfig {
    /// The model.
    pub shape: ModelShape,
    /// Its module that predicts further tokens (MTP), as a draft of one layer; `None`: it has none.
    pub mtp: Option<ModelShape>,
    /// What the file says and is not modelled, a sentence each.
    pub warnings: Vec<String>,
}

/// Reads the text of a `config.json`. The shape is called `name`.
///
/// # Errors
/// The text is no JSON object, its `model_type` is unknown, a field that a shape needs is missing or of the wrong kind,
/// or fields contradict each other.
pub fn read(text: &str, name: &str) -> Result<ReadConfig, BadConfig> {
    let json: Value = serde_json::from_str(&python::to_json(text))
        .map_err(|e| BadConfig { key: format!("line {}", e.line()), why: format!("this is not JSON: {e}") })?;
    read_value(&json, name)
}

/// [`read`] of parsed JSON.
///
/// # Errors
/// As [`read`].
pub fn read_value(json: &Value, name: &str) -> Result<ReadConfig, BadConfig> {
    let whole = Fields::of(json)?;
    let family = families::of(&whole)?;
    // Models that also see images keep the decoder's shape in a table of its own.
    let fields = whole.table(family.nested)?.unwrap_or_else(|| whole.clone());
    let bits = quantization::bits(&whole, &fields)?;
    let mut shape = ModelShape {
        name: name.to_owned(),
        hidden: fields.size("hidden_size")?,
        vocab: fields.size("vocab_size")?,
        tied: fields.flag("tie_word_embeddings")?.or(whole.flag("tie_word_embeddings")?).unwrap_or(family.tied),
        layers: grouped(layers::of(&fields, family)?),
        joining_parameters: 0.0,
        bits: bits.bits,
    };
    if shape.layers.iter().all(|g| g.feed_forward.dense_parameters(shape.hidden) == 0.0) {
        (shape.bits.dense, shape.bits.dense_activations) = (None, None);
    }
    heads::widen(&fields, &mut shape)?;
    shape.check().map_err(|e| BadConfig { key: e.key, why: e.why })?;
    let mtp = heads::mtp(&fields, family, &shape)?;
    let mut warnings = bits.warnings;
    warnings.extend(fields.unread(&whole).into_iter().map(|key| format!("`{key}` is not modelled")));
    warnings.extend(family.warning.map(str::to_owned));
    if shape.work().attention.iter().any(|a| a.window.is_some() && !a.by_token && a.kept_bytes > 0.0) {
        warnings.push("memory for KV is counted as if window layers kept every token".to_owned());
    }
    Ok(ReadConfig { shape, mtp, warnings })
}

/// Equal layers together, in the order in which each kind comes first.
fn grouped(layers: Vec<LayerGroup>) -> Vec<LayerGroup> {
    let mut groups: Vec<LayerGroup> = Vec::new();
    for layer in layers {
        match groups.iter_mut().find(|g| (g.attention, g.feed_forward) == (layer.attention, layer.feed_forward)) {
            Some(same) => same.count += layer.count,
            None => groups.push(layer),
        }
    }
    groups
}
