//! The kind of each layer: what it attends to.

use super::families::{Family, Windows};
use super::feed_forward::feed_forwards;
use super::fields::Fields;
use super::{bad::BadConfig, recurrent};
use crate::models::{Attention, FeedForward, LayerGroup, Selection};

/// The layers in order, one a group.
///
/// # Errors
/// A key that the layers need is missing or out of range; the list of layers has another length than the number of
/// layers; a layer's kind is not known or not modelled; or the heads do not divide the hidden size, or the KV heads do
/// not divide the heads.
pub fn of(fields: &Fields, family: &Family) -> Result<Vec<LayerGroup>, BadConfig> {
    if let Some(pattern) = fields.text("hybrid_override_pattern")? {
        return by_pattern(fields, family, pattern);
    }
    let count = fields.size_of(&["num_hidden_layers", "num_layers", "n_layer"])?;
    let count = count.ok_or_else(|| fields.bad("num_hidden_layers", "missing; the shape needs it"))?;
    let kinds = kinds(fields, family, count)?;
    let full = full(fields, family)?;
    let blocks = feed_forwards(fields, family, count)?;
    let mut layers = Vec::new();
    for (kind, feed_forward) in kinds.into_iter().zip(blocks) {
        let attention = match kind {
            Kind::Full => full,
            Kind::Window(tokens) => windowed(fields, full, tokens)?,
            Kind::State => recurrent::layer(fields)?,
        };
        layers.push(LayerGroup { count: 1, attention, feed_forward });
    }
    Ok(layers)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Full,
    Window(u32),
    State,
}

/// What each layer attends to.
fn kinds(fields: &Fields, family: &Family, count: u32) -> Result<Vec<Kind>, BadConfig> {
    let window = fields.size_of(&["sliding_window", "attention_chunk_size"])?;
    let uses = fields.flag("use_sliding_window")?.unwrap_or(true);
    let window = window.filter(|_| uses && family.windows != Windows::Never);
    if let Some(listed) = fields.get("layer_types") {
        let types: Option<Vec<&str>> = listed.as_array().and_then(|list| list.iter().map(|v| v.as_str()).collect());
        let types = types.ok_or_else(|| fields.bad("layer_types", "expected a list of texts"))?;
        if types.len() != count as usize {
            return Err(fields.bad("layer_types", format!("lists {} layers of {count}", types.len())));
        }
        return types.iter().map(|name| named(fields, name, window)).collect();
    }
    if let Some(types) = fields.numbers("attn_type_list")?
        && types.iter().any(|kind| *kind != 1)
    {
        return Err(
            fields.bad("attn_type_list", "has layers of linear attention, which are not modelled in this family")
        );
    }
    if let Some(table) = fields.table("linear_attn_config")? {
        // Kimi Linear numbers its layers from 1.
        let state = table.numbers("kda_layers")?.unwrap_or_default();
        return Ok((1..=u64::from(count)).map(|i| if state.contains(&i) { Kind::State } else { Kind::Full }).collect());
    }
    if let Some(every) = fields.size_of(&["full_attention_interval"])? {
        return Ok((1..=count).map(|i| if i.is_multiple_of(every) { Kind::Full } else { Kind::State }).collect());
    }
    let Some(window) = window else { return Ok(vec![Kind::Full; count as usize]) };
    let pattern = fields.size_of(&["sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval"])?;
    let from = fields.count("max_window_layers")?;
    let has = |i: u32| match (family.windows, pattern) {
        (Windows::Never, _) => false,
        (Windows::AllBut(_), Some(every)) | (Windows::AllBut(every), None) => !(i + 1).is_multiple_of(every),
        (Windows::EveryOther, _) => i.is_multiple_of(2),
        // Qwen gives the layers from `max_window_layers` on a window.
        (Windows::All, _) => from.is_none_or(|from| i >= from),
    };
    Ok((0..count).map(|i| if has(i) { Kind::Window(window) } else { Kind::Full }).collect())
}

fn named(fields: &Fields, name: &str, window: Option<u32>) -> Result<Kind, BadConfig> {
    match (name, window) {
        ("full_attention" | "attention", _) => Ok(Kind::Full),
        ("sliding_attention" | "chunked_attention", Some(tokens)) => Ok(Kind::Window(tokens)),
        ("sliding_attention" | "chunked_attention", None) => {
            Err(fields.bad("layer_types", format!("has a layer of `{name}`, and sliding_window is missing")))
        }
        ("linear_attention", _) => Ok(Kind::State),
        _ => Err(fields.bad("layer_types", format!("`{name}` is not a kind of layer that is known"))),
    }
}

/// A layer that attends to all tokens.
fn full(fields: &Fields, family: &Family) -> Result<Attention, BadConfig> {
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

fn windowed(fields: &Fields, full: Attention, tokens: u32) -> Result<Attention, BadConfig> {
    match full {
        Attention::Grouped { heads, kv_heads, head_dim, input, gated, .. } => {
            Ok(Attention::Grouped { heads, kv_heads, head_dim, input, window: Some(tokens), gated })
        }
        _ => Err(fields.bad("sliding_window", "windows over latent attention are not modelled")),
    }
}

/// Nemotron-H: a letter for each layer; M is Mamba-2, * attention, - a dense block, E a mixture of experts.
fn by_pattern(fields: &Fields, family: &Family, pattern: &str) -> Result<Vec<LayerGroup>, BadConfig> {
    let full = full(fields, family)?;
    let alone = |attention| LayerGroup { count: 1, attention, feed_forward: FeedForward::None };
    let block = |feed_forward| LayerGroup { count: 1, attention: Attention::None, feed_forward };
    let mut layers = Vec::new();
    for letter in pattern.chars() {
        layers.push(match letter {
            'M' => alone(recurrent::mamba2(fields)?),
            '*' => alone(full),
            '-' => block(super::feed_forward::dense(fields, family)?),
            'E' => block(super::feed_forward::experts(fields, family)?.ok_or_else(|| {
                fields.bad("hybrid_override_pattern", "has a layer E of experts, and n_routed_experts is missing")
            })?),
            other => {
                let why = format!("`{other}` is not one of M, *, - and E");
                return Err(fields.bad("hybrid_override_pattern", why));
            }
        });
    }
    if let Some(count) = fields.size_of(&["num_hidden_layers"])?
        && count as usize != layers.len()
    {
        let why = format!("says {count}, and hybrid_override_pattern has {} layers", layers.len());
        return Err(fields.bad("num_hidden_layers", why));
    }
    Ok(layers)
}
