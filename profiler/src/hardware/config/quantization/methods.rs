//! Reads `quantization_config` by its `quant_method`.

use super::super::bad::BadConfig;
use super::super::fields::Fields;
use super::parts::Pair;
use super::scheme::Scheme;
use super::selectors::Chosen;
use super::{groups, modelopt};
use serde_json::Value;

pub fn scheme(table: &Fields) -> Result<Scheme, BadConfig> {
    let method = match table.text("quant_method")? {
        Some(method) => method,
        // Some of ModelOpt's files give `quant_algo` without `quant_method`.
        None if table.given("quant_algo").is_some() => "modelopt",
        None => return Err(table.bad("quant_method", "missing; it says how the weights are kept, as \"fp8\"")),
    };
    let mut scheme = match method {
        "fp8" | "fbgemm_fp8" => Scheme::all((8.0, 8.0)),
        // With MXFP4, a weight has 4 bits, and 32 weights share a scale of 8 bits.
        "mxfp4" => Scheme::all((4.25, 16.0)),
        "awq" | "gptq" | "gptq_marlin" | "awq_marlin" | "auto-round" => packed(table, method)?,
        "bitsandbytes" => bitsandbytes(table)?,
        "modelopt" | "modelopt_fp4" | "modelopt_mixed" => modelopt::scheme(table)?,
        "compressed-tensors" => groups::compressed_tensors(table)?,
        other => {
            let why = format!(
                "`{other}` is not known; known are fp8, mxfp4, awq, gptq, auto-round, bitsandbytes, modelopt and \
                 compressed-tensors. Without quantization_config the weights are counted in 16 bits"
            );
            return Err(table.bad("quant_method", why));
        }
    };
    modelopt::listed(table, &mut scheme)?;
    skipped(table, &mut scheme)?;
    Ok(scheme)
}

/// Reads the modules that the file excludes from quantisation. The key of this list depends on the method. Patterns
/// (`re:…`) become selectors, which come before all others.
fn skipped(table: &Fields, scheme: &mut Scheme) -> Result<(), BadConfig> {
    let keys = ["ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules", "llm_int8_skip_modules"];
    let mut patterns = Vec::new();
    for key in keys {
        for name in table.texts(key)?.unwrap_or_default() {
            match name.starts_with("re:") {
                true => patterns.push(Chosen { key: key.into(), selector: name.into(), bits: None }),
                false => scheme.skipped.push(name.to_owned()),
            }
        }
    }
    scheme.chosen.splice(0..0, patterns);
    Ok(())
}

/// Methods that keep weights of 2 to 8 bits in groups: AWQ, GPTQ, AutoRound.
fn packed(table: &Fields, method: &str) -> Result<Scheme, BadConfig> {
    let bits = match table.size_of(&["bits", "w_bit"])? {
        Some(bits) => bits,
        // transformers' AwqConfig has 4 bits by default, its GPTQConfig has no default.
        None if method.starts_with("awq") => 4,
        None => return Err(table.bad("bits", "missing; it says how many bits a weight has")),
    };
    // A group size of −1 is a scale for each row, whose share is below a hundredth of a bit.
    let group = match table.given("group_size").and_then(Value::as_i64) {
        Some(-1) => None,
        _ => Some(table.size_of(&["group_size", "q_group_size"])?.unwrap_or(128)),
    };
    let all = grouped(table, "bits", bits, group)?;
    let mut scheme = Scheme::all(all);
    if table.flag("lm_head")?.unwrap_or(false) || table.flag("quant_lm_head")?.unwrap_or(false) {
        scheme.head = Some(all.0);
    }
    // GPTQModel's `dynamic`: `-:PATTERN` is not quantised, `+:PATTERN` or PATTERN has bits of its own.
    if let Some(dynamic) = table.table("dynamic")? {
        for name in dynamic.keys() {
            let pattern = name.trim_start_matches("+:").trim_start_matches("-:");
            let own = own_bits(&dynamic, &name, (bits, group))?;
            let bits = if name.starts_with("-:") { None } else { own };
            let key = "quantization_config.dynamic".into();
            scheme.chosen.push(Chosen { key, selector: format!("re:{pattern}"), bits });
        }
    }
    // AutoRound's `extra_config`: a module's name, or a pattern of the whole name.
    if let Some(extra) = table.table("extra_config")? {
        for name in extra.keys() {
            let bits = own_bits(&extra, &name, (bits, group))?;
            let is_pattern = name.contains(['*', '(', '[', '\\', '^', '$']);
            let selector = if is_pattern { format!("re:{name}$") } else { name.clone() };
            scheme.chosen.push(Chosen { key: "quantization_config.extra_config".into(), selector, bits });
        }
    }
    if let Some(Value::Array(blocks)) = table.get("modules_in_block_to_quantize") {
        // Only these modules of a layer are quantised.
        let modules = blocks.iter().flat_map(|block| block.as_array().cloned().unwrap_or(vec![block.clone()]));
        for module in modules {
            let key = "modules_in_block_to_quantize";
            let name = module.as_str().ok_or_else(|| table.bad(key, "expected lists of names"))?;
            let selector = format!(r"re:.*layers\.\d+\.{}$", name.replace('.', r"\."));
            scheme.chosen.push(Chosen { key: format!("quantization_config.{key}"), selector, bits: scheme.all });
        }
        scheme.all = None;
    }
    Ok(scheme)
}

/// The bits that the table at `name` gives, by `bits` and `group_size`; `None` with 16 bits.
fn own_bits(table: &Fields, name: &str, (bits, group): (u32, Option<u32>)) -> Result<Option<Pair>, BadConfig> {
    let Some(own) = table.table(name)? else { return Ok(None) };
    let bits = own.size_of(&["bits"])?.unwrap_or(bits);
    let group = match own.given("group_size").and_then(Value::as_i64) {
        Some(-1) => None,
        Some(_) => own.size_of(&["group_size"])?,
        None => group,
    };
    if bits >= 16 { Ok(None) } else { grouped(&own, "bits", bits, group).map(Some) }
}

/// (bits of a weight with its scale and zero point, bits of an activation). The weights of a group share a scale of 16
/// bits and a zero point, which has as many bits as a weight.
fn grouped(table: &Fields, key: &str, bits: u32, group: Option<u32>) -> Result<Pair, BadConfig> {
    if !(1..=8).contains(&bits) {
        return Err(table.bad(key, format!("{bits} is not a number of bits from 1 to 8")));
    }
    let weights = f64::from(bits);
    Ok((weights + group.map_or(0.0, |group| (16.0 + weights) / f64::from(group)), 16.0))
}

/// bitsandbytes: 8 bits, or 4 bits with a scale of 32 bits for 64 weights. With double quantisation this scale has 8
/// bits, and 256 of them share one of 32 bits (arXiv 2305.14314, section 3).
fn bitsandbytes(table: &Fields) -> Result<Scheme, BadConfig> {
    let flag = |key: &str| table.flag(key).map(|set| set.unwrap_or(false));
    let double = flag("bnb_4bit_use_double_quant")?;
    match (flag("load_in_8bit")?, flag("load_in_4bit")?) {
        (true, false) => Ok(Scheme::all((8.0, 16.0))),
        (false, true) if double => Ok(Scheme::all((4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0), 16.0))),
        (false, true) => Ok(Scheme::all((4.5, 16.0))),
        (both, _) => {
            let why = format!(
                "one of load_in_4bit and load_in_8bit must be true, and {} are",
                if both { "both" } else { "none" }
            );
            Err(table.bad("load_in_4bit", why))
        }
    }
}
