//! The kernels of a pass, as they are collected layer by layer.

use super::attention;
use super::curve::{Curve, Grid};
use super::products::{BF16, FP8, FP8_BLOCK, NVFP4, Products};
use super::table_set::{Missing, TableSet};
use crate::hardware::floors::Floors;
use crate::hardware::gpus::Gpu;
use crate::hardware::models::ModelShape;

/// What decides the kernels of a pass beside the model's shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    pub(super) tensor_parallel: u32,
    pub(super) expert_parallel: bool,
    pub(super) data_parallel: u32,
    /// Whether fp8 weights have a scale for each block.
    pub(super) blocks: bool,
    /// Whether experts in 4 bits run by Marlin kernels.
    pub(super) marlin: bool,
    pub(super) gpu: &'a Gpu,
    pub(super) floors: &'a Floors,
}

/// A kernel that runs `count` times in a pass, over `size` of its units for each token.
pub(super) struct Term {
    pub(super) count: f64,
    pub(super) size: f64,
    pub(super) curve: Curve,
}

/// The kernels of a pass, as they are collected.
pub(super) struct Sum<'a> {
    pub(super) tables: &'a TableSet<'a>,
    pub(super) products: Products<'a>,
    pub(super) setup: Setup<'a>,
    pub(super) shape: &'a ModelShape,
    pub(super) terms: Vec<Term>,
    /// Kernels that run over the tokens of all data-parallel ranks. Empty for one rank.
    pub(super) shared: Vec<Term>,
    pub(super) head: Vec<Term>,
    /// (count, times) of one new token of each request, by requests and context.
    pub(super) decodes: Vec<(f64, Grid)>,
    /// (count, seconds of query-key pairs, window).
    pub(super) pairs: Vec<(f64, Curve, Option<u32>)>,
    pub(super) fixed_s: f64,
    pub(super) token_s: f64,
}

/// The package's word for the precision of a product.
pub(super) fn kind(bits: f64, activations: f64, blocks: bool) -> Result<&'static str, Missing> {
    match (bits, activations) {
        (_, a) if a <= 4.0 => Ok(NVFP4),
        (_, a) if a <= 8.0 => Ok(if blocks { FP8_BLOCK } else { FP8 }),
        (b, _) if b <= 8.5 => Err(format!("gemm has no products of weights of {b} bits that are multiplied in bf16")),
        _ => Ok(BF16),
    }
}

impl Sum<'_> {
    /// Adds `count` products of `outputs` from `inputs` numbers, over every token.
    pub(super) fn product(&mut self, count: f64, kind: &'static str, outputs: f64, inputs: f64) -> Result<(), Missing> {
        let curve = self.products.curve(kind, outputs, inputs)?;
        self.term(count, 1.0, curve);
        Ok(())
    }

    /// Adds a kernel that runs `count` times, over `size` of its units for each token.
    pub(super) fn term(&mut self, count: f64, size: f64, curve: Curve) {
        self.terms.push(Term { count, size, curve });
    }

    pub(super) fn attend(&mut self, count: f64, of: attention::Attention, window: Option<u32>) {
        self.decodes.push((count, of.decode));
        self.pairs.push((count, of.pairs, window));
    }

    /// Adds `count` small kernels that move `bytes` for each token.
    pub(super) fn small(&mut self, count: f64, bytes: f64) {
        let fit = &self.setup.floors.small;
        self.fixed_s += count * fit.floor_s;
        self.token_s += bytes / (self.setup.gpu.bandwidth_bytes_s * fit.bandwidth);
    }

    /// Adds `count` all-reduces of a token's hidden state.
    pub(super) fn reduce(&mut self, count: f64) -> Result<(), Missing> {
        if self.setup.tensor_parallel > 1 && count > 0.0 {
            let curve = curve(self.tables, self.setup.tensor_parallel)?;
            self.term(count, f64::from(self.shape.hidden), curve);
        }
        Ok(())
    }

    pub(super) fn part(&self, what: &str, of: u32) -> Result<u32, Missing> {
        let n = self.setup.tensor_parallel;
        match of.is_multiple_of(n) {
            true => Ok(of / n),
            false => Err(format!("{of} {what} cannot be split evenly over {n} GPUs")),
        }
    }
}

/// Seconds of an all-reduce over `gpus` GPUs by its number of values of 16 bits. Times in a CUDA graph are taken where
/// the table has both: engines run them so.
pub(super) fn curve(tables: &TableSet, gpus: u32) -> Result<Curve, Missing> {
    let what = format!("all-reduce over {gpus} GPUs");
    let columns = ["num_gpus", "message_size"];
    let graph =
        tables.first(("comm", "custom_allreduce"), tables.engine, (&columns, &["kernel_source"]), &what, |table| {
            let rows: Vec<usize> = table.rows_where(&[("num_gpus", i64::from(gpus))], &[]).collect();
            let graph: Vec<usize> =
                rows.iter().copied().filter(|&row| table.word("kernel_source", row).contains("graph")).collect();
            let taken = if graph.is_empty() { &rows } else { &graph };
            let points = taken.iter().map(|&row| (table.number("message_size", row) as f64, table.seconds(row)));
            let curve = Curve::new(points.collect());
            (!curve.is_empty()).then_some((curve, graph.len() < rows.len() && !graph.is_empty()))
        });
    let (curve, chosen) = graph?;
    if chosen {
        tables.note("all-reduces in a CUDA graph, not the eager ones".to_owned());
    }
    Ok(curve.cleaned().0)
}
