//! Reads Nemotron-H: each layer is one block (Mamba, attention or feed-forward), named by a letter or a word in a list.

use super::bad::BadConfig;
use super::families::Family;
use super::fields::Fields;
use super::{attention, feed_forward, recurrent};
use crate::hardware::models::{Attention, FeedForward, LayerGroup};

/// Reads the layers in order, each as a group with one layer. The result is `None` if the file does not list its layers
/// by letters or names.
pub fn layers(fields: &Fields, family: &Family) -> Result<Option<Vec<LayerGroup>>, BadConfig> {
    let Some((key, layers)) = listed(fields, family, ["hybrid_override_pattern", "layers_block_type"])? else {
        return Ok(None);
    };
    if let Some(count) = fields.layers()?
        && count as usize != layers.len()
    {
        let why = format!("says {count}, and {key} has {} layers", layers.len());
        return Err(fields.bad("num_hidden_layers", why));
    }
    Ok(Some(layers))
}

/// Reads the layers of the MTP module, each as a group with one layer. The result is `None` if the file does not list
/// its layers by letters or names.
pub fn mtp_layers(fields: &Fields, family: &Family) -> Result<Option<Vec<LayerGroup>>, BadConfig> {
    let key = "mtp_layers_block_type";
    let found = listed(fields, family, ["mtp_hybrid_override_pattern", key])?.map(|(_, layers)| layers);
    if found.is_some() || !["hybrid_override_pattern", "layers_block_type"].iter().any(|key| fields.has(key)) {
        return Ok(found);
    }
    // transformers' NemotronHConfig gives a module these layers in a file that does not list them.
    match fields.count("num_nextn_predict_layers")?.unwrap_or(0) {
        0 => Ok(None),
        _ => ["attention", "moe"]
            .into_iter()
            .map(|kind| one(fields, family, key, kind))
            .collect::<Result<_, _>>()
            .map(Some),
    }
}

/// Reads a list of layers. Returns the key of the list and the layers. The list is at the key `letters` (a string with
/// a letter for each layer) if the file has this key, else at the key `names` (a list of words). The result is `None`
/// if the file has neither key.
fn listed<'k>(
    fields: &Fields,
    family: &Family,
    [letters, names]: [&'k str; 2],
) -> Result<Option<(&'k str, Vec<LayerGroup>)>, BadConfig> {
    let (key, kinds) = if let Some(text) = fields.text(letters)? {
        let kind = |c: char| match c {
            'M' => Ok("mamba"),
            '*' => Ok("attention"),
            '-' => Ok("mlp"),
            'E' => Ok("moe"),
            other => Err(fields.bad(letters, format!("`{other}` is not one of M, *, - and E"))),
        };
        fields.get(names);
        (letters, text.chars().map(kind).collect::<Result<Vec<_>, _>>()?)
    } else if let Some(list) = fields.texts(names)? {
        (names, list)
    } else {
        return Ok(None);
    };
    if kinds.is_empty() {
        return Err(fields.bad(key, "lists no layer"));
    }
    Ok(Some((key, kinds.into_iter().map(|kind| one(fields, family, key, kind)).collect::<Result<_, _>>()?)))
}

fn one(fields: &Fields, family: &Family, key: &str, kind: &str) -> Result<LayerGroup, BadConfig> {
    let alone = |attention| LayerGroup { count: 1, attention, feed_forward: FeedForward::None };
    let block = |feed_forward| LayerGroup { count: 1, attention: Attention::None, feed_forward };
    Ok(match kind {
        "mamba" | "linear_attention" => alone(recurrent::mamba2(fields)?),
        "attention" | "full_attention" => alone(attention::full(fields, family)?),
        "mlp" => block(feed_forward::dense(fields, family)?),
        "moe" => block(
            feed_forward::experts(fields, family)?
                .ok_or_else(|| fields.bad(key, "has a layer of experts, and n_routed_experts is missing"))?,
        ),
        other => {
            return Err(fields.bad(key, format!("`{other}` is not one of mamba, attention, mlp and moe")));
        }
    })
}
