//! The shape of a model: the sizes of its layers and the bits of its numbers.

use super::layers::LayerGroup;
use serde::{Deserialize, Serialize};

/// The sizes and bits of a decoder that determine its pass times and its memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelShape {
    /// Name of the model in results.
    pub name: String,
    /// Hidden size, at least 1.
    pub hidden: u32,
    /// Number of tokens in the vocabulary, at least 1.
    pub vocab: u32,
    /// Whether the output head uses the embedding's weights, so that memory holds them once. Default: false.
    #[serde(default)]
    pub tied: bool,
    /// The layers, in groups of equal layers. The order of the groups does not matter.
    pub layers: Vec<LayerGroup>,
    /// Number of weights of the matrix that joins hidden states and embedding in an EAGLE head or an MTP module. Every
    /// pass reads them, beside the layers and the output head. Default: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub joining_parameters: f64,
    /// Bits of each weight, activation and number of the KV cache. Default: 16.
    #[serde(default)]
    pub bits: Bits,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

/// Bits of a model's numbers, each from 1 to 32. Quantised weights include their share of the scales, so 4.25 is
/// possible.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bits {
    /// Bits of a weight of attention, and of dense blocks and shared experts if `dense` is not given.
    pub weights: f64,
    /// Bits of a weight of dense blocks and shared experts. Default: `weights`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<f64>,
    /// Bits of a weight of a routed expert.
    pub experts: f64,
    /// Bits of a weight of the output head, and of the embedding if `embedding` is not given.
    pub head: f64,
    /// Bits of a weight of the embedding, if the output head does not use its weights. Default: `head`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<f64>,
    /// Bits of a number in the KV cache.
    pub kv: f64,
    /// Bits of the activations in attention; also in dense blocks and shared experts if `dense_activations` is not
    /// given. The bits of activations choose the GPU's peak arithmetic: bf16 above 8 bits, fp8 above 4, else fp4.
    pub activations: f64,
    /// Bits of the activations in dense blocks and shared experts. Default: `activations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense_activations: Option<f64>,
    /// Bits of the activations in routed experts.
    pub expert_activations: f64,
}

impl Default for Bits {
    fn default() -> Bits {
        Bits {
            weights: 16.0,
            dense: None,
            experts: 16.0,
            head: 16.0,
            embedding: None,
            kv: 16.0,
            activations: 16.0,
            dense_activations: None,
            expert_activations: 16.0,
        }
    }
}

impl ModelShape {
    /// Number of layers of the model, over all groups.
    pub fn num_layers(&self) -> u32 {
        self.layers.iter().map(|g| g.count).sum()
    }

    /// Number of weights of the output head. The embedding has the same number.
    pub fn head_parameters(&self) -> f64 {
        f64::from(self.hidden) * f64::from(self.vocab)
    }

    /// Number of all weights. Norms, biases and routers are not counted, because they are under 0.1 % of the weights.
    pub fn parameters(&self) -> f64 {
        self.count_parameters(|(total, _)| total)
    }

    /// Number of weights that a token uses. The embedding is counted. Of the routed experts, only the active ones are
    /// counted.
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
