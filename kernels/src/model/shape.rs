//! The shape of a Llama decoder, or of Qwen3, which is one with normalised queries and keys: everything that decides sizes and arithmetic, and no weights.

/// Llama 3's stretching of the rotary frequencies (`rope_type = "llama3"`; Hugging Face transformers,
/// `modeling_rope_utils.py`): long wavelengths are slowed by `factor`, short ones kept, the ones between blended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeScaling {
    /// How much slower the long wavelengths turn.
    pub factor: f64,
    /// Wavelengths above `original_max_position_embeddings / low_freq_factor` are long.
    pub low_freq_factor: f64,
    /// Wavelengths below `original_max_position_embeddings / high_freq_factor` are short.
    pub high_freq_factor: f64,
    /// Context the model was first trained for, tokens.
    pub original_max_position_embeddings: u32,
}

/// A Llama-shaped decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU; no biases. Qwen3 is one with
/// `qk_norm`.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaShape {
    /// Decoder layers.
    pub layers: u32,
    /// Width.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key-value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: u32,
    /// Width of a head; even.
    pub head_dim: u32,
    /// Width of the feed-forward block.
    pub intermediate: u32,
    /// Vocabulary.
    pub vocab: u32,
    /// Does the head share the embedding's weights?
    pub tied: bool,
    /// Is each head's query and key normalised (RMSNorm over the head) before it is turned? Qwen3 does (Qwen3 Technical
    /// Report, arXiv 2505.09388, section 2).
    pub qk_norm: bool,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Llama 3's stretching of them.
    pub rope_scaling: Option<RopeScaling>,
    /// Positions it was made for, tokens.
    pub max_positions: u32,
}

/// A shape no forward pass can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{key}`: {why}")]
pub struct BadShape {
    /// The key of `config.json` at fault.
    pub key: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl LlamaShape {
    /// Can it be run?
    ///
    /// # Errors
    /// The first key that cannot, and why.
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
        // The bound keeps every product of two sizes within 64 bits, and an index within 32.
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

    /// Query heads that share a key-value head.
    pub fn group(&self) -> usize {
        (self.heads / self.kv_heads) as usize
    }
}
