//! The model families whose `config.json` can be read, by `model_type`.

use super::bad::BadConfig;
use super::fields::Fields;

/// Which layers of a model have a sliding window, if its `config.json` does not list the types of the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// No layer has a sliding window, whatever `sliding_window` says.
    Never,
    /// All layers have a sliding window, or the layers from number `max_window_layers` on if the file has this key.
    /// No layer has a window if `sliding_window` is missing or `use_sliding_window` is false.
    All,
    /// All layers except every n-th layer have a sliding window. The file may give another n
    /// (`sliding_window_pattern`).
    AllBut(u32),
    /// Layers with and without a sliding window alternate. The first layer has a window.
    EveryOther,
}

/// Which keys of `config.json` give the number and size of a layer's heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// All layers have the same number and size of heads, given by the usual keys (such as `num_attention_heads`,
    /// `num_key_value_heads` and `head_dim`).
    Alike,
    /// `global_head_dim` and `num_global_key_value_heads` give the heads of layers without a window. The usual keys
    /// (such as `num_key_value_heads` and `head_dim`) give the heads of layers with a window.
    Gemma4,
    /// `v_head_dim` gives the size of a head's value. JSON keys that begin with `swa_` give the heads of layers with a
    /// window.
    MiMo,
    /// There is one KV head, and its keys are also its values. Older tokens are compressed.
    DeepseekV4,
}

/// A model family: how its `config.json` differs from a Llama model's.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The values of `model_type` in the files of this family.
    pub names: &'static [&'static str],
    /// The key of the nested JSON object that holds the decoder's keys in a multimodal model's `config.json`. A file
    /// without this object is read at its top level.
    pub nested: &'static str,
    /// The value of `tie_word_embeddings` in a file without this key.
    pub tied: bool,
    /// Which layers have a window, in a file that does not list its layers' types.
    pub windows: Windows,
    /// Whether feed-forward blocks have a gate beside the up projection.
    pub gated: bool,
    /// Whether the attention's output is multiplied by a gate, in a file without `attn_output_gate`.
    pub output_gate: bool,
    /// Which keys of the file give the number and size of a layer's heads.
    pub heads: Heads,
    /// Whether `intermediate_size` is the width of an expert.
    pub wide_experts: bool,
    /// Every n-th layer attends, and the others keep a recurrent state, in a file that does not say so.
    pub attends_every: Option<u32>,
    /// Keys that a file must have, because no class of transformers has a default for them. `a|b`: one of both.
    pub needs: &'static [&'static str],
    /// A warning that says what is not modelled in this family, in one sentence.
    pub warning: Option<&'static str>,
}

const LLAMA: Family = Family {
    names: &[],
    nested: "text_config",
    tied: false,
    windows: Windows::All,
    gated: true,
    output_gate: false,
    heads: Heads::Alike,
    wide_experts: false,
    attends_every: None,
    needs: &[],
    warning: None,
};

const V4_KV: &str =
    "KV is counted in 16 bits a number; vLLM's fp8_ds_mla takes 584 bytes for 512 numbers: kv_bits = 9.125";

/// GLM-5.3-Flash (transformers' `Glm5NextTextConfig`): residual streams of `hc_mult` times the hidden size, and an
/// indexer whose keys stand for `index_kpool` tokens each.
const HYPER: &str =
    "residual streams (hc_mult) are not modelled, and the indexer's keys are counted one a token (index_kpool)";

#[rustfmt::skip]
static FAMILIES: [Family; 24] = [
    Family { names: &["llama", "mistral", "qwen2", "qwen3", "internlm2", "internlm3", "yi", "granite", "olmo2", "olmo3", "ernie4_5", "seed_oss", "exaone4", "smollm3", "qwen3_vl"], ..LLAMA },
    Family { names: &["mimo"], needs: &["num_key_value_heads"], ..LLAMA },
    Family { names: &["mistral3", "mistral4", "ministral3", "ministral"], ..LLAMA },
    Family { names: &["phi3"], ..LLAMA },
    Family { names: &["glm", "glm4", "chatglm"], ..LLAMA },
    Family { names: &["gemma2"], tied: true, windows: Windows::EveryOther, ..LLAMA },
    Family { names: &["gemma", "gemma3", "gemma3_text"], tied: true, windows: Windows::AllBut(6), ..LLAMA },
    Family { names: &["gemma4", "gemma4_text"], tied: true, windows: Windows::AllBut(6), heads: Heads::Gemma4, ..LLAMA },
    Family { names: &["qwen2_moe", "qwen3_moe", "qwen3_vl_moe", "ernie4_5_moe"], ..LLAMA },
    Family { names: &["mixtral", "phimoe", "granitemoe", "olmoe", "hunyuan_v1_moe"], wide_experts: true, ..LLAMA },
    Family { names: &["minimax_m2", "minimax"], wide_experts: true, ..LLAMA },
    Family { names: &["minimax_m3", "minimax_m3_vl"], wide_experts: true, needs: &["dense_intermediate_size", "head_dim", "num_key_value_heads", "num_local_experts", "sparse_attention_config"], ..LLAMA },
    Family { names: &["glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v3_2"], ..LLAMA },
    Family { names: &["kimi_k2", "kimi_k25", "kimi_vl"], needs: &["kv_lora_rank", "q_lora_rank", "n_routed_experts", "n_shared_experts", "first_k_dense_replace"], ..LLAMA },
    Family { names: &["deepseek_v4", "deepseek_ref"], windows: Windows::Never, heads: Heads::DeepseekV4, warning: Some(V4_KV), ..LLAMA },
    Family { names: &["mimo_v2_flash"], heads: Heads::MiMo, needs: &["hybrid_layer_pattern|layer_types", "moe_layer_freq|mlp_layer_types", "swa_num_key_value_heads"], ..LLAMA },
    Family { names: &["gpt_oss"], wide_experts: true, windows: Windows::EveryOther, ..LLAMA },
    Family { names: &["llama4", "llama4_text"], wide_experts: true, windows: Windows::AllBut(4), ..LLAMA },
    Family { names: &["qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_6", "qwen3_6_moe"], output_gate: true, windows: Windows::Never, attends_every: Some(4), ..LLAMA },
    Family { names: &["kimi_linear"], windows: Windows::Never, needs: &["linear_attn_config", "first_k_dense_replace"], ..LLAMA },
    Family { names: &["kimi_k3"], windows: Windows::Never, needs: &["linear_attn_config", "first_k_dense_replace", "num_experts", "num_experts_per_token", "num_shared_experts", "q_lora_rank", "mla_use_output_gate", "routed_expert_hidden_size"], ..LLAMA },
    Family { names: &["glm5_next", "glm5_next_text"], windows: Windows::Never, attends_every: Some(4), warning: Some(HYPER), ..LLAMA },
    Family { names: &["nemotron_h"], gated: false, windows: Windows::Never, needs: &["hybrid_override_pattern|layers_block_type"], ..LLAMA },
    Family { names: &["nemotron"], gated: false, windows: Windows::Never, ..LLAMA },
];

/// The family of a class, by the part of its name before `For` (`Qwen3Moe`); `None` if no family has this name.
pub fn of_class(class: &str) -> Option<&'static Family> {
    let class = class.to_lowercase();
    FAMILIES.iter().find(|f| f.names.iter().any(|name| name.replace('_', "") == class))
}

/// Checks that the decoder's object has the keys that the family needs, null included.
pub fn check_needs(family: &Family, fields: &Fields) -> Result<(), BadConfig> {
    let lacks = |need: &&&str| need.split('|').all(|key| !fields.has(key));
    let missing = family.needs.iter().find(lacks).map(|need| need.split('|').next().unwrap_or(need));
    missing.map_or(Ok(()), |key| Err(fields.bad(key, "missing; this family's files have it, and it has no default")))
}

/// The family that a file's `model_type` names.
pub fn of(fields: &Fields) -> Result<&'static Family, BadConfig> {
    let known = || FAMILIES.iter().flat_map(|f| f.names).copied().collect::<Vec<_>>().join(", ");
    let Some(model_type) = fields.text("model_type")? else {
        return Err(fields.bad("model_type", format!("missing; it says how to read the rest: one of {}", known())));
    };
    FAMILIES.iter().find(|f| f.names.contains(&model_type)).ok_or_else(|| {
        let why = format!(
            "`{model_type}` is not known, and its layers may be of another kind; known are {}. Give the layers \
             themselves: model = {{ name, hidden, vocab, layers = [..] }}",
            known()
        );
        fields.bad("model_type", why)
    })
}
