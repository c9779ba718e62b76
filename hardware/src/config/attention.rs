//! Attention over KV: its heads, and what it keeps.

use super::bad::BadConfig;
use super::families::Family;
use super::fields::Fields;
use crate::models::{Attention, Selection};

/// A layer that attends to all tokens.
///
/// # Errors
/// A key that the layer needs is missing or out of range, the heads do not divide the hidden size, or the KV heads do
/// not divide the heads.
pub fn full(fields: &Fields, family: &Family) -> Result<Attention, BadConfig> {
    let heads = fields.size("num_attention_heads")?;
    if let Some(kv_rank) = fields.size_of(&["kv_lora_rank"])? {
        // Files of this kind fill these in without a meaning (`head_dim` is 64 in GLM-5 and 192 in GLM-5.2).
        let _ = ["num_key_value_heads", "head_dim", "qk_head_dim"].map(|key| fields.get(key));
        let dim = |key: &str| fields.size(key);
        let selection = match fields.size_of(&["index_n_heads"])? {
            None => None,
            Some(heads) => Some(Selection { heads, head_dim: dim("index_head_dim")?, tokens: dim("index_topk")? }),
        };
        return Ok(Attention::Latent {
            heads,
            query_rank: fields.size_of(&["q_lora_rank"])?,
            kv_rank,
            rope_dim: dim("qk_rope_head_dim")?,
            nope_dim: dim("qk_nope_head_dim")?,
            value_dim: dim("v_head_dim")?,
            selection,
        });
    }
    let kv_heads = fields.size_of(&["num_key_value_heads", "multi_query_group_num"])?.unwrap_or(heads);
    let head_dim = match fields.size_of(&["head_dim", "kv_channels", "attention_head_dim"])? {
        Some(dim) => dim,
        None => {
            let hidden = fields.size("hidden_size")?;
            if !hidden.is_multiple_of(heads) {
                let why = format!("{heads} heads do not divide hidden_size {hidden}; give head_dim");
                return Err(fields.bad("num_attention_heads", why));
            }
            hidden / heads
        }
    };
    if !heads.is_multiple_of(kv_heads) {
        let why = format!("{kv_heads} does not divide num_attention_heads {heads}");
        return Err(fields.bad("num_key_value_heads", why));
    }
    let gated = fields.flag("attn_output_gate")?.unwrap_or(family.output_gate);
    Ok(Attention::Grouped { heads, kv_heads, head_dim, input: None, window: None, gated })
}

/// The layer `full` if it attends to the newest `tokens` only.
///
/// # Errors
/// The layer keeps latent vectors.
pub fn windowed(fields: &Fields, full: Attention, tokens: u32) -> Result<Attention, BadConfig> {
    match full {
        Attention::Grouped { heads, kv_heads, head_dim, input, gated, .. } => {
            Ok(Attention::Grouped { heads, kv_heads, head_dim, input, window: Some(tokens), gated })
        }
        _ => Err(fields.bad("sliding_window", "windows over latent attention are not modelled")),
    }
}
