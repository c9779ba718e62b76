//! The shape of a Llama decoder: everything that decides sizes and arithmetic, without weights. Qwen3 is a Llama with
//! normalised queries and keys.

/// Llama 3's scaling of the rotary frequencies (`rope_type = "llama3"`; Hugging Face transformers,
/// `modeling_rope_utils.py`). Frequencies of long wavelengths are divided by `factor`. Frequencies of short wavelengths
/// stay as they are. For wavelengths between long and short, the scaled and the unscaled frequency are blended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeScaling {
    /// Factor by which the frequencies of long wavelengths are divided.
    pub factor: f64,
    /// Wavelengths above `original_max_position_embeddings / low_freq_factor` are long.
    pub low_freq_factor: f64,
    /// Wavelengths below `original_max_position_embeddings / high_freq_factor` are short.
    pub high_freq_factor: f64,
    /// Context length with which the model was first trained, in tokens.
    pub original_max_position_embeddings: u32,
}

/// The shape of a Llama-like decoder: RMSNorm, rotary positions, grouped-query attention and SwiGLU, without biases.
/// With `qk_norm` it is a Qwen3.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaShape {
    /// Number of decoder layers.
    pub layers: u32,
    /// Width of the hidden state.
    pub hidden: u32,
    /// Number of query heads.
    pub heads: u32,
    /// Number of key-value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: u32,
    /// Width of a head's query, key or value; even.
    pub head_dim: u32,
    /// Width of the inner layer of the feed-forward block (MLP).
    pub intermediate: u32,
    /// Number of tokens in the vocabulary.
    pub vocab: u32,
    /// True if the LM head shares the embedding's weights.
    pub tied: bool,
    /// True if each head's query and key are normalised (RMSNorm over the head) before they are rotated. Qwen3 does
    /// this (Qwen3 Technical Report, arXiv 2505.09388, section 2).
    pub qk_norm: bool,
    /// A small number that RMSNorm adds to the mean square, so that it does not divide by 0.
    pub rms_norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Llama 3's scaling of the rotary frequencies, if the model uses it.
    pub rope_scaling: Option<RopeScaling>,
    /// Longest context that the model supports, in tokens.
    pub max_positions: u32,
}

/// The error of a shape that the forward pass cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{key}`: {why}")]
pub struct BadShape {
    /// The key of `config.json` whose value the forward pass does not support.
    pub key: &'static str,
    /// What is wrong with the value of the key.
    pub why: String,
}

impl LlamaShape {
    /// Checks that the forward pass can run a model of this shape.
    pub fn check(&self) -> Result<(), BadShape> {
        let bad = |key, why: String| Err(BadShape { key, why });
        let sizes = [
            ("num_hidden_layers", self.layers),
            ("hidden_size", self.hidden),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("intermediate_size", self.intermediate),
            ("vocab_size", self.vocab),
            ("max_position_embeddings", self.max_positions),
        ];
        // Each size is at most 2²⁴. Every product of two sizes then fits into 64 bits, and an index fits into 32 bits.
        if let Some((key, size)) = sizes.into_iter().find(|&(_, size)| size == 0 || size > 1 << 24) {
            return bad(key, format!("{size} is not a size between 1 and {}", 1 << 24));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return bad("num_key_value_heads", format!("{} does not divide {} heads", self.kv_heads, self.heads));
        }
        if !self.head_dim.is_multiple_of(2) {
            return bad("head_dim", format!("{} is odd; rotary positions turn pairs", self.head_dim));
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0) {
            return bad("rms_norm_eps", format!("{} is not above 0", self.rms_norm_eps));
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 0.0) {
            return bad("rope_theta", format!("{} is not above 0", self.rope_theta));
        }
        match self.rope_scaling {
            Some(s) if !(s.factor >= 1.0 && s.low_freq_factor > 0.0 && s.high_freq_factor > s.low_freq_factor) => {
                bad("rope_scaling", format!("needs factor ≥ 1 and 0 < low_freq_factor < high_freq_factor, has {s:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Width of the queries of a token: `heads · head_dim`.
    pub fn q_width(&self) -> usize {
        self.heads as usize * self.head_dim as usize
    }

    /// Width of the keys of a token, and of its values: `kv_heads · head_dim`.
    pub fn kv_width(&self) -> usize {
        self.kv_heads as usize * self.head_dim as usize
    }

    /// Number of query heads that share a key-value head.
    pub fn group(&self) -> usize {
        (self.heads / self.kv_heads) as usize
    }
}
