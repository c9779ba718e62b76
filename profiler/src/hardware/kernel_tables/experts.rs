//! Blocks of routed experts: times by the number of tokens.

use super::curve::Curve;
use super::products::{BF16, FP8, FP8_BLOCK, NVFP4};
use super::table_set::{Missing, TableSet};

/// How tokens choose experts in the tables, in the order in which the tables are taken. Real tokens choose unevenly.
const ROUTINGS: [&str; 3] = ["power_law_1.2", "power_law_1.01", "balanced"];

/// Kernels whose times are wrong: vLLM 0.19's experts in int4 take 2 to 4 times as long as in vLLM 0.24 and in SGLang
/// 0.5.10 and 0.5.14, all by Marlin.
const WRONG: &str = "vllm_marlin_int4_moe";

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
        let words = ["moe_dtype", "distribution", "kernel_source"];
        let found = tables.first(("moe", "moe"), tables.engine, (&columns, &words), &what, |table| {
            ROUTINGS.into_iter().find_map(|routing| {
                let words = [("moe_dtype", *kind), ("distribution", routing)];
                let points = table.rows_where(&shape, &words).filter(|&r| table.word("kernel_source", r) != WRONG);
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

/// The curve, and at each size no less than Marlin kernels take. Only a few shapes were measured with Marlin. The time
/// of the one whose experts are nearest in size is taken at as many tokens of an expert, in proportion to the weights
/// of all experts. Where weights are read, both kernels take the same time; for prompts Marlin takes longer.
pub(super) fn by_marlin(
    tables: &TableSet,
    kinds: &[&'static str],
    block: Block,
    curve: &Curve,
) -> Result<Curve, Missing> {
    let Block { width, inner, total, active, split, spread } = block;
    let gpus = [("moe_tp_size", i64::from(split)), ("moe_ep_size", i64::from(spread))];
    let columns = ["hidden_size", "inter_size", "num_experts", "topk", "moe_tp_size", "moe_ep_size", "num_tokens"];
    let weights = f64::from(width) * f64::from(inner);
    let what = format!("experts in {} by Marlin kernels", kinds.join(" or "));
    let words = ["moe_dtype", "distribution", "kernel_source"];
    let (points, [w, i, e, k]) = tables.first(("moe", "moe"), tables.engine, (&columns, &words), &what, |table| {
        let rows = kinds.iter().flat_map(|kind| {
            let words = [("moe_dtype", *kind), ("distribution", ROUTINGS[0])];
            table.rows_where(&gpus, &words).collect::<Vec<_>>()
        });
        let rows: Vec<usize> = rows.filter(|&row| table.word("kernel_source", row).contains("marlin")).collect();
        let shape = |row: usize| {
            ["hidden_size", "inter_size", "num_experts", "topk"].map(|name| table.number(name, row) as f64)
        };
        let far = |row: usize| (shape(row)[0] * shape(row)[1] / weights).ln().abs();
        let near = shape(rows.iter().copied().min_by(|&a, &b| far(a).total_cmp(&far(b)))?);
        let alike = rows.into_iter().filter(|&row| shape(row) == near);
        let points = alike.map(|row| (table.number("num_tokens", row) as f64, table.seconds(row)));
        Some((points.collect::<Vec<_>>(), near))
    })?;
    tables.note(format!("{what}: as of {k} of {e}, {w} wide, {i} inside, at as many tokens of an expert"));
    let marlin = Curve::new(points).cleaned().0;
    let (total, active) = (f64::from(total), f64::from(active));
    let sizes = curve.sizes().chain(marlin.sizes().map(|m| (m * k / e * total / active).ceil()));
    let more = total * weights / (e * w * i);
    Ok(Curve::sampled(sizes.collect::<Vec<_>>(), |m| curve.at(m).max(more * marlin.at(m * active / total * e / k))))
}
