//! Reads the bits of weights, activations and KV from `quantization_config`, `quantization` (MLX) and `torch_dtype`.

mod groups;
mod methods;
mod mlx;
mod modelopt;
mod parts;
mod scheme;
mod selectors;

use super::bad::BadConfig;
use super::fields::Fields;
use crate::hardware::models::Bits;
pub use parts::Part;
use parts::{Cover, Pair, cover};
use scheme::Scheme;
use selectors::Modules;

/// How many bits a model's weights, activations and KV have, with warnings about quantisation that is not modelled.
pub struct ReadBits {
    pub bits: Bits,
    pub warnings: Vec<(Part, String)>,
}

/// Reads the bits of the decoder's weights, activations and KV. `fields` is the JSON object with the decoder's keys.
/// `whole` is the file's top level, and may be the same object.
pub fn bits<'a>(whole: &Fields<'a>, fields: &Fields<'a>) -> Result<ReadBits, BadConfig> {
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
    let table = either(whole, fields, "quantization_config")?;
    let experts = expert_type(fields, table.as_ref())?;
    if let Some(bits) = experts {
        set(&mut read.bits, Part::Experts, bits);
    }
    let mlx = either(whole, fields, "quantization")?;
    let scheme = match (mlx, table) {
        (Some(mlx), table) => mlx::scheme(&mlx, table.as_ref())?,
        (None, Some(table)) => methods::scheme(&table)?,
        (None, None) => return Ok(read),
    };
    read.bits.kv = scheme.kv.unwrap_or(plain.kv);
    apply(&scheme, fields, own, experts.is_some(), &mut read)?;
    if read.bits.dense == Some(read.bits.weights) && read.bits.dense_activations == Some(read.bits.activations) {
        (read.bits.dense, read.bits.dense_activations) = (None, None);
    }
    if read.bits.embedding == Some(read.bits.head) {
        read.bits.embedding = None;
    }
    Ok(read)
}

/// The table at `key`, of the decoder's object or else of the file's top level.
fn either<'a>(whole: &Fields<'a>, fields: &Fields<'a>, key: &str) -> Result<Option<Fields<'a>>, BadConfig> {
    Ok(match fields.table(key)? {
        Some(table) => Some(table),
        None => whole.table(key)?,
    })
}

/// Gives each part of the decoder, the output head and the embedding the bits of the scheme. `own` are the bits of
/// weights that are not quantised. `has_experts` says whether the experts have bits by `expert_dtype`.
fn apply(scheme: &Scheme, fields: &Fields, own: f64, has_experts: bool, read: &mut ReadBits) -> Result<(), BadConfig> {
    let layers = fields.layers()?.unwrap_or(0);
    let modules = Modules::of(&scheme.chosen, layers)?;
    for part in [Part::Attention, Part::Dense, Part::Experts] {
        let skipped: &[String] = if scheme.listed.is_some() { &[] } else { &scheme.skipped };
        let cover = cover(skipped, part, layers);
        if cover == Cover::Most || (part == Part::Experts && has_experts) {
            continue;
        }
        let what = part.words();
        let unquantised = (own, 16.0);
        let mixed = modules.bits(part, scheme.all, unquantised);
        if mixed.bits != unquantised || scheme.all.is_some() {
            set(&mut read.bits, part, mixed.bits);
        }
        if mixed.several {
            let (weights, activations) = mixed.bits;
            read.warnings.push((
                part,
                format!(
                    "{what}: modules of different bits are counted with their mean, {weights:.3} bits a weight, and \
                 multiplied at {activations:.0} bits"
                ),
            ));
        }
        if let Cover::Few(n) = cover {
            let said = format!("{what}: {n} layers are not quantised, and are counted as if they were");
            read.warnings.push((part, said));
        }
    }
    for (part, bits) in scheme.listed.iter().flatten() {
        set(&mut read.bits, *part, *bits);
    }
    let left_out = |names: &[&str]| scheme.skipped.iter().any(|name| parts::names(name, names));
    let matrix = |names: &[&str], all: Option<f64>| match modules.matrix(names) {
        _ if left_out(names) => own,
        Some(chosen) => chosen.map_or(own, |(weights, _)| weights),
        None => all.unwrap_or(own),
    };
    read.bits.head = matrix(&selectors::HEAD, scheme.head);
    read.bits.embedding = Some(matrix(&selectors::EMBEDDING, scheme.embedding));
    Ok(())
}

/// (bits of an expert's weight, bits of its activations) by the file's `expert_dtype` (DeepSeek-V4); `None` without
/// this key.
fn expert_type(fields: &Fields, table: Option<&Fields>) -> Result<Option<Pair>, BadConfig> {
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
fn set(bits: &mut Bits, part: Part, (weights, activations): Pair) {
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
