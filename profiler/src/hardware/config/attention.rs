//! Reads the attention of a layer that keeps KV: the number and size of the heads, and to which tokens each token
//! attends.

use super::bad::BadConfig;
use super::families::{Family, Heads};
use super::fields::Fields;
use crate::hardware::models::{Attention, Selection};
use serde_json::Value;

/// Reads a layer that attends to all earlier tokens: latent attention if the file has `kv_lora_rank`, else
/// grouped-query attention.
pub fn full(fields: &Fields, family: &Family) -> Result<Attention, BadConfig> {
    if let Some(kv_rank) = fields.size_of(&["kv_lora_rank"])? {
        // Files with latent attention have these keys, but the model does not use their values (`head_dim` is 64 in
        // GLM-5 and 192 in GLM-5.2). Reading the keys here prevents warnings that they are unknown.
        let _ = ["num_key_value_heads", "head_dim", "qk_head_dim"].map(|key| fields.given(key));
        if family.warning.is_some() {
            // The family's warning names these keys.
            let _ = ["index_kpool", "hc_mult"].map(|key| fields.given(key));
        }
        let heads = fields.size("num_attention_heads")?;
        let dim = |key: &str| fields.size(key);
        let selection = match fields.size_of(&["index_n_heads"])? {
            None => None,
            Some(heads) => {
                let (head_dim, tokens) = (dim("index_head_dim")?, dim("index_topk")?);
                Some(Selection { heads, head_dim, tokens, key_bits: 8, taken: false })
            }
        };
        return Ok(Attention::Latent {
            heads,
            query_rank: fields.size_of(&["q_lora_rank"])?,
            kv_rank,
            rope_dim: fields.count("qk_rope_head_dim")?.map_or_else(|| dim("qk_rope_head_dim"), Ok)?,
            nope_dim: dim("qk_nope_head_dim")?,
            value_dim: dim("v_head_dim")?,
            gated: fields.flag("mla_use_output_gate")?.unwrap_or(false),
            selection,
        });
    }
    if fields.flag("attention_output_gate")?.unwrap_or(false) {
        return Err(fields.bad("attention_output_gate", "true; the width of this gate is not known"));
    }
    let names = match family.heads {
        Heads::Alike | Heads::DeepseekV4 => ALIKE,
        Heads::MiMo => Names { value_dim: Some("v_head_dim"), ..ALIKE },
        Heads::Gemma4 if fields.flag("attention_k_eq_v")?.unwrap_or(false) => {
            if !fields.has("num_global_key_value_heads") {
                let why =
                    "missing; the layers without a window have KV heads of their own (null: as many as the others)";
                return Err(fields.bad("num_global_key_value_heads", why));
            }
            let kv_heads = &["num_global_key_value_heads", "num_key_value_heads"];
            Names { kv_heads, head_dim: &["global_head_dim"], values_from_keys: true, ..ALIKE }
        }
        Heads::Gemma4 => {
            fields.get("num_global_key_value_heads");
            Names { head_dim: &["global_head_dim"], ..ALIKE }
        }
    };
    grouped(fields, family, &names)
}

/// Reads a layer with a sliding window: each token attends to the newest `tokens` tokens only.
pub fn windowed(fields: &Fields, family: &Family, tokens: u32) -> Result<Attention, BadConfig> {
    let layer = match family.heads {
        Heads::Alike | Heads::DeepseekV4 => full(fields, family)?,
        Heads::Gemma4 => grouped(fields, family, &ALIKE)?,
        Heads::MiMo => grouped(fields, family, &SWA)?,
    };
    match layer {
        Attention::Grouped { .. } => Ok(layer.to_newest(tokens)),
        _ => Err(fields.bad("sliding_window", "windows over latent attention are not modelled")),
    }
}

/// The names of the keys in `config.json` that give the heads of a layer with grouped-query attention.
struct Names {
    heads: &'static str,
    kv_heads: &'static [&'static str],
    head_dim: &'static [&'static str],
    /// The key for the number of values in a head's value vector; `None`: the value vector is as long as the key
    /// vector.
    value_dim: Option<&'static str>,
    /// Whether the layer has no value projection and uses its keys as values.
    values_from_keys: bool,
}

const ALIKE: Names = Names {
    heads: "num_attention_heads",
    kv_heads: &["num_key_value_heads", "multi_query_group_num"],
    head_dim: &["head_dim", "kv_channels", "attention_head_dim"],
    value_dim: None,
    values_from_keys: false,
};

const SWA: Names = Names {
    heads: "swa_num_attention_heads",
    kv_heads: &["swa_num_key_value_heads"],
    head_dim: &["swa_head_dim"],
    value_dim: Some("swa_v_head_dim"),
    values_from_keys: false,
};

fn grouped(fields: &Fields, family: &Family, names: &Names) -> Result<Attention, BadConfig> {
    let heads = fields.size(names.heads)?;
    let kv_heads = fields.size_of(names.kv_heads)?.unwrap_or(heads);
    let head_dim = match fields.size_of(names.head_dim)? {
        Some(dim) => dim,
        None if family.heads != Heads::Alike => {
            let why = "missing; the layers of this family have heads of different sizes";
            return Err(fields.bad(names.head_dim[0], why));
        }
        None => {
            let hidden = fields.size("hidden_size")?;
            if !hidden.is_multiple_of(heads) {
                let why = format!("{heads} heads do not divide hidden_size {hidden}; give head_dim");
                return Err(fields.bad(names.heads, why));
            }
            hidden / heads
        }
    };
    if !heads.is_multiple_of(kv_heads) {
        let (key, _) = fields.first(names.kv_heads).unwrap_or((names.kv_heads[0], &Value::Null));
        return Err(fields.bad(key, format!("{kv_heads} does not divide {} {heads}", names.heads)));
    }
    let gated = fields.flag("attn_output_gate")?.unwrap_or(family.output_gate);
    Ok(Attention::Grouped {
        heads,
        kv_heads,
        head_dim,
        value_dim: names.value_dim.map(|key| fields.size(key)).transpose()?.filter(|dim| *dim != head_dim),
        input: None,
        window: None,
        gated,
        values_from_keys: names.values_from_keys,
        selection: None,
    })
}
