//! The tensors of a Llama checkpoint by Hugging Face's names, in the order of the forward pass.

use crate::model::LlamaShape;

/// A tensor that a shape needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Hugging Face's name.
    pub name: String,
    /// Sizes: (outputs, inputs) of a matrix, (width) of a norm's gains.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// Numbers in it.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Has it none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// All tensors of a shape. A tied head is the embedding and not listed.
pub fn tensors(shape: &LlamaShape) -> Vec<TensorSpec> {
    let (hidden, inner, vocab) = (shape.hidden as usize, shape.intermediate as usize, shape.vocab as usize);
    let (q, kv) = (shape.q_width(), shape.kv_width());
    let spec = |name: String, shape: &[usize]| TensorSpec { name, shape: shape.to_vec() };
    let mut all = vec![spec("model.embed_tokens.weight".into(), &[vocab, hidden])];
    for layer in 0..shape.layers {
        let of_layer: [(&str, &[usize]); 9] = [
            ("input_layernorm", &[hidden]),
            ("self_attn.q_proj", &[q, hidden]),
            ("self_attn.k_proj", &[kv, hidden]),
            ("self_attn.v_proj", &[kv, hidden]),
            ("self_attn.o_proj", &[hidden, q]),
            ("post_attention_layernorm", &[hidden]),
            ("mlp.gate_proj", &[inner, hidden]),
            ("mlp.up_proj", &[inner, hidden]),
            ("mlp.down_proj", &[hidden, inner]),
        ];
        all.extend(of_layer.map(|(name, shape)| spec(format!("model.layers.{layer}.{name}.weight"), shape)));
    }
    all.push(spec("model.norm.weight".into(), &[hidden]));
    if !shape.tied {
        all.push(spec("lm_head.weight".into(), &[vocab, hidden]));
    }
    all
}
