//! The tensors of a Llama or Qwen3 checkpoint with their Hugging Face names, in the order in which the forward pass
//! uses them.

use crate::model::LlamaShape;

/// The name and sizes of a tensor that a model's shape needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// The tensor's name in Hugging Face checkpoints.
    pub name: String,
    /// The tensor's sizes: `[outputs, inputs]` of a matrix, `[width]` of a norm's gains.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if the tensor has no weights.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns all tensors of a model with this shape, in the order in which the forward pass uses them. A tied LM head is
/// the same tensor as the embedding and is not listed a second time.
pub fn tensors(shape: &LlamaShape) -> Vec<TensorSpec> {
    let (hidden, inner, vocab) = (shape.hidden as usize, shape.intermediate as usize, shape.vocab as usize);
    let (q, kv, head_dim) = (shape.q_width(), shape.kv_width(), shape.head_dim as usize);
    let spec = |name: String, shape: &[usize]| TensorSpec { name, shape: shape.to_vec() };
    let mut all = vec![spec("model.embed_tokens.weight".into(), &[vocab, hidden])];
    for layer in 0..shape.layers {
        let attention: [(&str, &[usize]); 4] = [
            ("input_layernorm", &[hidden]),
            ("self_attn.q_proj", &[q, hidden]),
            ("self_attn.k_proj", &[kv, hidden]),
            ("self_attn.v_proj", &[kv, hidden]),
        ];
        let qk_norm: [(&str, &[usize]); 2] = [("self_attn.q_norm", &[head_dim]), ("self_attn.k_norm", &[head_dim])];
        let rest: [(&str, &[usize]); 5] = [
            ("self_attn.o_proj", &[hidden, q]),
            ("post_attention_layernorm", &[hidden]),
            ("mlp.gate_proj", &[inner, hidden]),
            ("mlp.up_proj", &[inner, hidden]),
            ("mlp.down_proj", &[hidden, inner]),
        ];
        let of_layer = attention.into_iter().chain(qk_norm.into_iter().filter(|_| shape.qk_norm)).chain(rest);
        all.extend(of_layer.map(|(name, shape)| spec(format!("model.layers.{layer}.{name}.weight"), shape)));
    }
    all.push(spec("model.norm.weight".into(), &[hidden]));
    if !shape.tied {
        all.push(spec("lm_head.weight".into(), &[vocab, hidden]));
    }
    all
}
