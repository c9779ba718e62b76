//! Reads DeepSeek-V4's attention: each token attends to the newest tokens, and to KV entries that each compress several
//! older tokens.

use super::bad::BadConfig;
use super::fields::Fields;
use crate::hardware::models::{Attention, Selection};

/// Number of older tokens that a KV entry compresses, for the three kinds of layer (transformers' `DeepseekV4Config`).
/// A layer with 0 has no compressed entries. A layer with 4 has overlapping entries and an indexer. A layer with 128
/// has entries that do not overlap.
const RATIOS: [u32; 3] = [0, 4, 128];

pub fn layers(fields: &Fields, count: u32) -> Result<Vec<Attention>, BadConfig> {
    let ratios = match fields.numbers("compress_ratios")? {
        Some(ratios) => by_number(fields, ratios, count)?,
        None => by_name(fields, count)?,
    };
    if let Some(kv_heads) = fields.size_of(&["num_key_value_heads"])?
        && kv_heads != 1
    {
        return Err(fields.bad("num_key_value_heads", format!("{kv_heads}; this family keeps one head for all")));
    }
    // `qk_rope_head_dim` is read only so that no warning says that this key is unknown. Its value is not used, because
    // `head_dim` already includes the dimensions with rotary position encoding.
    fields.count("qk_rope_head_dim")?;
    ratios.into_iter().map(|ratio| one(fields, ratio)).collect()
}

fn by_number(fields: &Fields, ratios: Vec<u64>, count: u32) -> Result<Vec<u32>, BadConfig> {
    let bad = |why: String| fields.bad("compress_ratios", why);
    let modules = fields.count("num_nextn_predict_layers")?.unwrap_or(0);
    let (layers, behind) = ratios.split_at(ratios.len().min(count as usize));
    if layers.len() != count as usize || !(behind.is_empty() || behind.len() == modules as usize) {
        return Err(bad(format!("lists {} layers of {count} and {modules} MTP modules", ratios.len())));
    }
    if behind.iter().any(|ratio| *ratio != 0) {
        return Err(bad("gives an MTP module compressed entries, which is not modelled".into()));
    }
    let known = |ratio: &u64| {
        let found = RATIOS.into_iter().find(|known| u64::from(*known) == *ratio);
        found.ok_or_else(|| bad(format!("{ratio} is not one of 0, 4 and 128")))
    };
    layers.iter().map(known).collect()
}

/// The compression ratio of each layer, by the layer's type in the list `layer_types`. transformers writes
/// `layer_types` in place of `compress_ratios`.
fn by_name(fields: &Fields, count: u32) -> Result<Vec<u32>, BadConfig> {
    let names = fields.texts("layer_types")?.ok_or_else(|| {
        fields.bad("compress_ratios", "missing; it says what each layer compresses (or layer_types does)")
    })?;
    if names.len() != count as usize {
        return Err(fields.bad("layer_types", format!("lists {} layers of {count}", names.len())));
    }
    let ratios = |name: &str| match name {
        "sliding_attention" => Ok(0),
        "compressed_sparse_attention" => Ok(4),
        "heavily_compressed_attention" => Ok(128),
        _ => Err(fields.bad("layer_types", format!("`{name}` is not a kind of layer that is known"))),
    };
    if let Some(rates) = fields.table("compress_rates")? {
        for (name, known) in [("compressed_sparse_attention", 4), ("heavily_compressed_attention", 128)] {
            if let Some(rate) = rates.size_of(&[name])?.filter(|rate| *rate != known) {
                return Err(rates.bad(name, format!("{rate} is not modelled; known is {known}")));
            }
        }
    }
    names.into_iter().map(ratios).collect()
}

fn one(fields: &Fields, ratio: u32) -> Result<Attention, BadConfig> {
    let (heads, head_dim) = (fields.size("num_attention_heads")?, fields.size("head_dim")?);
    let output_groups = fields.size("o_groups")?;
    if !heads.is_multiple_of(output_groups) {
        return Err(fields.bad("o_groups", format!("{output_groups} does not divide num_attention_heads {heads}")));
    }
    // The JSON keys of the indexer (`index_…`) are read for every layer, so that a file whose layers have no indexer
    // gets no warnings about these keys. A missing key is an error only in a layer with an indexer.
    let [heads_that_score, index_dim, tokens] =
        ["index_n_heads", "index_head_dim", "index_topk"].map(|key| fields.size(key));
    let selection = match ratio {
        4 => Some(Selection {
            heads: heads_that_score?,
            head_dim: index_dim?,
            tokens: tokens?,
            key_bits: 8,
            taken: false,
        }),
        _ => None,
    };
    Ok(Attention::Compressed {
        heads,
        head_dim,
        query_rank: fields.size("q_lora_rank")?,
        output_groups,
        output_rank: fields.size("o_lora_rank")?,
        window: fields.size("sliding_window")?,
        ratio,
        selection,
    })
}
