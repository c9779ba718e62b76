//! Matrix products: times by the numbers of tokens, outputs and inputs.

use super::curve::Curve;
use super::table_set::{Missing, TableSet};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The precision of a product with weights, by the package's words.
pub(super) const BF16: &str = "bfloat16";
pub(super) const FP8: &str = "fp8";
pub(super) const FP8_BLOCK: &str = "fp8_block";
pub(super) const NVFP4: &str = "nvfp4";

/// A table that holds more than the kernel's time, and the engine whose table stands in for it.
const REPAIRS: [(&str, &str, &str, &str); 3] = [
    ("vllm", FP8_BLOCK, "sglang", "vLLM's has 58 to 176 us for any small product, the host's time"),
    (
        "trtllm",
        FP8,
        "sglang",
        "TensorRT-LLM's has 14 us for any small product where others take 6: a quantisation is inside",
    ),
    (
        "trtllm",
        NVFP4,
        "sglang",
        "TensorRT-LLM's has 14 to 21 us for small products where others take 7 to 11: a quantisation is inside",
    ),
];

/// The products of one precision.
struct OfKind {
    sizes: HashMap<(i64, i64), Curve>,
    /// The measured numbers of outputs and of inputs.
    outputs: Vec<i64>,
    inputs: Vec<i64>,
}

/// The products of one GPU and engine.
pub(super) struct Products<'a> {
    tables: &'a TableSet<'a>,
    kinds: RefCell<BTreeMap<&'static str, OfKind>>,
}

impl<'a> Products<'a> {
    pub(super) fn new(tables: &'a TableSet<'a>) -> Products<'a> {
        Products { tables, kinds: RefCell::default() }
    }

    /// Seconds of a product by its number of tokens: `outputs` from `inputs` numbers.
    pub(super) fn curve(&self, kind: &'static str, outputs: f64, inputs: f64) -> Result<Curve, Missing> {
        if !self.kinds.borrow().contains_key(kind) {
            let read = self.read(kind)?;
            self.kinds.borrow_mut().insert(kind, read);
        }
        let kinds = self.kinds.borrow();
        let OfKind { sizes, outputs: ns, inputs: ks } = &kinds[kind];
        let mut corners = Vec::new();
        for (n, u) in ends(ns, outputs) {
            for (k, v) in ends(ks, inputs) {
                let curve = sizes.get(&(n, k)).ok_or_else(|| {
                    format!("gemm has no {kind} product of {n} outputs and {k} inputs, for {outputs} x {inputs}")
                })?;
                corners.push((curve, u * v));
            }
        }
        for (what, size, known) in [("outputs", outputs, ns), ("inputs", inputs, ks)] {
            let (least, most) = (known[0] as f64, known[known.len() - 1] as f64);
            if size < least {
                self.tables.note(format!("{kind} products with {size} {what}: the time of {least} is held"));
            }
            if size > most {
                self.tables.note(format!("{kind} products with {size} {what}: in proportion to {most}"));
            }
        }
        let tokens: BTreeSet<u64> = corners.iter().flat_map(|(c, _)| c.sizes().map(|m| m as u64)).collect();
        Ok(Curve::sampled(tokens.into_iter().map(|m| m as f64), |m| {
            corners.iter().map(|(curve, weight)| weight * curve.at(m)).sum()
        }))
    }

    /// The curves of all sizes of a precision, with the sizes of outputs and of inputs.
    fn read(&self, kind: &'static str) -> Result<OfKind, Missing> {
        let own = self.tables.engine;
        let repair = REPAIRS.into_iter().find(|(engine, of, ..)| (*engine, *of) == (own, kind));
        let engine = repair.map_or(own, |(.., other, _)| other);
        let found = self.tables.with_word(("gemm", "gemm"), engine, &["m", "n", "k"], ("gemm_dtype", kind))?;
        if let Some((.., why)) = repair {
            self.tables.note(format!("{kind} products of {}, because {why}", found.from));
        }
        if kind == FP8 {
            let blocks = "a checkpoint with weight_block_size needs fp8_blocks = true";
            self.tables.note(format!("products in fp8, with a scale for each matrix: {blocks}"));
        }
        let table = &found.table;
        let mut points: HashMap<(i64, i64), Vec<(f64, f64)>> = HashMap::new();
        for row in table.rows_where(&[], &[("gemm_dtype", kind)]) {
            let key = (table.number("n", row), table.number("k", row));
            points.entry(key).or_default().push((table.number("m", row) as f64, table.seconds(row)));
        }
        if points.is_empty() {
            return Err(format!("gemm of {} on {} has no products in {kind}", found.from, self.tables.system));
        }
        let mut sorted = [BTreeSet::new(), BTreeSet::new()];
        points.keys().for_each(|&(n, k)| {
            sorted[0].insert(n);
            sorted[1].insert(k);
        });
        let mut lowered = 0;
        let sizes = points.into_iter().map(|(key, points)| {
            let (curve, count) = Curve::new(points).cleaned();
            lowered += count;
            (key, curve)
        });
        let sizes = sizes.collect();
        if lowered > 0 {
            let all = table.rows_where(&[], &[("gemm_dtype", kind)]).count();
            self.tables.note(format!(
                "{kind} products: {:.1} % of the times are lowered by more than a tenth, to that of more tokens",
                100.0 * lowered as f64 / all as f64
            ));
        }
        let [outputs, inputs] = sorted.map(|sizes| sizes.into_iter().collect());
        Ok(OfKind { sizes, outputs, inputs })
    }
}

/// The measured sizes next to `x`, with their weights in a straight line. Below the smallest size its time counts;
/// above the largest size the time is in proportion.
fn ends(sizes: &[i64], x: f64) -> Vec<(i64, f64)> {
    let right = sizes.partition_point(|size| (*size as f64) < x);
    match (right.checked_sub(1), sizes.get(right)) {
        (_, Some(&size)) if size as f64 == x => vec![(size, 1.0)],
        (None, Some(&size)) => vec![(size, 1.0)],
        (Some(left), None) => vec![(sizes[left], x / sizes[left] as f64)],
        (Some(left), Some(&above)) => {
            let (a, b) = (sizes[left] as f64, above as f64);
            vec![(sizes[left], (b - x) / (b - a)), (above, (x - a) / (b - a))]
        }
        (None, None) => Vec::new(),
    }
}
