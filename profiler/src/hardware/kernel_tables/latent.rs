//! Multi-head latent attention: measured as whole modules, whose projections are inside, or as single kernels.

use super::attention::{Attention, pairs_of};
use super::curve::{Curve, Grid};
use super::products::{BF16, FP8_BLOCK};
use super::table_set::{Missing, TableSet};
use super::terms::{Sum, kind};
use crate::hardware::models::{self, LayerGroup, ModelShape};

/// A model whose attention was measured as a module: hidden size, ranks of queries and KV, whether it chooses tokens.
const MODULES: [(u32, u32, u32, bool, &str, &str); 3] = [
    (7168, 1536, 512, false, "mla", "deepseek-ai/DeepSeek-V3"),
    (7168, 1536, 512, true, "dsa", "deepseek-ai/DeepSeek-V3.2"),
    (6144, 2048, 512, true, "dsa", "zai-org/GLM-5"),
];

/// Modules whose times hold the host's, and the engine whose modules stand in for them. B200's of vLLM are right.
const REPAIRS: [(&str, &str, &str, &str); 2] = [
    ("vllm", "mla", "trtllm", "vLLM's has 74 to 96 us for one request where a B200 has 39: the host's time"),
    ("vllm", "dsa", "sglang", "vLLM's has 140 to 180 us for one request where others take 40 to 60: the host's time"),
];

/// Adds the attention of a group of layers with its projections.
pub(super) fn add(sum: &mut Sum, shape: &ModelShape, group: &LayerGroup) -> Result<(), Missing> {
    let models::Attention::Latent { heads, query_rank, kv_rank, rope_dim, nope_dim, value_dim, selection, .. } =
        group.attention
    else {
        return Ok(());
    };
    let count = f64::from(group.count);
    let here = sum.part("query heads", heads)?;
    let kv = if shape.bits.kv <= 8.0 { "fp8" } else { "bfloat16" };
    let rank = query_rank.unwrap_or(0);
    let module =
        MODULES.into_iter().find(|m| (m.0, m.1, m.2, m.3) == (shape.hidden, rank, kv_rank, selection.is_some()));
    let kind = kind(shape.bits.weights, shape.bits.activations, sum.setup.blocks)?;
    let whole = sum.tables.engine != "sglang" || selection.is_some();
    if let (Some((.., family, model)), true) = (module, whole) {
        let precision = if kind == BF16 { BF16 } else { FP8_BLOCK };
        if precision != kind {
            sum.tables.note(format!("attention of {model} in {kind}: as in {precision}"));
        }
        let (base, attention) = modules(sum.tables, family, model, here, precision, kv)?;
        sum.term(count, 1.0, base);
        sum.attend(count, attention, None);
        return Ok(());
    }
    if selection.is_some() {
        return Err(format!("no module of latent attention with an indexer is {} wide", shape.hidden));
    }
    if (kv_rank, rope_dim, nope_dim, value_dim) != (512, 64, 128, 128) {
        return Err(format!("latent attention was measured with a rank of 512, not of {kv_rank}"));
    }
    let (hidden, wide, local) = (f64::from(shape.hidden), f64::from(kv_rank + rope_dim), f64::from(here));
    let queries = local * f64::from(nope_dim + rope_dim);
    match query_rank.map(f64::from) {
        Some(rank) => {
            sum.product(count, kind, rank + wide, hidden)?;
            sum.product(count, kind, queries, rank)?;
        }
        None => {
            sum.product(count, kind, wide, hidden)?;
            sum.product(count, kind, queries, hidden)?;
        }
    }
    sum.product(count, kind, hidden, local * f64::from(value_dim))?;
    for part in ["mla_gen_pre", "mla_gen_post"] {
        let curve = absorbed(sum.tables, part, here)?;
        sum.term(count, 1.0, curve);
    }
    let attention = kernels(sum.tables, here, kv)?;
    sum.attend(count, attention, None);
    Ok(())
}

/// A module by tokens, without what the context adds; and what the context and the pairs add.
fn modules(
    tables: &TableSet,
    family: &str,
    model: &str,
    heads: u32,
    precision: &str,
    kv: &str,
) -> Result<(Curve, Attention), Missing> {
    let folder = if family == "dsa" { "sparse_attention" } else { "mla" };
    let columns = ["num_heads", "batch_size", "isl", "step"];
    let words = ["model", "kv_cache_dtype", "gemm_type"];
    let what = format!("attention of {model} with {heads} heads, {precision} weights and {kv} KV");
    let wanted = [("model", model), ("kv_cache_dtype", kv), ("gemm_type", precision)];
    let name = |phase: &str| format!("{family}_{phase}_module");
    let number = [("num_heads", i64::from(heads))];
    let right = family == "mla" && tables.system == "b200_sxm";
    let repair = REPAIRS.into_iter().find(|r| !right && (r.0, r.1) == (tables.engine, family));
    let engine = repair.map_or(tables.engine, |r| r.2);
    if let Some((.., why)) = repair {
        tables.note(format!("{what} of {engine}, because {why}"));
    }
    let all = tables.first((folder, &name("generation")), engine, (&columns, &words), &what, |table| {
        let of = |name: &str, row: usize| table.number(name, row) as f64;
        let rows = table.rows_where(&number, &wanted);
        let points: Vec<_> = rows.map(|row| (of("batch_size", row), of("step", row), table.seconds(row))).collect();
        (!points.is_empty()).then_some(points)
    })?;
    let prompts = tables.first((folder, &name("context")), engine, (&columns, &words), &what, |table| {
        let wanted_rows = [number[0], ("batch_size", 1), ("step", 0)];
        let rows = table.rows_where(&wanted_rows, &wanted);
        let points: Vec<_> = rows.map(|row| (table.number("isl", row) as f64, table.seconds(row))).collect();
        (!points.is_empty()).then_some(points)
    })?;
    tables.note(format!("{what}: measured as a whole, projections included"));
    let prompts = Curve::new(prompts).cleaned().0;
    let shortest = all.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let base = Curve::new(all.iter().filter(|p| p.1 == shortest).map(|p| (p.0, p.2)).collect()).cleaned().0;
    let decode = Grid::new(all.iter().map(|&(b, c, s)| (b, c, (s - base.at(b)).max(0.0))).collect());
    // What a prompt takes beyond as many tokens of decodes, is its pairs'.
    let least = prompts.sizes().next().map_or(0.0, |n| (prompts.at(n) - base.at(n)).max(0.0));
    let points = prompts.sizes().map(|n| (pairs_of(n, None), (prompts.at(n) - base.at(n) - least).max(0.0)));
    let pairs = Curve::new([(0.0, 0.0)].into_iter().chain(points).collect()).rising();
    Ok((base, Attention { decode, pairs }))
}

/// The products that lead into the compressed vectors and back.
fn absorbed(tables: &TableSet, part: &str, heads: u32) -> Result<Curve, Missing> {
    let columns = ["num_heads", "num_tokens"];
    let what = format!("{part} with {heads} heads");
    tables.first(("mla_bmm", "mla_bmm"), tables.engine, (&columns, &["op_name", "bmm_dtype"]), &what, |table| {
        let number = [("num_heads", i64::from(heads))];
        let words = [("op_name", part), ("bmm_dtype", "bfloat16")];
        let rows = table.rows_where(&number, &words);
        let curve = Curve::new(rows.map(|row| (table.number("num_tokens", row) as f64, table.seconds(row))).collect());
        (!curve.is_empty()).then(|| curve.cleaned().0)
    })
}

/// Latent attention alone.
fn kernels(tables: &TableSet, heads: u32, kv: &str) -> Result<Attention, Missing> {
    let columns = ["num_heads", "batch_size", "isl", "step"];
    let what = format!("latent attention with {heads} heads and {kv} KV");
    let number = [("num_heads", i64::from(heads))];
    let wanted = [("kv_cache_dtype", kv)];
    let words = ["kv_cache_dtype"];
    let decode = tables.first(("mla", "generation_mla"), tables.engine, (&columns, &words), &what, |table| {
        let of = |name: &str, row: usize| table.number(name, row) as f64;
        let rows = table.rows_where(&number, &wanted);
        let grid =
            Grid::new(rows.map(|row| (of("batch_size", row), of("step", row) + 1.0, table.seconds(row))).collect());
        (!grid.is_empty()).then_some(grid)
    })?;
    let prompts = tables.first(("mla", "context_mla"), tables.engine, (&columns, &words), &what, |table| {
        let wanted_rows = [number[0], ("batch_size", 1)];
        let rows = table.rows_where(&wanted_rows, &wanted);
        let curve = Curve::new(rows.map(|row| (table.number("isl", row) as f64, table.seconds(row))).collect());
        (!curve.is_empty()).then(|| curve.cleaned().0)
    })?;
    let least = prompts.at(128.0);
    let points = prompts.sizes().map(|n| (pairs_of(n, None), (prompts.at(n) - least).max(0.0)));
    Ok(Attention { decode, pairs: Curve::new([(0.0, 0.0)].into_iter().chain(points).collect()).rising() })
}
