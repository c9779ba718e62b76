//! Reads the feed-forward block of each layer: dense, or a mixture of experts.

use super::bad::BadConfig;
use super::families::Family;
use super::fields::Fields;
use crate::hardware::models::FeedForward;

/// Reads the feed-forward block (dense or experts) of each of `count` layers, in order.
pub fn feed_forwards(fields: &Fields, family: &Family, count: u32) -> Result<Vec<FeedForward>, BadConfig> {
    let Some(mixture) = experts(fields, family)? else {
        return Ok(vec![dense(fields, family)?; count as usize]);
    };
    let sparse = sparse_layers(fields, count)?;
    sparse.into_iter().map(|sparse| if sparse { Ok(mixture) } else { dense(fields, family) }).collect()
}

/// Reads a dense feed-forward block. Llama 4's files have one key for the block's width and another for an expert's
/// width.
pub fn dense(fields: &Fields, family: &Family) -> Result<FeedForward, BadConfig> {
    let intermediate = match fields.size_of(&["intermediate_size_mlp", "dense_intermediate_size"])? {
        Some(width) => Some(width),
        None => fields.size_of(&["intermediate_size", "ffn_hidden_size"])?,
    };
    let intermediate = intermediate.ok_or_else(|| fields.bad("intermediate_size", "missing; the shape needs it"))?;
    Ok(FeedForward::Dense { intermediate, gated: family.gated })
}

/// The mixture of experts of a sparse layer; `None` if the model is dense.
pub fn experts(fields: &Fields, family: &Family) -> Result<Option<FeedForward>, BadConfig> {
    // The files of Gemma 4's dense models also have keys for experts. They set `enable_moe_block` to false.
    let enabled = fields.flag("enable_moe_block")?;
    let keys = ["n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"];
    let Some(total) = fields.size_of(&keys)?.filter(|_| enabled != Some(false)) else {
        return match enabled {
            Some(true) => Err(fields.bad("num_experts", "missing; enable_moe_block is true")),
            _ => Ok(None),
        };
    };
    let keys = [
        "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "num_selected_experts",
        "top_k_experts",
    ];
    let active = fields.size_of(&keys)?;
    let active = active.ok_or_else(|| fields.bad("num_experts_per_tok", "missing; the model has experts"))?;
    if active > total {
        return Err(fields.bad("num_experts_per_tok", format!("{active} of {total} experts cannot be active")));
    }
    let intermediate = match fields.size_of(&["moe_intermediate_size", "expert_intermediate_size"])? {
        None if family.wide_experts => fields.size_of(&["intermediate_size"])?,
        width => width,
    };
    let intermediate =
        intermediate.ok_or_else(|| fields.bad("moe_intermediate_size", "missing; the width of an expert"))?;
    Ok(Some(FeedForward::Experts {
        total,
        active,
        intermediate,
        shared_intermediate: shared(fields, intermediate)?,
        latent: fields.size_of(&["moe_latent_size", "routed_expert_hidden_size"])?,
        gated: family.gated,
    }))
}

/// Inner width of all shared experts of a layer together; 0 if there are none. Every token uses the shared experts
/// besides its routed experts. `expert` is the inner width of a routed expert. A shared expert has this width too if
/// the file gives only the number of shared experts.
fn shared(fields: &Fields, expert: u32) -> Result<u32, BadConfig> {
    // Some files give the total width of all shared experts.
    let keys = ["shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"];
    if let Some((key, _)) = fields.first(&keys) {
        fields.count("n_shared_experts")?;
        return Ok(fields.count(key)?.unwrap_or(0));
    }
    let keys = ["n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"];
    let number = match fields.first(&keys) {
        Some((key, _)) => fields.count(key)?,
        None => None,
    };
    if fields.flag("enable_moe_block")? == Some(true) {
        // Gemma 4 has a dense block beside the experts of each layer.
        return fields.size("intermediate_size");
    }
    // Llama 4 always has one shared expert, as wide as a routed expert. Only Llama 4's files have
    // `intermediate_size_mlp`.
    let always = fields.get("intermediate_size_mlp").is_some();
    let number = number.unwrap_or(u32::from(always));
    number.checked_mul(expert).ok_or_else(|| fields.bad("n_shared_experts", format!("{number} are too many")))
}

/// One flag for each layer, read from the layer's type in the list `mlp_layer_types`: 1 if the layer has experts, 0 if
/// it is dense.
fn by_name(fields: &Fields, count: u32) -> Result<Vec<u64>, BadConfig> {
    let names = fields.texts("mlp_layer_types")?.unwrap_or_default();
    if names.len() != count as usize {
        return Err(fields.bad("mlp_layer_types", format!("lists {} layers of {count}", names.len())));
    }
    let one = |name: &str| match name {
        "dense" => Ok(0),
        // DeepSeek-V4's first layers choose experts by a hash of the token. A token uses as many experts in these
        // layers as in the other sparse layers.
        "sparse" | "moe" | "hash_moe" => Ok(1),
        other => Err(fields.bad("mlp_layer_types", format!("`{other}` is not one of dense, sparse, moe and hash_moe"))),
    };
    names.into_iter().map(one).collect()
}

/// Whether each of `count` layers has experts. The list `mlp_layer_types` decides, or else a list at `moe_layer_freq`.
/// Without both, a layer has experts unless one of three things is true. It is one of the first `first_k_dense_replace`
/// layers. It is listed in `mlp_only_layers`. Only every n-th layer has experts (n is the number at `moe_layer_freq`,
/// `decoder_sparse_step` or `interleave_moe_layer_step`), and this layer is not one of them.
fn sparse_layers(fields: &Fields, count: u32) -> Result<Vec<bool>, BadConfig> {
    let listed = fields.numbers("mlp_only_layers")?.unwrap_or_default();
    let first = fields.count("first_k_dense_replace")?.unwrap_or(0);
    let step = fields.size_of(&["decoder_sparse_step", "interleave_moe_layer_step"])?.unwrap_or(1);
    let by_layer = match fields.get("moe_layer_freq") {
        _ if fields.get("mlp_layer_types").is_some() => Some(by_name(fields, count)?),
        Some(value) if value.is_array() => {
            let flags = fields.numbers("moe_layer_freq")?.unwrap_or_default();
            if flags.len() != count as usize {
                return Err(fields.bad("moe_layer_freq", format!("lists {} layers of {count}", flags.len())));
            }
            Some(flags)
        }
        _ => None,
    };
    let every = if by_layer.is_some() { 1 } else { fields.size_of(&["moe_layer_freq"])?.unwrap_or(1) };
    let sparse = |i: u32| match &by_layer {
        Some(flags) => flags[i as usize] != 0,
        None => {
            i >= first && i.is_multiple_of(every) && (i + 1).is_multiple_of(step) && !listed.contains(&u64::from(i))
        }
    };
    Ok((0..count).map(sparse).collect())
}
