//! Reads MLX's `quantization`, which mlx-lm also writes as `quantization_config`.

use super::super::bad::BadConfig;
use super::super::fields::Fields;
use super::parts::Pair;
use super::scheme::Scheme;
use super::selectors::Chosen;
use serde_json::Value;

/// Reads the table `quantization`: bits and group size of all matrices, the embedding and the output head included. A
/// key that is a module's name gives this module bits of its own, or `false`: it is not quantised. `twin` is the file's
/// `quantization_config`, which must say the same.
pub fn scheme(table: &Fields, twin: Option<&Fields>) -> Result<Scheme, BadConfig> {
    if let Some(twin) = twin {
        if !twin.is_same(table) {
            let why = "says something else than quantization_config; leave out the one that is not the weights'";
            return Err(BadConfig { key: "quantization".into(), why: why.into() });
        }
        twin.pass_over_all();
    }
    let all = bits(table)?.ok_or_else(|| table.bad("bits", "missing; it says how many bits a weight has"))?;
    let mut scheme = Scheme { head: Some(all.0), embedding: Some(all.0), ..Scheme::all(all) };
    for name in table.keys().into_iter().filter(|name| name.contains('.') || name == "lm_head") {
        let bits = match table.get(&name) {
            Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(all),
            Some(Value::Object(_)) => {
                let own = table.table(&name)?.expect("an object is a table");
                Some(bits(&own)?.unwrap_or(all))
            }
            _ => return Err(table.bad(&name, "expected true, false or a table with bits and group_size")),
        };
        scheme.chosen.push(Chosen { key: "quantization".into(), selector: name, bits });
    }
    Ok(scheme)
}

/// (bits of a weight with its scales, bits of an activation) of a table with `bits`, `group_size` and `mode`. MLX
/// multiplies in 16 bits.
fn bits(table: &Fields) -> Result<Option<Pair>, BadConfig> {
    let Some(bits) = table.size_of(&["bits"])? else { return Ok(None) };
    if !(2..=8).contains(&bits) {
        return Err(table.bad("bits", format!("{bits} is not a number of bits from 2 to 8")));
    }
    // Bits that a group's weights share, and the default size of a group (`mlx.core.quantize`): a scale and a bias of
    // 16 bits each, or a scale of 8 bits.
    let (shared, group) = match table.text("mode")?.unwrap_or("affine") {
        "affine" => (32.0, 64),
        "mxfp4" | "mxfp8" => (8.0, 32),
        "nvfp4" => (8.0, 16),
        other => return Err(table.bad("mode", format!("`{other}` is not one of affine, mxfp4, mxfp8 and nvfp4"))),
    };
    let group = table.size_of(&["group_size"])?.unwrap_or(group);
    Ok(Some((f64::from(bits) + shared / f64::from(group), 16.0)))
}
