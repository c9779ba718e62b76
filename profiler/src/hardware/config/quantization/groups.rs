//! Reads the groups of modules of a compressed-tensors file, each with bits of its own.

use super::super::bad::BadConfig;
use super::super::fields::Fields;
use super::parts::Pair;
use super::scheme::Scheme;
use super::selectors::Chosen;

/// Reads `config_groups`. A target is the name of a class (`Linear`), a module's name, or `re:` and a pattern. A name
/// or a pattern comes before a class, as in compressed-tensors.
pub fn compressed_tensors(table: &Fields) -> Result<Scheme, BadConfig> {
    let missing = || table.bad("config_groups", "missing; it says how the weights are kept");
    let groups = table.table("config_groups")?.ok_or_else(missing)?;
    let names = groups.keys();
    let mut scheme = Scheme { kv: kv_scheme(table)?, all: None, ..Scheme::all((16.0, 16.0)) };
    for name in &names {
        let group = groups.table(name)?.ok_or_else(|| groups.bad(name, "expected a table"))?;
        let bits = group_bits(&group)?;
        let targets = match group.texts("targets")? {
            Some(targets) => targets,
            None if names.len() == 1 => vec!["Linear"],
            None => return Err(group.bad("targets", "missing; it says which modules the group has")),
        };
        for target in targets {
            let is_class = !target.starts_with("re:") && !target.contains('.') && target != "lm_head";
            match (is_class, target, scheme.all) {
                (false, ..) => scheme.chosen.push(Chosen {
                    key: format!("quantization_config.config_groups.{name}.targets"),
                    selector: target.to_owned(),
                    bits,
                }),
                (true, "Linear" | "LinearBase", None) => scheme.all = bits,
                // Engines keep experts in a class of their own; their matrices are linear layers of the file.
                (true, "FusedMoE" | "MoE", _) => scheme.chosen.push(Chosen {
                    key: "quantization_config.config_groups".into(),
                    selector: r"re:.*\.experts(\.|$)".into(),
                    bits,
                }),
                (true, "Embedding" | "VocabParallelEmbedding", _) => scheme.embedding = bits.map(|b| b.0),
                (true, "ParallelLMHead", _) => scheme.head = bits.map(|b| b.0),
                (true, "Linear" | "LinearBase", Some(_)) => {
                    return Err(group.bad("targets", "`Linear` is the target of two groups"));
                }
                (true, other, _) => {
                    let why =
                        format!("`{other}` is not a class that is known; give modules by name or as `re:PATTERN`");
                    return Err(group.bad("targets", why));
                }
            }
        }
    }
    if names.is_empty() {
        return Err(missing());
    }
    Ok(scheme)
}

/// The bits of a group's weights and activations; `None` if the group quantises no weights.
fn group_bits(group: &Fields) -> Result<Option<Pair>, BadConfig> {
    let Some(weights) = group.table("weights")? else {
        return Err(group.bad("weights", "missing; the group has no weights.num_bits"));
    };
    let bits = number(&weights, "num_bits")?
        .ok_or_else(|| weights.bad("num_bits", "missing; it says how many bits a weight has"))?;
    // Whether scales are made while the model runs, which changes no size.
    weights.given("dynamic");
    let kind = weights.text("type")?.unwrap_or("int");
    if !["int", "float"].contains(&kind) {
        return Err(weights.bad("type", format!("`{kind}` is not one of int and float")));
    }
    let scales = match weights.get("group_size").and_then(serde_json::Value::as_f64).filter(|size| *size >= 1.0) {
        // A scale has 8 bits for floating-point weights in groups of at most 32 (MXFP4, NVFP4), else 16 bits.
        Some(size) if kind == "float" && size <= 32.0 => 8.0 / size,
        Some(size) => 16.0 / size,
        None => 0.0,
    };
    let activations = match group.table("input_activations")? {
        Some(activations) => {
            let _ = ["type", "dynamic"].map(|key| activations.given(key));
            number(&activations, "num_bits")?.unwrap_or(16.0)
        }
        None => 16.0,
    };
    Ok(Some((bits + scales, activations)))
}

/// Bits of a number in the KV cache, from `kv_cache_scheme`; `None` if the file does not have it.
pub fn kv_scheme(table: &Fields) -> Result<Option<f64>, BadConfig> {
    let Some(scheme) = table.table("kv_cache_scheme")? else { return Ok(None) };
    let _ = ["type", "dynamic"].map(|key| scheme.given(key));
    let bits = number(&scheme, "num_bits")?;
    bits.map(Some).ok_or_else(|| scheme.bad("num_bits", "missing; it says how many bits a number of the KV has"))
}

/// The number of bits at `key`; `None` without the key.
fn number(table: &Fields, key: &str) -> Result<Option<f64>, BadConfig> {
    let Some(value) = table.get(key) else { return Ok(None) };
    match value.as_f64().filter(|bits| (1.0..=32.0).contains(bits)) {
        Some(bits) => Ok(Some(bits)),
        None => Err(table.bad(key, format!("{value} is not a number of bits from 1 to 32"))),
    }
}
