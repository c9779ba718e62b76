//! The sum of a pass: the kernels of a model's shape, and their measured times.

use super::attention::{self, Heads};
use super::curve::{Curve, Grid};
use super::experts::{self, Block};
use super::latent;
use super::pass::{KernelPass, Shared};
use super::products::{BF16, Products};
use super::recurrent;
use super::table_set::{Missing, TableSet};
use super::terms::{self, Setup, Sum, Term, kind};
use crate::hardware::floors::{self, SMALL_KERNELS};
use crate::hardware::models::{Attention, FeedForward, LayerGroup, ModelShape};
use std::collections::BTreeSet;

/// Small kernels of a layer of latent attention: two norms with the sums of the residual, and an activation function or
/// the choice of experts. The measured modules have the others.
const SMALL_KERNELS_LATENT: f64 = 3.0;

pub(super) fn sum(tables: &TableSet, shape: &ModelShape, setup: Setup) -> Result<KernelPass, Missing> {
    let mut sum = Sum {
        tables,
        products: Products::new(tables),
        setup,
        shape,
        terms: Vec::new(),
        shared: Vec::new(),
        head: Vec::new(),
        decodes: Vec::new(),
        pairs: Vec::new(),
        fixed_s: floors::PASS_S,
        token_s: 0.0,
    };
    for group in &shape.layers {
        sum.attention(group)?;
        sum.feed_forward(group)?;
        let kernels = if let Attention::Latent { .. } = group.attention { SMALL_KERNELS_LATENT } else { SMALL_KERNELS };
        // A norm reads the residual and what is added to it, and writes both; a layer has two.
        let bytes = 2.0 * 8.0 * f64::from(shape.hidden);
        sum.small(f64::from(group.count) * kernels, f64::from(group.count) * bytes);
    }
    let hidden = f64::from(shape.hidden);
    if shape.joining_parameters > 0.0 {
        let kind = kind(shape.bits.weights, shape.bits.activations, setup.blocks)?;
        let split = shape.joining_parameters / hidden / f64::from(setup.tensor_parallel);
        sum.product(1.0, kind, hidden, split)?;
    }
    let vocab = (f64::from(shape.vocab) / f64::from(setup.tensor_parallel)).ceil();
    if shape.bits.head < 15.0 {
        tables.note(format!("the output head of {} bits: as of 16 bits", shape.bits.head));
    }
    let curve = sum.products.curve(BF16, vocab, hidden)?;
    sum.head.push(Term { count: 1.0, size: 1.0, curve });
    sum.reduce(1.0)?;
    Ok(sum.built())
}

impl Sum<'_> {
    fn attention(&mut self, group: &LayerGroup) -> Result<(), Missing> {
        let (count, hidden) = (f64::from(group.count), f64::from(self.shape.hidden));
        let bits = self.shape.bits;
        match group.attention {
            Attention::Grouped { selection: Some(_), .. } => Err(refused("that choose the tokens they attend to")),
            Attention::Grouped { value_dim: Some(value), head_dim, .. } if value != head_dim => {
                Err(refused("whose values are not as wide as their keys"))
            }
            Attention::Grouped { heads, kv_heads, head_dim, input, window, gated, values_from_keys, .. } => {
                let kind = kind(bits.weights, bits.activations, self.setup.blocks)?;
                let heads = self.part("query heads", heads)?;
                let kv_heads = (kv_heads / self.setup.tensor_parallel).max(1);
                let dim = f64::from(head_dim);
                let queries = f64::from(heads) * if gated { 2.0 } else { 1.0 };
                let keys = f64::from(kv_heads) * if values_from_keys { 1.0 } else { 2.0 };
                self.product(count, kind, (queries + keys) * dim, input.map_or(hidden, f64::from))?;
                self.product(count, kind, hidden, f64::from(heads) * dim)?;
                let heads = Heads { heads, kv_heads, dim: head_dim, window, fp8: bits.kv <= 8.0 };
                let times = attention::read(self.tables, heads)?;
                self.attend(count, times, window);
                self.reduce(count)
            }
            Attention::Latent { .. } => {
                latent::add(self, self.shape, group)?;
                self.reduce(count)
            }
            Attention::Recurrent { parameters, state_bytes } => {
                recurrent::add(self, self.shape, count, parameters, state_bytes)?;
                self.reduce(count)
            }
            Attention::Compressed { .. } => Err(refused("that compress older tokens")),
            Attention::None => Ok(()),
        }
    }

    fn feed_forward(&mut self, group: &LayerGroup) -> Result<(), Missing> {
        let (count, hidden) = (f64::from(group.count), f64::from(self.shape.hidden));
        let bits = self.shape.bits;
        let of_dense = (bits.dense.unwrap_or(bits.weights), bits.dense_activations.unwrap_or(bits.activations));
        match group.feed_forward {
            FeedForward::Dense { intermediate, gated } => {
                self.dense(count, intermediate, gated, of_dense)?;
                self.reduce(count)
            }
            FeedForward::Experts { total, active, intermediate, shared_intermediate, latent, gated } => {
                if shared_intermediate > 0 {
                    self.dense(count, shared_intermediate, gated, of_dense)?;
                }
                if let Some(width) = latent {
                    let kind = kind(of_dense.0, of_dense.1, self.setup.blocks)?;
                    self.product(count, kind, f64::from(width), hidden)?;
                    self.product(count, kind, hidden, f64::from(width))?;
                }
                // The router chooses in 16 bits on each GPU.
                self.product(count, BF16, f64::from(total), hidden)?;
                let n = self.setup.tensor_parallel * self.setup.data_parallel;
                let (split, spread) = if self.setup.expert_parallel { (1, n) } else { (n, 1) };
                let width = latent.unwrap_or(self.shape.hidden);
                let kinds = experts::kinds(self.tables, bits.experts, bits.expert_activations, self.setup.blocks);
                let block = Block { width, inner: intermediate, total, active, split, spread };
                let mut curve = experts::curve(self.tables, &kinds, block)?;
                if self.setup.marlin {
                    curve = experts::by_marlin(self.tables, &kinds, block, &curve)?;
                }
                match self.setup.data_parallel {
                    1 => {
                        self.term(count, 1.0, curve);
                        self.reduce(count)
                    }
                    _ => self.share(count, curve, (n, f64::from(width))),
                }
            }
            FeedForward::None => Ok(()),
        }
    }

    /// Adds `count` blocks of experts that `gpus` GPUs of all data-parallel ranks share. The tokens of all ranks are
    /// gathered, and outputs are summed and scattered back. Both together move what an all-reduce moves.
    fn share(&mut self, count: f64, experts: Curve, (gpus, width): (u32, f64)) -> Result<(), Missing> {
        self.tables.note("tokens are gathered and outputs scattered between ranks in the time of an all-reduce".into());
        let exchange = terms::curve(self.tables, gpus)?;
        self.shared.push(Term { count, size: 1.0, curve: experts });
        self.shared.push(Term { count, size: width, curve: exchange });
        Ok(())
    }

    /// Adds `count` dense blocks whose inner width is `inner` on all GPUs together.
    fn dense(&mut self, count: f64, inner: u32, gated: bool, (bits, activations): (f64, f64)) -> Result<(), Missing> {
        let kind = kind(bits, activations, self.setup.blocks)?;
        let hidden = f64::from(self.shape.hidden);
        let inner = f64::from(inner) / f64::from(self.setup.tensor_parallel);
        let up = if gated { 2.0 } else { 1.0 };
        self.product(count, kind, up * inner, hidden)?;
        self.product(count, kind, hidden, inner)?;
        self.small(0.0, count * (up + 1.0) * inner * 2.0);
        Ok(())
    }

    /// Computes the sums of all kernels at the measured sizes.
    fn built(self) -> KernelPass {
        let at = |terms: &[Term], tokens: f64| terms.iter().map(|t| t.count * t.curve.at(t.size * tokens)).sum::<f64>();
        let sizes = |terms: &[Term]| -> BTreeSet<u64> {
            let all = terms.iter().flat_map(|t| t.curve.sizes().map(|x| (x / t.size).ceil() as u64));
            all.filter(|m| *m > 0).collect()
        };
        let list = |sizes: BTreeSet<u64>| sizes.into_iter().map(|m| m as f64);
        let requests: BTreeSet<u64> =
            self.decodes.iter().flat_map(|(_, g)| g.requests().map(|b| b.ceil() as u64)).collect();
        let contexts: BTreeSet<u64> = self.decodes.iter().flat_map(|(_, g)| g.contexts()).map(|c| c as u64).collect();
        let grid = requests.iter().flat_map(|&b| contexts.iter().map(move |&c| (b as f64, c as f64)));
        let decodes = &self.decodes;
        let decode = grid.map(|(b, c)| (b, c, decodes.iter().map(|(count, g)| count * g.at(b, c)).sum()));
        let windows: BTreeSet<Option<u32>> = self.pairs.iter().map(|(.., window)| *window).collect();
        let pairs = windows.into_iter().map(|window| {
            let alike: Vec<&(f64, Curve, Option<u32>)> = self.pairs.iter().filter(|p| p.2 == window).collect();
            let sizes: BTreeSet<u64> = alike.iter().flat_map(|p| p.1.sizes().map(|x| x as u64)).collect();
            let curve =
                Curve::sampled(list(sizes), |x| alike.iter().map(|(count, curve, _)| count * curve.at(x)).sum());
            (window.map(f64::from), curve)
        });
        KernelPass::new(
            Curve::sampled(list(sizes(&self.terms)), |m| at(&self.terms, m)),
            Curve::sampled(list(sizes(&self.head)), |m| at(&self.head, m)),
            Grid::new(decode.collect()),
            pairs.collect(),
            (self.fixed_s, self.token_s),
            Shared {
                ranks: self.setup.data_parallel,
                experts: Curve::sampled(list(sizes(&self.shared)), |m| at(&self.shared, m)),
            },
        )
    }
}

fn refused(which: &str) -> Missing {
    format!("there are no times of layers {which}")
}
