//! The work of a pass that only writes the keys and values of its tokens: the first pass of a block drafter (DFlash,
//! DSpark), `precompute_and_store_context_kv` in vLLM.
//!
//! Such a pass multiplies the target's hidden states by the joining matrix, and the result by every layer's
//! projections to keys and values. There is no query, no attention, no feed-forward block and no output head.

use super::layers::Attention;
use super::shape::ModelShape;
use super::work::FlopsByBits;

impl ModelShape {
    /// For a pass that only writes keys and values: (bytes of the weights that it reads, FLOP for one token).
    pub fn context_work(&self) -> (f64, FlopsByBits) {
        let of_layers: f64 =
            self.layers.iter().map(|g| f64::from(g.count) * writes(&g.attention, f64::from(self.hidden))).sum();
        let parameters = self.joining_parameters + of_layers;
        let mut flops = FlopsByBits::default();
        flops.add(self.bits.activations, 2.0 * parameters);
        (self.bits.weights / 8.0 * parameters, flops)
    }
}

/// Number of weights of the projections from a layer's input to what the KV cache holds of a token. A recurrent layer
/// runs as a whole, because its state is what it keeps.
fn writes(attention: &Attention, hidden: f64) -> f64 {
    match *attention {
        Attention::Grouped { kv_heads, head_dim, value_dim, input, values_from_keys, .. } => {
            let value_dim = if values_from_keys { 0 } else { value_dim.unwrap_or(head_dim) };
            input.map_or(hidden, f64::from) * f64::from(kv_heads) * (f64::from(head_dim) + f64::from(value_dim))
        }
        Attention::Latent { kv_rank, rope_dim, .. } => hidden * (f64::from(kv_rank) + f64::from(rope_dim)),
        Attention::Compressed { head_dim, .. } => hidden * f64::from(head_dim),
        Attention::Recurrent { parameters, .. } => parameters,
        Attention::None => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use crate::hardware::models::ModelChoice;

    /// z-lab/Qwen3-8B-DFlash-b16: hidden size 4096, hidden states of 5 target layers, 5 layers with 8 key-value heads
    /// of 128.
    #[test]
    fn a_block_drafter_writes_its_context_with_the_joining_matrix_and_two_projections_a_layer() {
        let choice = ModelChoice::preset("dflash-qwen3-8b");
        let shape = choice.shape().unwrap();
        let parameters = 5.0 * 4096.0 * 4096.0 + 5.0 * 4096.0 * 2.0 * 8.0 * 128.0;
        let (bytes, flops) = shape.context_work();
        assert_eq!((bytes, flops.bf16), (2.0 * parameters, 2.0 * parameters));
        // The drafter computes with 1.67 billion weights (1.05 billion are its own, the rest is the target's output
        // head), of which this pass reads 126 million.
        let share = bytes / shape.work().weight_bytes;
        assert!((share - 125.8 / 1671.0).abs() < 5e-4, "{share}");
    }
}
