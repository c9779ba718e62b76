//! Reads the shape of a model from a Hugging Face `config.json`.
//!
//! `model_type` names the family. The family decides which keys are read, and which layers have a window, a recurrent
//! state or experts (`layers.rs`). An unknown family is an error. An unknown key gives a warning, and so does a known
//! key whose effect the roofline does not model.

mod attention;
mod bad;
mod block_sparse;
mod blocks;
mod compressed;
mod contradictions;
mod defaults;
mod families;
mod feed_forward;
mod fields;
mod harmless;
mod heads;
mod indexers;
mod layers;
mod python;
mod quantization;
mod recurrent;
#[cfg(test)]
mod tests;

pub use bad::BadConfig;
pub use harmless::{HARMLESS_KEYS, HarmlessKeys};

use crate::hardware::models::{AttentionWork, LayerGroup, ModelShape};
use fields::Fields;
use quantization::Part;
use serde_json::Value;

/// The shapes (sizes and bits) and the warnings that were read from a `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadConfig {
    /// The model's shape, under the name that the caller gave.
    pub shape: ModelShape,
    /// The shape of the model's MTP module as a draft model; `None`: the model has no module.
    pub mtp: Option<ModelShape>,
    /// Warnings about features that the file gives and that the roofline does not model, one sentence each.
    pub warnings: Vec<String>,
}

/// Reads the text of a `config.json`. `name` becomes the name of the shape.
pub fn read(text: &str, name: &str) -> Result<ReadConfig, BadConfig> {
    read_beside(text, None, name)
}

/// Reads the text of a `config.json`, and of the `hf_quant_config.json` beside it if there is one. The second file says
/// how ModelOpt quantised the weights. As in vLLM, the first file's own `quantization_config` comes before it.
pub fn read_beside(text: &str, quantization: Option<&str>, name: &str) -> Result<ReadConfig, BadConfig> {
    let mut json = parsed(text, "")?;
    if let (Some(quantization), Some(config)) = (quantization, json.as_object_mut())
        && !config.contains_key("quantization_config")
    {
        let mut second = parsed(quantization, "hf_quant_config.json: ")?;
        let table = second.get_mut("quantization").map(Value::take).filter(Value::is_object);
        let table = table.ok_or_else(|| BadConfig {
            key: "hf_quant_config.json: quantization".into(),
            why: "missing; it says how the weights are kept".into(),
        })?;
        config.insert("quantization_config".into(), table);
    }
    read_value(&json, name)
}

fn parsed(text: &str, file: &str) -> Result<Value, BadConfig> {
    serde_json::from_str(&python::to_json(text))
        .map_err(|e| BadConfig { key: format!("{file}line {}", e.line()), why: format!("this is not JSON: {e}") })
}

/// Reads a `config.json` that is already parsed into the JSON value `json`. `name` becomes the name of the shape.
pub fn read_value(json: &Value, name: &str) -> Result<ReadConfig, BadConfig> {
    let whole = Fields::of(json)?;
    // A drafter of Speculators has its layers in a nested object, which names their family.
    let drafter = heads::speculator(&whole)?;
    let family = families::of(drafter.as_ref().unwrap_or(&whole))?;
    contradictions::check(&whole, family)?;
    // The files of multimodal models have the decoder's keys in a nested object.
    let fields = match drafter {
        Some(layers) => layers,
        None => whole.table(family.nested)?.unwrap_or_else(|| whole.clone()),
    };
    let fields = fields.clone().with_defaults(defaults::of(&whole, &fields)?);
    families::check_needs(family, &fields)?;
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
    if !has(&shape, Part::Dense) {
        (shape.bits.dense, shape.bits.dense_activations) = (None, None);
    }
    heads::widen(&whole, &fields, &mut shape)?;
    shape.check().map_err(|e| BadConfig { key: e.key, why: e.why })?;
    let mtp = heads::mtp(&fields, family, &shape)?;
    let of_parts = bits.warnings.into_iter().filter(|(part, _)| has(&shape, *part));
    let mut warnings: Vec<String> = of_parts.map(|(_, warning)| warning).collect();
    warnings.extend(fields.unread(&whole).into_iter().map(|key| format!("`{key}` is not modelled")));
    warnings.extend(defaults::words(&fields));
    warnings.extend(family.warning.map(str::to_owned));
    let work = shape.work();
    if work.attention.iter().any(AttentionWork::slides) && work.windows(1.0).is_none() {
        warnings.push("all layers have a window; memory for KV is counted as if they kept every token".to_owned());
    }
    Ok(ReadConfig { shape, mtp, warnings })
}

/// Whether the shape has weights of this part.
fn has(shape: &ModelShape, part: Part) -> bool {
    shape.layers.iter().any(|g| match part {
        Part::Attention => g.attention.parameters(shape.hidden) > 0.0,
        Part::Dense => g.feed_forward.dense_parameters(shape.hidden) > 0.0,
        Part::Experts => g.feed_forward.experts().0 > 0,
    })
}

/// Merges equal layers, also those that are not neighbours, into one group each. The groups are in the order of their
/// first layers.
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
