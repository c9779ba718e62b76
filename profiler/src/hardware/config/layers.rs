//! Reads the layers of a model: which tokens each layer attends to, and its feed-forward block.

use super::families::{Family, Heads, Windows};
use super::feed_forward::feed_forwards;
use super::fields::Fields;
use super::{attention, bad::BadConfig, block_sparse, blocks, compressed, indexers, recurrent};
use crate::hardware::models::{Attention, LayerGroup, Selection};

/// Reads the model's layers in order, each as a group with one layer.
pub fn of(fields: &Fields, family: &Family) -> Result<Vec<LayerGroup>, BadConfig> {
    refuse(fields)?;
    if let Some(layers) = blocks::layers(fields, family)? {
        return Ok(layers);
    }
    let count = fields.layers()?;
    let count = count.ok_or_else(|| fields.bad("num_hidden_layers", "missing; the shape needs it"))?;
    let attention = match family.heads {
        Heads::DeepseekV4 => compressed::layers(fields, count)?,
        Heads::Alike | Heads::Gemma4 | Heads::MiMo => by_kind(fields, family, count)?,
    };
    let blocks = feed_forwards(fields, family, count)?;
    let pairs = attention.into_iter().zip(blocks);
    Ok(pairs.map(|(attention, feed_forward)| LayerGroup { count: 1, attention, feed_forward }).collect())
}

/// Reads the attention of each of `count` layers: attention to all tokens, attention to a window, or a recurrent state.
/// Also reads which tokens a layer with sparse attention chooses, and whether the layer has an indexer of its own.
fn by_kind(fields: &Fields, family: &Family, count: u32) -> Result<Vec<Attention>, BadConfig> {
    let kinds = kinds(fields, family, count)?;
    let full = attention::full(fields, family)?;
    let chooses = if full.selection().is_some() { indexers::own(fields, count)? } else { vec![true; count as usize] };
    let blocks = block_sparse::selections(fields, count)?.unwrap_or_else(|| vec![None; count as usize]);
    let one = |((kind, own), blocks): ((Kind, bool), Option<Selection>)| match (kind, blocks) {
        (Kind::Full, None) => Ok(full.with_indexer(own)),
        (Kind::Full, Some(selection)) => full
            .to_blocks(selection)
            .ok_or_else(|| fields.bad("sparse_attention_config", "chosen blocks of latent vectors are not modelled")),
        (Kind::Window(tokens), None) => attention::windowed(fields, family, tokens),
        (Kind::State, None) => recurrent::layer(fields),
        (_, Some(_)) => {
            let why = "chooses tokens in a layer that does not attend to all of them, which is not modelled";
            Err(fields.bad("sparse_attention_config", why))
        }
    };
    kinds.into_iter().zip(chooses).zip(blocks).map(one).collect()
}

/// Refuses a file with layers that read another layer's KV, or that have an embedding of their own. Such layers change
/// the size of the KV and the number of weights, which is not modelled.
fn refuse(fields: &Fields) -> Result<(), BadConfig> {
    let refused = [
        ("num_kv_shared_layers", "layers that read the KV of another layer"),
        ("hidden_size_per_layer_input", "embeddings of their own for each layer"),
    ];
    for (key, what) in refused {
        if fields.count(key)?.is_some_and(|n| n > 0) {
            return Err(fields.bad(key, format!("{what} are not modelled; KV and weights would be counted wrong")));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Full,
    Window(u32),
    State,
}

/// The kind of each of `count` layers: attention to all tokens, attention to a window, or a recurrent state.
fn kinds(fields: &Fields, family: &Family, count: u32) -> Result<Vec<Kind>, BadConfig> {
    let keys = ["sliding_window", "attention_chunk_size"];
    let window = match fields.flag("use_sliding_window")?.unwrap_or(true) && family.windows != Windows::Never {
        true => fields.size_of(&keys)?,
        false => keys.iter().find_map(|key| fields.given(key)).and(None),
    };
    if let Some(types) = fields.texts("layer_types")? {
        if types.len() != count as usize {
            return Err(fields.bad("layer_types", format!("lists {} layers of {count}", types.len())));
        }
        return types.iter().map(|name| named(fields, name, window)).collect();
    }
    if let Some(flags) = fields.numbers("hybrid_layer_pattern")? {
        // In MiMo-V2's list, 1 stands for a layer with a window and 0 for a layer without.
        let bad = |why: String| fields.bad("hybrid_layer_pattern", why);
        let one = |flag: &u64| match (flag, window) {
            (0, _) => Ok(Kind::Full),
            (1, Some(tokens)) => Ok(Kind::Window(tokens)),
            (1, None) => Err(bad("has a layer with a window, and sliding_window is missing".into())),
            (other, _) => Err(bad(format!("{other} is not 0 or 1"))),
        };
        if flags.len() != count as usize {
            return Err(bad(format!("lists {} layers of {count}", flags.len())));
        }
        return flags.iter().map(one).collect();
    }
    if let Some(types) = fields.numbers("attn_type_list")?
        && types.iter().any(|kind| *kind != 1)
    {
        return Err(
            fields.bad("attn_type_list", "has layers of linear attention, which are not modelled in this family")
        );
    }
    if let Some(table) = fields.table("linear_attn_config")? {
        // Kimi Linear's lists `kda_layers` and `full_attn_layers` number the layers from 1.
        let state = table.numbers("kda_layers")?.unwrap_or_default();
        let full = table.numbers("full_attn_layers")?;
        let full = full.unwrap_or_else(|| (1..=u64::from(count)).filter(|i| !state.contains(i)).collect());
        let mut all: Vec<u64> = state.iter().chain(&full).copied().collect();
        all.sort_unstable();
        if !all.iter().copied().eq(1..=u64::from(count)) {
            let why = format!("with full_attn_layers it must name each of the layers 1 to {count} once");
            return Err(table.bad("kda_layers", why));
        }
        return Ok((1..=u64::from(count)).map(|i| if state.contains(&i) { Kind::State } else { Kind::Full }).collect());
    }
    if let Some(every) = fields.size_of(&["full_attention_interval"])?.or(family.attends_every) {
        return Ok((1..=count).map(|i| if i.is_multiple_of(every) { Kind::Full } else { Kind::State }).collect());
    }
    let Some(window) = window else { return Ok(vec![Kind::Full; count as usize]) };
    let pattern = fields.size_of(&["sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval"])?;
    let from = fields.count("max_window_layers")?;
    let has = |i: u32| match (family.windows, pattern) {
        (Windows::Never, _) => false,
        (Windows::AllBut(_), Some(every)) | (Windows::AllBut(every), None) => !(i + 1).is_multiple_of(every),
        (Windows::EveryOther, _) => i.is_multiple_of(2),
        // In Qwen's models the layers from number `max_window_layers` on (from 0) have a window.
        (Windows::All, _) => from.is_none_or(|from| i >= from),
    };
    Ok((0..count).map(|i| if has(i) { Kind::Window(window) } else { Kind::Full }).collect())
}

fn named(fields: &Fields, name: &str, window: Option<u32>) -> Result<Kind, BadConfig> {
    match (name, window) {
        ("full_attention" | "attention" | "deepseek_sparse_attention" | "indexed_attention", _) => Ok(Kind::Full),
        ("sliding_attention" | "chunked_attention", Some(tokens)) => Ok(Kind::Window(tokens)),
        ("sliding_attention" | "chunked_attention", None) => {
            Err(fields.bad("layer_types", format!("has a layer of `{name}`, and sliding_window is missing")))
        }
        ("linear_attention", _) => Ok(Kind::State),
        _ => Err(fields.bad("layer_types", format!("`{name}` is not a kind of layer that is known"))),
    }
}
