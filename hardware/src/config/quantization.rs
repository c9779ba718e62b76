//! Reads the bits of weights, activations and KV from `quantization_config` and `torch_dtype`.

use super::bad::BadConfig;
use super::fields::Fields;
use super::parts::{self, Cover, Part, cover};
use crate::models::Bits;
use serde_json::Value;
use std::collections::BTreeMap;

/// How many bits a model's weights, activations and KV have, with warnings about quantisation that is not modelled.
pub struct ReadBits {
    pub bits: Bits,
    pub warnings: Vec<String>,
}

/// The bits that a file's `quantization_config` gives to the weights and activations of linear layers, and to the KV.
struct Scheme {
    /// Bits of a quantised weight. Weights of a group have a common scale; the number includes the weight's part of
    /// this scale.
    weights: f64,
    /// Bits of an activation that is multiplied with the weights.
    activations: f64,
    /// Bits of a number in the KV cache. `None`: the same as without quantisation, 16.
    kv: Option<f64>,
    /// Names or patterns of modules that the file excludes from quantisation.
    skipped: Vec<String>,
}

/// Reads the bits of the decoder's weights, activations and KV. `fields` is the JSON object with the decoder's keys.
/// `whole` is the file's top level, and may be the same object.
///
/// # Errors
/// The type of the weights, the method of quantisation or its algorithm is not known, or a key that the method needs is
/// missing or has a value of another type.
pub fn bits(whole: &Fields, fields: &Fields) -> Result<ReadBits, BadConfig> {
    let table = match fields.table("quantization_config")? {
        Some(table) => Some(table),
        None => whole.table("quantization_config")?,
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
    let mut read = ReadBits { bits: plain, warnings: Vec::new() };
    let experts = expert_type(fields, table.as_ref())?;
    if let Some(bits) = experts {
        set(&mut read.bits, Part::Experts, bits);
    }
    let Some(table) = table else { return Ok(read) };
    let scheme = scheme(&table)?;
    read.bits.kv = scheme.kv.unwrap_or(plain.kv);
    // If a file has `quantized_layers`, this key lists all quantised modules, so the list of excluded modules is not
    // used. `mixed` sets the bits of the parts (attention, dense blocks, experts) that are listed. The other parts keep
    // the bits of the file's `torch_dtype`, unless `quant_method` gives fewer bits.
    let listed = table.get("quantized_layers").is_some();
    let layers = fields.count("num_hidden_layers")?.unwrap_or(0);
    for part in [Part::Attention, Part::Dense, Part::Experts] {
        let cover = if listed { Cover::None } else { cover(&scheme.skipped, part, layers) };
        let has_own = (part == Part::Experts && experts.is_some()) || (listed && scheme.weights >= own);
        if cover != Cover::Most && !has_own {
            set(&mut read.bits, part, (scheme.weights, scheme.activations));
        }
        if let Cover::Few(n) = cover {
            let what = part.words();
            read.warnings.push(format!("{what}: {n} layers are not quantised, and are counted as if they were"));
        }
    }
    if listed {
        mixed(&table, &mut read)?;
    }
    if read.bits.dense == Some(read.bits.weights) && read.bits.dense_activations == Some(read.bits.activations) {
        (read.bits.dense, read.bits.dense_activations) = (None, None);
    }
    Ok(read)
}

/// (bits of an expert's weight, bits of its activations) by the file's `expert_dtype` (DeepSeek-V4); `None` without
/// this key.
fn expert_type(fields: &Fields, table: Option<&Fields>) -> Result<Option<(f64, f64)>, BadConfig> {
    let nested = table.map_or(Ok(None), |table| table.text("expert_dtype"))?;
    match fields.text("expert_dtype")?.or(nested) {
        None => Ok(None),
        // With `fp4`, an expert's weight has 4 bits, and 32 weights share a scale of 8 bits. Activations have 8 bits.
        Some("fp4") => Ok(Some((4.25, 8.0))),
        Some("fp8") => Ok(Some((8.0, 8.0))),
        Some(other) => Err(fields.bad("expert_dtype", format!("`{other}` is not one of fp4 and fp8"))),
    }
}

/// Sets the bits of a part of the decoder (attention, dense blocks or experts): (bits of a weight, bits of an
/// activation that is multiplied with it).
fn set(bits: &mut Bits, part: Part, (weights, activations): (f64, f64)) {
    match part {
        Part::Attention => {
            // A dense block without bits of its own uses the bits of attention. The bits of attention change below,
            // so the dense blocks are first given the old bits.
            bits.dense = bits.dense.or(Some(bits.weights));
            bits.dense_activations = bits.dense_activations.or(Some(bits.activations));
            (bits.weights, bits.activations) = (weights, activations);
        }
        Part::Dense => (bits.dense, bits.dense_activations) = (Some(weights), Some(activations)),
        Part::Experts => (bits.experts, bits.expert_activations) = (weights, activations),
    }
}

/// Sets the bits of the parts of the decoder (attention, dense blocks, experts) that `quantized_layers` lists. Two
/// parts may have different algorithms; the modules of one part must have the same.
fn mixed(table: &Fields, read: &mut ReadBits) -> Result<(), BadConfig> {
    let bad = |why: String| table.bad("quantized_layers", why);
    let layers = table.get("quantized_layers").and_then(Value::as_object);
    let layers = layers.ok_or_else(|| bad("expected a table of modules, { quant_algo = \"FP8\" } each".into()))?;
    let mut found = BTreeMap::new();
    for (name, module) in layers {
        let said = module["quant_algo"].as_str().ok_or_else(|| bad(format!("`{name}` has no quant_algo")))?;
        let bits = algorithm(said).ok_or_else(|| bad(format!("`{name}`: `{said}` is not known; known are {KNOWN}")))?;
        if name == "lm_head" {
            read.warnings.push("the output head is quantised, and is counted as if it were not".to_owned());
        }
        let Some((part, _)) = parts::of(name) else { continue };
        if *found.entry(part).or_insert(bits) != bits {
            return Err(bad(format!("gives {} different algorithms, which is not modelled", part.words())));
        }
    }
    for (part, bits) in found {
        set(&mut read.bits, part, bits);
    }
    Ok(())
}

const KNOWN: &str = "FP8, MXFP8, NVFP4, W4A16_NVFP4 and MIXED_PRECISION";

/// (bits of a weight, bits of an activation) for the algorithm `name` of NVIDIA's ModelOpt; `None` if it is not known.
fn algorithm(name: &str) -> Option<(f64, f64)> {
    Some(match name {
        "FP8" => (8.0, 8.0),
        // With MXFP8, 32 weights of 8 bits share a scale of 8 bits.
        "MXFP8" => (8.25, 8.0),
        // With NVFP4, 16 weights of 4 bits share a scale of 8 bits.
        "NVFP4" => (4.5, 4.0),
        "W4A16_NVFP4" => (4.5, 16.0),
        _ => return None,
    })
}

fn scheme(table: &Fields) -> Result<Scheme, BadConfig> {
    let method = match table.text("quant_method")? {
        Some(method) => method,
        // Some of ModelOpt's files give `quant_algo` without `quant_method`.
        None if table.get("quant_algo").is_some() => "modelopt",
        None => return Err(table.bad("quant_method", "missing; it says how the weights are kept, as \"fp8\"")),
    };
    // The modules that the file excludes from quantisation. The key of this list depends on the method.
    let skipped = |keys: &[&str]| {
        let lists = keys.iter().filter_map(|key| table.get(key)).filter_map(Value::as_array).flatten();
        lists.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let skipped = skipped(&["ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"]);
    let fixed = |weights, activations| Scheme { weights, activations, kv: None, skipped: skipped.clone() };
    let group = |default: u32| Ok::<f64, BadConfig>(f64::from(table.size_of(&["group_size"])?.unwrap_or(default)));
    Ok(match method {
        "fp8" | "fbgemm_fp8" => fixed(8.0, 8.0),
        // With MXFP4, a weight has 4 bits, and 32 weights share a scale of 8 bits.
        "mxfp4" => fixed(4.25, 16.0),
        "awq" | "gptq" | "gptq_marlin" | "awq_marlin" | "auto-round" => {
            let weights = f64::from(table.size_of(&["bits", "w_bit"])?.unwrap_or(4));
            // The weights of a group share a scale of 16 bits and a zero point, which has as many bits as a weight.
            fixed(weights + (16.0 + weights) / group(128)?, 16.0)
        }
        "bitsandbytes" if table.flag("load_in_8bit")?.unwrap_or(false) => fixed(8.0, 16.0),
        "bitsandbytes" => fixed(4.5, 16.0),
        "modelopt" => {
            let said = table.text("quant_algo")?.unwrap_or_default();
            let (weights, activations) = match said {
                "MIXED_PRECISION" if table.get("quantized_layers").is_some() => (16.0, 16.0),
                _ => algorithm(said)
                    .ok_or_else(|| table.bad("quant_algo", format!("`{said}` is not known; known are {KNOWN}")))?,
            };
            let kv = match table.text("kv_cache_quant_algo")? {
                Some("FP8") => Some(8.0),
                _ => kv_scheme(table),
            };
            Scheme { weights, activations, kv, skipped }
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

/// Reads the bits of weights, activations and KV from a compressed-tensors `quantization_config`. Only the first of its
/// `config_groups` (groups of modules with equal bits) is read.
fn compressed_tensors(table: &Fields, skipped: Vec<String>) -> Result<Scheme, BadConfig> {
    let groups = table.get("config_groups").and_then(Value::as_object);
    let group = groups.and_then(|groups| groups.values().next());
    let group = group.ok_or_else(|| table.bad("config_groups", "missing; it says how the weights are kept"))?;
    let weights = number(&group["weights"]["num_bits"])
        .ok_or_else(|| table.bad("config_groups", "the first group has no weights.num_bits"))?;
    let scales = match group["weights"]["group_size"].as_f64().filter(|size| *size >= 1.0) {
        Some(size) => {
            // A scale has 8 bits for floating-point weights in groups of at most 32 (MXFP4, NVFP4), else 16 bits.
            let scale = if group["weights"]["type"] == "float" && size <= 32.0 { 8.0 } else { 16.0 };
            scale / size
        }
        None => 0.0,
    };
    let activations = number(&group["input_activations"]["num_bits"]).unwrap_or(16.0);
    Ok(Scheme { weights: weights + scales, activations, kv: kv_scheme(table), skipped })
}

/// Bits of a number in the KV cache, from `kv_cache_scheme`; `None` if the file does not give a number from 1 to 32.
fn kv_scheme(table: &Fields) -> Option<f64> {
    table.get("kv_cache_scheme").and_then(|kv| number(&kv["num_bits"]))
}

/// The JSON value `value` as a number of bits; `None` if it is not a number from 1 to 32.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|bits| (1.0..=32.0).contains(bits))
}
