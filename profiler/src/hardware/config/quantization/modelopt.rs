//! Reads the algorithms of NVIDIA's ModelOpt: one for all modules, or one for each module.

use super::super::bad::BadConfig;
use super::super::fields::Fields;
use super::groups;
use super::parts::{self, Pair};
use super::scheme::Scheme;
use super::selectors::{Chosen, HEAD};
use std::collections::BTreeMap;

const KNOWN: &str = "FP8, MXFP8, NVFP4, W4A16_NVFP4 and MIXED_PRECISION";

/// (bits of a weight, bits of an activation) for the algorithm `name` of NVIDIA's ModelOpt; `None` if it is not known.
fn algorithm(name: &str) -> Option<Pair> {
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

/// Reads `quant_algo` and `kv_cache_quant_algo`. The groups of the same file (`config_groups`) repeat them.
pub fn scheme(table: &Fields) -> Result<Scheme, BadConfig> {
    let said = table.text("quant_algo")?.unwrap_or_default();
    let all = match said {
        "MIXED_PRECISION" if table.given("quantized_layers").is_some() => None,
        _ => Some(
            algorithm(said)
                .ok_or_else(|| table.bad("quant_algo", format!("`{said}` is not known; known are {KNOWN}")))?,
        ),
    };
    let kv = match table.text("kv_cache_quant_algo")? {
        None => groups::kv_scheme(table)?,
        Some("FP8") => Some(8.0),
        Some("NVFP4") => Some(4.5),
        Some(other) => {
            return Err(table.bad("kv_cache_quant_algo", format!("`{other}` is not one of FP8 and NVFP4")));
        }
    };
    // An algorithm has one size of groups.
    for key in ["config_groups", "kv_cache_scheme", "group_size"] {
        table.pass_over(key);
    }
    Ok(Scheme { all, kv, ..Scheme::all((16.0, 16.0)) })
}

/// Reads `quantized_layers`: the list of all quantised modules, so the list of excluded modules is not used. Two parts
/// may have different algorithms; the modules of one part must have the same.
pub fn listed(table: &Fields, scheme: &mut Scheme) -> Result<(), BadConfig> {
    if table.given("quantized_layers").is_none() {
        return Ok(());
    }
    let bad = |why: String| table.bad("quantized_layers", why);
    let layers = table.table("quantized_layers");
    let Ok(Some(layers)) = layers else {
        return Err(bad("expected a table of modules, { quant_algo = \"FP8\" } each".into()));
    };
    let mut found = BTreeMap::new();
    for name in layers.keys() {
        let module = layers.table(&name)?.ok_or_else(|| bad(format!("`{name}` has no quant_algo")))?;
        let said = module.text("quant_algo")?.ok_or_else(|| bad(format!("`{name}` has no quant_algo")))?;
        let bits = algorithm(said).ok_or_else(|| bad(format!("`{name}`: `{said}` is not known; known are {KNOWN}")))?;
        if HEAD.contains(&name.as_str()) {
            scheme.chosen.push(Chosen { key: "quantized_layers".into(), selector: name.clone(), bits: Some(bits) });
        }
        let Some((part, _)) = parts::of(&name) else { continue };
        if *found.entry(part).or_insert(bits) != bits {
            return Err(bad(format!("gives {} different algorithms, which is not modelled", part.words())));
        }
    }
    scheme.listed = Some(found.into_iter().collect());
    Ok(())
}
