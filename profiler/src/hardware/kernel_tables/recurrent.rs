//! Gated delta nets: the convolution and the recurrence of a layer.

use super::attention::Attention;
use super::curve::{Curve, Grid};
use super::table_set::{Missing, TableSet};
use super::terms::{Sum, kind};
use crate::hardware::models::ModelShape;
use std::collections::{BTreeMap, BTreeSet};

/// Width of a head's key and of its value in the measured layers.
const DIM: f64 = 128.0;

/// Bytes of a state for each head of values, with four such heads for a head of keys: 128 x 128 numbers of 32 bits, and
/// the last three inputs of the convolution in 16 bits. With fewer heads of values for a head of keys, up to 2 % more.
const HEAD_BYTES: f64 = DIM * DIM * 4.0 + 1.5 * DIM * 3.0 * 2.0;

/// Adds `count` recurrent layers with their projections. The shape says the size of a state; of it, the number of heads
/// follows, because all measured heads are alike.
pub(super) fn add(
    sum: &mut Sum,
    shape: &ModelShape,
    count: f64,
    parameters: f64,
    state_bytes: f64,
) -> Result<(), Missing> {
    let hidden = f64::from(shape.hidden);
    let heads = (state_bytes / HEAD_BYTES).round() as u32;
    let here = sum.part("heads of a recurrent layer", heads)?;
    let kind = kind(shape.bits.weights, shape.bits.activations, sum.setup.blocks)?;
    // The projection back has the heads' values as inputs; the one that leads in has the other weights.
    let values = f64::from(here) * DIM;
    let inputs = (parameters / hidden / f64::from(sum.setup.tensor_parallel) - values).max(1.0).round();
    sum.product(count, kind, inputs, hidden)?;
    sum.product(count, kind, hidden, values)?;
    let (decode, prompts) = read(sum.tables, shape.hidden, here)?;
    // Tokens beyond one of each request run in the kernels of prompts.
    let least = prompts.sizes().next().map_or(0.0, |n| prompts.at(n));
    sum.term(count, 1.0, Curve::sampled(prompts.sizes(), |n| (prompts.at(n) - least - decode.at(n)).max(0.0)).rising());
    let grid = Grid::new(decode.sizes().map(|b| (b, 1.0, decode.at(b))).collect());
    // A state has no context: its time is the same at every context.
    let grid = Grid::new(grid.requests().flat_map(|b| [1.0, 1e9].map(|c| (b, c, decode.at(b)))).collect());
    sum.attend(count, Attention { decode: grid, pairs: Curve::default() }, None);
    Ok(())
}

/// Seconds by requests that have one new token each, and by the tokens of one prompt. A layer's kernels are added.
fn read(tables: &TableSet, width: u32, heads: u32) -> Result<(Curve, Curve), Missing> {
    let columns = ["batch_size", "seq_len", "d_model", "num_v_heads"];
    let words = ["phase", "kernel_source"];
    let what = format!("gated delta net, {width} wide, with {heads} heads");
    tables.first(("linear_attention", "gdn"), tables.engine, (&columns, &words), &what, |table| {
        let shape = [("d_model", i64::from(width)), ("num_v_heads", i64::from(heads))];
        let summed = |phase: &str, size: &str, one: Option<&str>| {
            let mut kernels: BTreeMap<i64, BTreeMap<String, f64>> = BTreeMap::new();
            for row in table.rows_where(&shape, &[("phase", phase)]) {
                if one.is_none_or(|one| table.number(one, row) == 1) {
                    let kernel = table.word("kernel_source", row).to_owned();
                    let best =
                        kernels.entry(table.number(size, row)).or_default().entry(kernel).or_insert(f64::INFINITY);
                    *best = best.min(table.seconds(row));
                }
            }
            // Sizes at which a kernel was not measured are left out.
            let all: BTreeSet<&String> = kernels.values().flat_map(|k| k.keys()).collect();
            let complete = kernels.iter().filter(|(_, k)| k.len() == all.len());
            Curve::new(complete.map(|(size, k)| (*size as f64, k.values().sum())).collect()).cleaned().0
        };
        let decode = summed("generation", "batch_size", None);
        let prompts = summed("context", "seq_len", Some("batch_size"));
        (!decode.is_empty() && !prompts.is_empty()).then_some((decode, prompts))
    })
}
