//! How a setting names a model: a preset, a `config.json`, or a shape.

use super::catalog::{catalog, entry};
use super::layers::FeedForward;
use super::shape::ModelShape;
use crate::hardware::bad::{BadLatency, bad, unknown};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// A model: the name of a preset, `{ config = "config.json" }`, or a shape.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum ModelChoice {
    /// A preset model, by its name.
    Preset(PresetName),
    /// A Hugging Face `config.json`. When the experiment is loaded, the shape is read from the file.
    File(ConfigFile),
    /// The shape of a model (sizes and bits), written out in the experiment.
    Shape(Box<ModelShape>),
}

/// The name of a preset model, as `foretoken models list` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct PresetName(#[schemars(extend("enum" = names()))] pub String);

fn names() -> Vec<&'static str> {
    catalog().iter().map(|e| e.name.as_str()).collect()
}

/// A Hugging Face `config.json` from which the model's shape is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// Path of the `config.json`, or of the folder that has it; a relative path starts at the experiment's folder. The
    /// `hf_quant_config.json` beside it is read too. `-` is standard input.
    pub config: String,
    /// Name of the model in results. Default: the name of the file's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the model's MTP module (a drafter) is taken in place of the model itself. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mtp: bool,
}

/// Numbers of experts that replace the numbers in the model's shape. A dense feed-forward block becomes a mixture of
/// experts, in which each expert has the size of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Number of routed experts in a layer.
    pub total: u32,
    /// Number of routed experts that a token uses, from 1 to `total`.
    pub active: u32,
}

/// A text is a preset, a table with `config` a file, another table a shape. Their own errors are kept: they name the
/// key that is wrong or missing.
impl<'de> Deserialize<'de> for ModelChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ModelChoice, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) => Ok(ModelChoice::Preset(PresetName(name))),
            table if table.get("config").is_some() => {
                serde_json::from_value(table).map(ModelChoice::File).map_err(D::Error::custom)
            }
            table => serde_json::from_value(table).map(ModelChoice::Shape).map_err(D::Error::custom),
        }
    }
}

impl ModelChoice {
    /// Chooses the preset `name`. [`shape`](Self::shape) later checks that the preset exists.
    pub fn preset(name: &str) -> ModelChoice {
        ModelChoice::Preset(PresetName(name.to_owned()))
    }

    pub fn shape(&self) -> Result<Cow<'_, ModelShape>, BadLatency> {
        match self {
            ModelChoice::Preset(PresetName(name)) => match entry(name) {
                Some(entry) => Ok(Cow::Borrowed(&entry.shape)),
                None => Err(unknown("model", name, catalog().iter().map(|e| e.name.as_str()))),
            },
            ModelChoice::Shape(shape) => shape.check().map(|()| Cow::Borrowed(&**shape)),
            ModelChoice::File(file) => {
                Err(bad("model.config", format!("{} is read when an experiment is loaded from a file", file.config)))
            }
        }
    }
}

impl fmt::Display for ModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelChoice::Preset(PresetName(name)) => f.write_str(name),
            ModelChoice::Shape(shape) => f.write_str(&shape.name),
            ModelChoice::File(file) => f.write_str(file.name.as_deref().unwrap_or(&file.config)),
        }
    }
}

impl ModelShape {
    /// Puts a mixture of `experts` into each layer that has a feed-forward block. An expert is as wide as the dense
    /// block or the routed expert that it replaces.
    pub fn with_experts(mut self, experts: Experts) -> ModelShape {
        let Experts { total, active } = experts;
        for group in &mut self.layers {
            group.feed_forward = match group.feed_forward {
                FeedForward::Dense { intermediate, gated } => {
                    FeedForward::Experts { total, active, intermediate, shared_intermediate: 0, latent: None, gated }
                }
                FeedForward::Experts { intermediate, shared_intermediate, latent, gated, .. } => {
                    FeedForward::Experts { total, active, intermediate, shared_intermediate, latent, gated }
                }
                FeedForward::None => FeedForward::None,
            };
        }
        self
    }
}
