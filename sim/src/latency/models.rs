//! Model shapes: the models of the AdaSpec paper (Table 1) and the SmartSpec paper (Table 1), and Qwen3's, from their
//! published `config.json` files. Qwen3's parameter counts are from its model cards. Weights and KV are bf16.

use serde::{Deserialize, Serialize};

/// The experts of a mixture-of-experts model; the feed-forward block of the model shape is one expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Experts in a layer.
    pub total: u32,
    /// Experts that a token uses.
    pub active: u32,
}

/// The shape of a Llama-like decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Preset name.
    pub name: &'static str,
    /// Decoder layers.
    pub layers: u32,
    /// Hidden size.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key-value heads.
    pub kv_heads: u32,
    /// Size of a head.
    pub head_dim: u32,
    /// Size of the feed-forward block.
    pub intermediate: u32,
    /// Size of the vocabulary.
    pub vocab: u32,
    /// Whether the output head shares the embedding's weights.
    pub tied: bool,
    /// Its experts; `None` for a dense model.
    pub experts: Option<Experts>,
    /// Published number of parameters, to check the shape.
    pub published_parameters: f64,
}

/// Bytes of a bf16 number.
const BF16: f64 = 2.0;

const DENSE: Model = Model {
    name: "",
    layers: 0,
    hidden: 0,
    heads: 0,
    kv_heads: 0,
    head_dim: 128,
    intermediate: 0,
    vocab: 32_000,
    tied: false,
    experts: None,
    published_parameters: 0.0,
};

#[rustfmt::skip]
/// The presets.
pub const MODELS: [Model; 15] = [
    Model { name: "vicuna-7b", layers: 32, hidden: 4096, heads: 32, kv_heads: 32, intermediate: 11_008, published_parameters: 6.738e9, ..DENSE },
    Model { name: "llama-2-7b", layers: 32, hidden: 4096, heads: 32, kv_heads: 32, intermediate: 11_008, published_parameters: 6.738e9, ..DENSE },
    Model { name: "llama-2-13b", layers: 40, hidden: 5120, heads: 40, kv_heads: 40, intermediate: 13_824, published_parameters: 13.016e9, ..DENSE },
    Model { name: "vicuna-33b", layers: 60, hidden: 6656, heads: 52, kv_heads: 52, intermediate: 17_920, published_parameters: 32.53e9, ..DENSE },
    Model { name: "llama-2-70b", layers: 80, hidden: 8192, heads: 64, kv_heads: 8, intermediate: 28_672, published_parameters: 68.98e9, ..DENSE },
    Model { name: "llama-3.3-70b", layers: 80, hidden: 8192, heads: 64, kv_heads: 8, intermediate: 28_672, vocab: 128_256, published_parameters: 70.55e9, ..DENSE },
    Model { name: "llama-3.1-8b", layers: 32, hidden: 4096, heads: 32, kv_heads: 8, intermediate: 14_336, vocab: 128_256, published_parameters: 8.03e9, ..DENSE },
    Model { name: "llama-3.2-1b", layers: 16, hidden: 2048, heads: 32, kv_heads: 8, head_dim: 64, intermediate: 8192, vocab: 128_256, tied: true, published_parameters: 1.236e9, ..DENSE },
    Model { name: "mistral-7b", layers: 32, hidden: 4096, heads: 32, kv_heads: 8, intermediate: 14_336, published_parameters: 7.242e9, ..DENSE },
    Model { name: "mixtral-8x7b", layers: 32, hidden: 4096, heads: 32, kv_heads: 8, intermediate: 14_336, experts: Some(Experts { total: 8, active: 2 }), published_parameters: 46.7e9, ..DENSE },
    Model { name: "tinyllama-1.1b", layers: 22, hidden: 2048, heads: 32, kv_heads: 4, head_dim: 64, intermediate: 5632, published_parameters: 1.1e9, ..DENSE },
    Model { name: "vicuna-68m", layers: 2, hidden: 768, heads: 12, kv_heads: 12, head_dim: 64, intermediate: 3072, published_parameters: 68.03e6, ..DENSE },
    Model { name: "vicuna-160m", layers: 12, hidden: 768, heads: 12, kv_heads: 12, head_dim: 64, intermediate: 3072, published_parameters: 162.4e6, ..DENSE },
    Model { name: "qwen3-0.6b", layers: 28, hidden: 1024, heads: 16, kv_heads: 8, intermediate: 3072, vocab: 151_936, tied: true, published_parameters: 0.6e9, ..DENSE },
    Model { name: "qwen3-8b", layers: 36, hidden: 4096, heads: 32, kv_heads: 8, intermediate: 12_288, vocab: 151_936, published_parameters: 8.2e9, ..DENSE },
];

/// The target and draft that are shipped with their weights.
pub const SHIPPED: [&str; 2] = ["tiny-target", "tiny-draft"];

/// The preset with this name.
pub fn model(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|m| m.name == name)
}

impl Model {
    /// Number of attention weights in one layer.
    pub fn attention_parameters(&self) -> f64 {
        let (hidden, dim) = (f64::from(self.hidden), f64::from(self.head_dim));
        hidden * dim * (2.0 * f64::from(self.heads) + 2.0 * f64::from(self.kv_heads))
    }

    /// Number of weights of one feed-forward block (gate, up, down), that is of one expert.
    pub fn expert_parameters(&self) -> f64 {
        3.0 * f64::from(self.hidden) * f64::from(self.intermediate)
    }

    /// Number of weights of the output head.
    pub fn head_parameters(&self) -> f64 {
        f64::from(self.hidden) * f64::from(self.vocab)
    }

    /// Number of all weights; norms are left out (under 0.1 %).
    pub fn parameters(&self) -> f64 {
        let experts = f64::from(self.experts.map_or(1, |e| e.total));
        let embeddings = self.head_parameters() * if self.tied { 1.0 } else { 2.0 };
        f64::from(self.layers) * (self.attention_parameters() + experts * self.expert_parameters()) + embeddings
    }

    /// Bytes of all weights.
    pub fn weight_bytes(&self) -> f64 {
        self.parameters() * BF16
    }

    /// Bytes of KV for one token.
    pub fn kv_bytes_token(&self) -> f64 {
        2.0 * f64::from(self.layers) * f64::from(self.kv_heads) * f64::from(self.head_dim) * BF16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_published_sizes() {
        for m in &MODELS {
            let ratio = m.parameters() / m.published_parameters;
            assert!((ratio - 1.0).abs() < 0.01, "{}: {} against {}", m.name, m.parameters(), m.published_parameters);
        }
    }

    #[test]
    fn kv_of_vicuna_7b_is_half_a_mebibyte_a_token() {
        assert_eq!(model("vicuna-7b").unwrap().kv_bytes_token(), 524_288.0);
        assert_eq!(model("vicuna-68m").unwrap().kv_bytes_token(), 6144.0);
    }
}
