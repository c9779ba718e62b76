//! The shape of a model.

use super::layers::LayerGroup;
use serde::{Deserialize, Serialize};

/// The shape of a decoder, as far as the time of its passes depends on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelShape {
    /// What the model is called.
    pub name: String,
    /// Hidden size.
    pub hidden: u32,
    /// Size of the vocabulary.
    pub vocab: u32,
    /// Whether the output head shares the embedding's weights.
    #[serde(default)]
    pub tied: bool,
    /// Its layers, in groups of equal ones.
    pub layers: Vec<LayerGroup>,
    /// Weights that every pass reads beside the layers and the output head: what joins the target's hidden states in
    /// an EAGLE head or an MTP module.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub joining_parameters: f64,
    /// Bits of its numbers.
    #[serde(default)]
    pub bits: Bits,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

/// Bits of a model's numbers, scales of quantised ones included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bits {
    /// A weight of attention, and of a dense block and a shared expert where `dense` is not given.
    pub weights: f64,
    /// A weight of a dense block and of a shared expert; none: `weights`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<f64>,
    /// A weight of an expert.
    pub experts: f64,
    /// A weight of the embedding and of the output head.
    pub head: f64,
    /// A number of the KV cache.
    pub kv: f64,
    /// A number that is multiplied with the weights of attention, and of dense blocks and shared experts where
    /// `dense_activations` is not given: 16, 8 or 4. It says at which of the GPU's peaks they are computed.
    pub activations: f64,
    /// A number that is multiplied with the weights of dense blocks and shared experts; none: `activations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense_activations: Option<f64>,
    /// A number that is multiplied with an expert's weights.
    pub expert_activations: f64,
}

impl Default for Bits {
    fn default() -> Bits {
        Bits {
            weights: 16.0,
            dense: None,
            experts: 16.0,
            head: 16.0,
            kv: 16.0,
            activations: 16.0,
            dense_activations: None,
            expert_activations: 16.0,
        }
    }
}

impl ModelShape {
    /// Number of layers.
    pub fn num_layers(&self) -> u32 {
        self.layers.iter().map(|g| g.count).sum()
    }

    /// Number of weights of the output head, which is also that of the embedding.
    pub fn head_parameters(&self) -> f64 {
        f64::from(self.hidden) * f64::from(self.vocab)
    }

    /// Number of all weights. Norms, biases and routers are left out: they are under 0.1 %.
    pub fn parameters(&self) -> f64 {
        self.count_parameters(|(total, _)| total)
    }

    /// Number of weights that a token uses, the embedding included.
    pub fn active_parameters(&self) -> f64 {
        self.count_parameters(|(_, active)| active)
    }

    fn count_parameters(&self, experts: impl Fn((u32, u32)) -> u32) -> f64 {
        let layer = |g: &LayerGroup| {
            let block = g.feed_forward;
            let of_experts = f64::from(experts(block.experts())) * block.expert_parameters(self.hidden);
            g.attention.parameters(self.hidden) + block.dense_parameters(self.hidden) + of_experts
        };
        let layers: f64 = self.layers.iter().map(|g| f64::from(g.count) * layer(g)).sum();
        layers + self.joining_parameters + self.head_parameters() * if self.tied { 1.0 } else { 2.0 }
    }
}
