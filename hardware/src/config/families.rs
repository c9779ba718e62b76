//! The families of models that can be read, by `model_type`.

use super::bad::BadConfig;
use super::fields::Fields;

/// Which layers attend to a window only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// None, whatever `sliding_window` says.
    Never,
    /// All, if `sliding_window` is set and `use_sliding_window` is not false.
    All,
    /// All but every n-th.
    AllBut(u32),
    /// Of the layers in turn the first has a window and the second has none.
    EveryOther,
}

/// Whether all layers have heads alike, or which keys give the heads of some layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// All are alike.
    Alike,
    /// `global_head_dim` and `num_global_key_value_heads` are of the layers without a window.
    Gemma4,
    /// Values have `v_head_dim` numbers; keys that begin with `swa_` are of the layers with a window.
    MiMo,
    /// One head of keys that are values, too; older tokens are compressed.
    DeepseekV4,
}

/// A family: how its files differ from a Llama's.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// `model_type` in files.
    pub names: &'static [&'static str],
    /// The table in which a model that also sees images keeps its decoder; empty if there is none.
    pub nested: &'static str,
    /// `tie_word_embeddings` where the file is silent.
    pub tied: bool,
    /// Layers with a window, where the file does not list the layers' types.
    pub windows: Windows,
    /// Whether the feed-forward blocks have a gate.
    pub gated: bool,
    /// Whether the attention has an output gate.
    pub output_gate: bool,
    /// The keys of the heads.
    pub heads: Heads,
    /// What is not modelled in this family, in a sentence.
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
    warning: None,
};

const V4_KV: &str =
    "KV is counted in 16 bits a number; vLLM's fp8_ds_mla takes 584 bytes for 512 numbers: kv_bits = 9.125";

#[rustfmt::skip]
const FAMILIES: [Family; 18] = [
    Family { names: &["llama", "mistral", "qwen2", "qwen3", "internlm2", "internlm3", "yi", "granite", "olmo2", "olmo3", "ernie4_5", "seed_oss", "exaone4", "smollm3", "mimo", "qwen3_vl"], ..LLAMA },
    Family { names: &["mistral3", "mistral4", "ministral3", "ministral"], ..LLAMA },
    Family { names: &["phi3"], ..LLAMA },
    Family { names: &["glm", "glm4", "chatglm"], ..LLAMA },
    Family { names: &["gemma2"], tied: true, windows: Windows::EveryOther, ..LLAMA },
    Family { names: &["gemma", "gemma3", "gemma3_text"], tied: true, windows: Windows::AllBut(6), ..LLAMA },
    Family { names: &["gemma4", "gemma4_text"], tied: true, windows: Windows::AllBut(6), heads: Heads::Gemma4, ..LLAMA },
    Family { names: &["mixtral", "qwen2_moe", "qwen3_moe", "qwen3_vl_moe", "phimoe", "granitemoe", "olmoe", "ernie4_5_moe", "hunyuan_v1_moe"], ..LLAMA },
    Family { names: &["minimax_m2", "minimax", "minimax_m3", "minimax_m3_vl"], ..LLAMA },
    Family { names: &["glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v3_2", "kimi_k2", "kimi_k25", "kimi_vl"], ..LLAMA },
    Family { names: &["deepseek_v4", "deepseek_ref"], windows: Windows::Never, heads: Heads::DeepseekV4, warning: Some(V4_KV), ..LLAMA },
    Family { names: &["mimo_v2_flash"], heads: Heads::MiMo, ..LLAMA },
    Family { names: &["gpt_oss"], windows: Windows::EveryOther, ..LLAMA },
    Family { names: &["llama4", "llama4_text"], windows: Windows::AllBut(4), ..LLAMA },
    Family { names: &["qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_6", "qwen3_6_moe"], output_gate: true, windows: Windows::Never, ..LLAMA },
    Family { names: &["kimi_linear", "kimi_k3"], windows: Windows::Never, ..LLAMA },
    Family { names: &["nemotron_h"], gated: false, windows: Windows::Never, ..LLAMA },
    Family { names: &["nemotron"], gated: false, windows: Windows::Never, ..LLAMA },
];

/// The family of a file.
///
/// # Errors
/// `model_type` is missing or unknown.
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
