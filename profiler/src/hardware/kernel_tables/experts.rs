//! Blocks of routed experts: times by the number of tokens.

use super::curve::Curve;
use super::products::{BF16, FP8, FP8_BLOCK, NVFP4};
use super::table_set::{Missing, TableSet};

/// How tokens choose experts in the tables, in the order in which the tables are taken. Real tokens choose unevenly.
const ROUTINGS: [&str; 3] = ["power_law_1.2", "power_law_1.01", "balanced"];

/// A block of routed experts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) width: u32,
    pub(super) inner: u32,
    pub(super) total: u32,
    pub(super) active: u32,
    /// GPUs over which each expert is split, and over which experts are spread.
    pub(super) split: u32,
    pub(super) spread: u32,
}

/// The package's words for the precision of experts, the best one first. `bits` and `activations` are the model's,
/// `blocks` says that fp8 weights have scales of blocks.
pub(super) fn kinds(tables: &TableSet, bits: f64, activations: f64, blocks: bool) -> Vec<&'static str> {
    match (bits, activations) {
        (_, a) if a <= 4.0 => vec![NVFP4],
        (b, a) if b < 8.0 && a <= 8.0 => vec!["w4a8_mxfp4_mxfp8", "w4afp8"],
        (_, a) if a <= 8.0 && blocks => vec![FP8_BLOCK],
        (_, a) if a <= 8.0 => vec![FP8],
        // MXFP4 has a scale of 8 bits for 32 weights, which int4 has not. SGLang and TensorRT-LLM quantise the
        // activations of MXFP4 experts on Blackwell.
        (b, _) if (b - 4.25).abs() < 1e-3 => {
            let blackwell = tables.system.starts_with('b') || tables.system.starts_with('g');
            let eight = blackwell && tables.engine != "vllm";
            if eight { vec!["w4a8_mxfp4_mxfp8", "w4a16_mxfp4"] } else { vec!["w4a16_mxfp4"] }
        }
        (b, _) if b < 5.0 => vec!["int4_wo"],
        _ => vec![BF16],
    }
}

/// Seconds of a block of experts by its number of tokens.
///
/// # Errors
/// No version of the table has the shape.
pub(super) fn curve(tables: &TableSet, kinds: &[&'static str], block: Block) -> Result<Curve, Missing> {
    let Block { width, inner, total, active, split, spread } = block;
    let shape = [
        ("hidden_size", i64::from(width)),
        ("inter_size", i64::from(inner)),
        ("num_experts", i64::from(total)),
        ("topk", i64::from(active)),
        ("moe_tp_size", i64::from(split)),
        ("moe_ep_size", i64::from(spread)),
    ];
    let columns = ["hidden_size", "inter_size", "num_experts", "topk", "moe_tp_size", "moe_ep_size", "num_tokens"];
    let mut last = String::new();
    for kind in kinds {
        let how = match (split, spread) {
            (1, 1) => String::new(),
            (split, 1) => format!(", each split over {split} GPUs"),
            (_, spread) => format!(", spread over {spread} GPUs"),
        };
        let what = format!("experts in {kind}: {active} of {total}, {width} wide, {inner} inside{how}");
        let words = ["moe_dtype", "distribution"];
        let found = tables.first(("moe", "moe"), tables.engine, (&columns, &words), &what, |table| {
            ROUTINGS.into_iter().find_map(|routing| {
                let words = [("moe_dtype", *kind), ("distribution", routing)];
                let points = table.rows_where(&shape, &words);
                let curve = Curve::new(
                    points.map(|row| (table.number("num_tokens", row) as f64, table.seconds(row))).collect(),
                );
                (!curve.is_empty()).then_some((curve, routing))
            })
        });
        match found {
            Ok((curve, routing)) => {
                tables.note(format!("experts in {kind}, chosen as {routing}"));
                return Ok(curve.cleaned().0);
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}
