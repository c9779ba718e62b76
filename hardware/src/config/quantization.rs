//! Bits of weights, activations and KV, from `quantization_config` and `torch_dtype`.

use super::bad::BadConfig;
use super::fields::Fields;
use crate::models::Bits;
use serde_json::Value;

/// The bits of a model, and what the file says about them that is not modelled.
pub struct ReadBits {
    pub bits: Bits,
    pub warnings: Vec<String>,
}

/// How linear layers are quantised.
struct Scheme {
    /// Bits of a weight, its share of the scales included.
    weights: f64,
    /// Bits of what is multiplied with it.
    activations: f64,
    /// Bits of a number of the KV cache; `None`: as without quantisation.
    kv: Option<f64>,
    /// Layers that are left out.
    skipped: Vec<String>,
}

/// Reads the bits of the decoder in `fields`, a table of the file `whole` or the file itself.
///
/// # Errors
/// The type of the weights, the method of quantisation or its algorithm is not known, or a key that the method needs is
/// missing or has a value of another type.
pub fn bits(whole: &Fields, fields: &Fields) -> Result<ReadBits, BadConfig> {
    let (of, table) = match fields.table("quantization_config")? {
        Some(table) => (fields, Some(table)),
        None => (whole, whole.table("quantization_config")?),
    };
    let own = match fields
        .text("torch_dtype")?
        .or(fields.text("dtype")?)
        .or(whole.text("torch_dtype")?)
        .or(whole.text("dtype")?)
    {
        Some("float32") => 32.0,
        None | Some("bfloat16" | "float16") => 16.0,
        Some("float8_e4m3fn") => 8.0,
        Some(other) => return Err(fields.bad("torch_dtype", format!("`{other}` is not a type that is known"))),
    };
    let plain = Bits { weights: own, experts: own, head: own, kv: 16.0, ..Bits::default() };
    let Some(table) = table else { return Ok(ReadBits { bits: plain, warnings: Vec::new() }) };
    let scheme = scheme(&table)?;
    let skips = |part: &str| scheme.skipped.iter().any(|name| name.contains(part));
    // A file that leaves attention out quantises what is left: the experts.
    let attention_is_plain = skips("self_attn") || skips("attention") || skips("attn");
    let experts_are_plain = skips("experts");
    let mut bits = plain;
    if !attention_is_plain {
        (bits.weights, bits.activations) = (scheme.weights, scheme.activations);
    }
    if !experts_are_plain {
        (bits.experts, bits.expert_activations) = (scheme.weights, scheme.activations);
    }
    bits.kv = scheme.kv.unwrap_or(plain.kv);
    let mut warnings = Vec::new();
    if attention_is_plain && of.first(&["num_local_experts", "num_experts", "n_routed_experts"]).is_none() {
        warnings.push("attention is not quantised: dense blocks are counted as not quantised either".to_owned());
    }
    Ok(ReadBits { bits, warnings })
}

fn scheme(table: &Fields) -> Result<Scheme, BadConfig> {
    let method = table.text("quant_method")?.ok_or_else(|| table.bad("quant_method", "missing"))?;
    // The methods' own keys are understood as a whole; what decides is read below.
    let skipped = |keys: &[&str]| {
        let lists = keys.iter().filter_map(|key| table.get(key)).filter_map(Value::as_array).flatten();
        lists.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let skipped = skipped(&["ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"]);
    let fixed = |weights, activations| Scheme { weights, activations, kv: None, skipped: skipped.clone() };
    let group = |default: u32| Ok::<f64, BadConfig>(f64::from(table.size_of(&["group_size"])?.unwrap_or(default)));
    Ok(match method {
        "fp8" | "fbgemm_fp8" => fixed(8.0, 8.0),
        // Weights in 4 bits with a scale of 8 bits for each 32.
        "mxfp4" => fixed(4.25, 16.0),
        "awq" | "gptq" | "gptq_marlin" | "awq_marlin" | "auto-round" => {
            let weights = f64::from(table.size_of(&["bits", "w_bit"])?.unwrap_or(4));
            // A scale of 16 bits and a zero point for each group.
            fixed(weights + (16.0 + weights) / group(128)?, 16.0)
        }
        "bitsandbytes" if table.flag("load_in_8bit")?.unwrap_or(false) => fixed(8.0, 16.0),
        "bitsandbytes" => fixed(4.5, 16.0),
        "modelopt" => {
            let mut scheme = match table.text("quant_algo")?.unwrap_or_default() {
                "FP8" => fixed(8.0, 8.0),
                // A scale of 8 bits for each 16.
                "NVFP4" => fixed(4.5, 4.0),
                other => {
                    return Err(table.bad("quant_algo", format!("`{other}` is not known; known are FP8 and NVFP4")));
                }
            };
            scheme.kv = match table.text("kv_cache_quant_algo")? {
                Some("FP8") => Some(8.0),
                _ => None,
            };
            scheme
        }
        "compressed-tensors" => compressed_tensors(table, skipped)?,
        other => {
            let why = format!(
                "`{other}` is not known; known are fp8, mxfp4, awq, gptq, bitsandbytes, modelopt and compressed-tensors. \
                 Without quantization_config the weights are counted in 16 bits"
            );
            return Err(table.bad("quant_method", why));
        }
    })
}

/// The scheme of compressed-tensors: the first of its groups.
fn compressed_tensors(table: &Fields, skipped: Vec<String>) -> Result<Scheme, BadConfig> {
    let groups = table.get("config_groups").and_then(Value::as_object);
    let group = groups.and_then(|groups| groups.values().next());
    let group = group.ok_or_else(|| table.bad("config_groups", "missing; it says how the weights are kept"))?;
    let number = |value: &Value| value.as_f64().filter(|bits| (1.0..=32.0).contains(bits));
    let weights = number(&group["weights"]["num_bits"])
        .ok_or_else(|| table.bad("config_groups", "the first group has no weights.num_bits"))?;
    let scales = match group["weights"]["group_size"].as_f64().filter(|size| *size >= 1.0) {
        Some(size) => {
            // Small groups have scales of 8 bits.
            let scale = if size <= 32.0 { 8.0 } else { 16.0 };
            scale / size
        }
        None => 0.0,
    };
    let activations = number(&group["input_activations"]["num_bits"]).unwrap_or(16.0);
    let kv = table.get("kv_cache_scheme").and_then(|kv| number(&kv["num_bits"]));
    Ok(Scheme { weights: weights + scales, activations, kv, skipped })
}
