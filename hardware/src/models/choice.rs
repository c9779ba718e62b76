//! How a setting names a model: a preset, a `config.json`, or a shape.

use super::catalog::{catalog, entry};
use super::layers::FeedForward;
use super::shape::ModelShape;
use crate::bad::{BadLatency, bad, unknown};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// A model in an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum ModelChoice {
    /// A preset.
    Preset(PresetName),
    /// A Hugging Face `config.json`. Loading an experiment replaces it by the shape that it says.
    File(ConfigFile),
    /// A shape.
    Shape(Box<ModelShape>),
}

/// The name of a preset model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct PresetName(#[schemars(extend("enum" = names()))] pub String);

fn names() -> Vec<&'static str> {
    catalog().iter().map(|e| e.name.as_str()).collect()
}

/// A `config.json` by its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// The file; a relative path starts at the experiment's folder. `-` is standard input.
    pub config: String,
    /// What the model is called; without it, the name of the file's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Take the model's MTP module, which drafts, instead of the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mtp: bool,
}

/// The experts of a mixture-of-experts model; the dense feed-forward block of the model's shape becomes one expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Experts in a layer.
    pub total: u32,
    /// Experts that a token uses.
    pub active: u32,
}

impl ModelChoice {
    /// The preset of this name.
    pub fn preset(name: &str) -> ModelChoice {
        ModelChoice::Preset(PresetName(name.to_owned()))
    }

    /// The model's shape.
    ///
    /// # Errors
    /// There is no such preset, the shape has a fault, or a `config.json` has not been read.
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
    /// The shape with a mixture of `experts` in each layer instead of what it has; an expert is as wide as the dense
    /// block or the expert that was there.
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
