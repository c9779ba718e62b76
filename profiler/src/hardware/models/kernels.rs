//! Counts the kernels of a pass from a model's shape: matrix products, blocks of experts, attention, recurrences and
//! small kernels. A measured floor and a measured share of the datasheet turn each of them into time.

use super::layers::{Attention, FeedForward, LayerGroup, Selection};
use super::shape::ModelShape;
use serde::Serialize;

/// The kernels of a pass. Products that are alike are one entry, because their times add up to the time of one product
/// of their total size and the floors of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kernels {
    /// Matrix products with weights, except the products of routed experts. The output head is one of them.
    pub products: Vec<Products>,
    /// Blocks of routed experts, by their numbers of experts.
    pub experts: Vec<ExpertBlocks>,
    /// Number of attention kernels in a pass. An indexer counts as one more.
    pub attentions: f64,
    /// Bytes of queries, new keys and values, and outputs of attention for a token, over all layers.
    pub attention_token_bytes: f64,
    /// Number of recurrent layers.
    pub recurrences: f64,
    /// Bytes that norms and residual sums read and write for a token, over all layers. Each GPU of a tensor-parallel
    /// group moves all of them.
    pub norm_bytes: f64,
    /// Bytes that activation functions read and write for a token, over all layers. Tensor parallelism splits them.
    pub activation_bytes: f64,
}

/// Matrix products that have weights and activations of the same bits, and that tensor parallelism splits alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Products {
    /// Number of products in a pass.
    pub count: f64,
    /// Number of weights of all these products together.
    pub parameters: f64,
    /// Bits of a weight.
    pub bits: f64,
    /// Bits of an activation.
    pub activations: f64,
    /// Does tensor parallelism split the weights over the GPUs? If not, each GPU computes the whole products.
    pub split: bool,
}

/// The routed experts of layers with equal numbers of experts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ExpertBlocks {
    pub layers: f64,
    /// Number of experts in a layer.
    pub total: f64,
    /// Number of experts in a layer that a token uses.
    pub active: f64,
    /// Number of weights of one expert in every layer, summed over the layers.
    pub parameters: f64,
    /// Bits of a weight.
    pub bits: f64,
    /// Bits of an activation.
    pub activations: f64,
}

/// Bytes of an activation between kernels: 16 bits.
const ACTIVATION: f64 = 2.0;

impl ModelShape {
    pub(super) fn kernels(&self) -> Kernels {
        let mut kernels = Kernels::default();
        let (bits, activations) = (self.bits.weights, self.bits.activations);
        if self.joining_parameters > 0.0 {
            kernels.add(1.0, self.joining_parameters, (bits, activations), true);
        }
        for group in &self.layers {
            let count = f64::from(group.count);
            for (parameters, split) in products_of_attention(&group.attention, self.hidden) {
                kernels.add(count, parameters, (bits, activations), split);
            }
            kernels.add_attention(group);
            kernels.add_feed_forward(self, group);
            // A norm reads the residual and what is added to it, and writes both; a layer has two.
            kernels.norm_bytes += count * 8.0 * f64::from(self.hidden) * ACTIVATION;
        }
        kernels.add(1.0, self.head_parameters(), (self.bits.head, 16.0), true);
        kernels
    }
}

impl Kernels {
    /// Adds `count` products of `parameters` weights each.
    fn add(&mut self, count: f64, parameters: f64, (bits, activations): (f64, f64), split: bool) {
        if parameters <= 0.0 {
            return;
        }
        let alike = |p: &&mut Products| (p.bits, p.activations, p.split) == (bits, activations, split);
        match self.products.iter_mut().find(alike) {
            Some(same) => {
                same.count += count;
                same.parameters += count * parameters;
            }
            None => self.products.push(Products { count, parameters: count * parameters, bits, activations, split }),
        }
    }

    fn add_attention(&mut self, group: &LayerGroup) {
        let count = f64::from(group.count);
        let numbers = match group.attention {
            Attention::Grouped { heads, kv_heads, head_dim, value_dim, .. } => {
                f64::from(heads + kv_heads) * f64::from(head_dim + value_dim.unwrap_or(head_dim))
            }
            Attention::Latent { heads, kv_rank, rope_dim, nope_dim, value_dim, .. } => {
                f64::from(heads) * f64::from(nope_dim + rope_dim + value_dim) + f64::from(kv_rank + rope_dim)
            }
            Attention::Compressed { heads, head_dim, .. } => f64::from(2 * heads + 1) * f64::from(head_dim),
            Attention::Recurrent { .. } => {
                self.recurrences += count;
                return;
            }
            Attention::None => return,
        };
        let indexers = if group.attention.selection().is_some_and(|s| !s.taken) { 1.0 } else { 0.0 };
        self.attentions += count * (1.0 + indexers);
        self.attention_token_bytes += count * numbers * ACTIVATION;
    }

    fn add_feed_forward(&mut self, shape: &ModelShape, group: &LayerGroup) {
        let (count, hidden) = (f64::from(group.count), f64::from(shape.hidden));
        let dense = (
            shape.bits.dense.unwrap_or(shape.bits.weights),
            shape.bits.dense_activations.unwrap_or(shape.bits.activations),
        );
        let mut block = |inner: u32, gated: bool| {
            let (inner, matrices) = (f64::from(inner), if gated { 2.0 } else { 1.0 });
            self.add(count, matrices * hidden * inner, dense, true);
            self.add(count, inner * hidden, dense, true);
            self.activation_bytes += count * (matrices + 1.0) * inner * ACTIVATION;
        };
        match group.feed_forward {
            FeedForward::Dense { intermediate, gated } => block(intermediate, gated),
            FeedForward::Experts { total, active, shared_intermediate, latent, gated, .. } => {
                block(shared_intermediate, gated);
                if let Some(width) = latent {
                    self.add(count, hidden * f64::from(width), dense, false);
                    self.add(count, hidden * f64::from(width), dense, false);
                }
                // The router chooses in 16 bits on each GPU.
                self.add(count, hidden * f64::from(total), (16.0, 16.0), false);
                let (total, active) = (f64::from(total), f64::from(active));
                let parameters = count * group.feed_forward.expert_parameters(shape.hidden);
                match self.experts.iter_mut().find(|e| (e.total, e.active) == (total, active)) {
                    Some(same) => {
                        same.layers += count;
                        same.parameters += parameters;
                    }
                    None => self.experts.push(ExpertBlocks {
                        layers: count,
                        total,
                        active,
                        parameters,
                        bits: shape.bits.experts,
                        activations: shape.bits.expert_activations,
                    }),
                }
            }
            FeedForward::None => {}
        }
    }
}

/// The matrix products of a layer of attention or of a recurrent layer, as engines fuse them: (number of weights, does
/// tensor parallelism split it?). Their sum is [`Attention::parameters`].
fn products_of_attention(attention: &Attention, hidden: u32) -> Vec<(f64, bool)> {
    let wide = f64::from(hidden);
    let indexer = |s: Selection, from: f64| {
        let (heads, dim) = (f64::from(s.heads), f64::from(s.head_dim));
        [(from * heads * dim, false), (wide * (dim + heads), false)]
    };
    match *attention {
        Attention::Grouped { heads, head_dim, value_dim, selection, input, .. } => {
            let output = f64::from(heads) * f64::from(value_dim.unwrap_or(head_dim)) * wide;
            let from = input.map_or(wide, f64::from);
            let chooses = selection.map_or(0.0, |s| from * f64::from(s.head_dim) * (f64::from(s.heads) + 1.0));
            let inputs = attention.parameters(hidden) - output - chooses;
            vec![(inputs, true), (output, true), (chooses, false)]
        }
        Attention::Latent { heads, query_rank, kv_rank, rope_dim, nope_dim, value_dim, gated, selection } => {
            let (heads, rank) = (f64::from(heads), f64::from(kv_rank));
            let (rope, nope, value) = (f64::from(rope_dim), f64::from(nope_dim), f64::from(value_dim));
            let queries = heads * (nope + rope);
            let compressed = wide * (rank + rope);
            let mut all = match query_rank.map(f64::from) {
                Some(width) => vec![(wide * width + compressed, false), (width * queries, true)],
                None => vec![(compressed, false), (wide * queries, true)],
            };
            // The keys' and the values' part of one matrix stand before and behind attention.
            all.extend([(rank * heads * nope, true), (rank * heads * value, true)]);
            all.push((if gated { 2.0 } else { 1.0 } * heads * value * wide, true));
            if let Some(s) = selection.filter(|s| !s.taken) {
                all.extend(indexer(s, query_rank.map_or(wide, f64::from)));
            }
            all
        }
        Attention::Compressed { heads, head_dim, query_rank, output_groups, output_rank, .. } => {
            let (width, rank) = (f64::from(heads) * f64::from(head_dim), f64::from(query_rank));
            let output_rank = f64::from(output_rank);
            let parts = [
                (wide * (rank + f64::from(head_dim)), false),
                (rank * width, true),
                (width * output_rank, true),
                (f64::from(output_groups) * output_rank * wide, true),
            ];
            let rest = attention.parameters(hidden) - parts.iter().map(|p| p.0).sum::<f64>();
            parts.into_iter().chain([(rest, false)]).collect()
        }
        // One product leads into the recurrence, and one back. Of gated delta nets and Mamba-2, the first has about
        // three quarters of the weights.
        Attention::Recurrent { parameters, .. } => vec![(0.75 * parameters, true), (0.25 * parameters, true)],
        Attention::None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::hardware::models::{Attention, catalog};

    /// A second way to count: the products' weights are the model's weights, without embedding and with routers.
    #[test]
    fn products_and_experts_have_all_weights_of_the_model() {
        for entry in catalog() {
            let (shape, kernels) = (&entry.shape, entry.shape.work().kernels);
            let products: f64 = kernels.products.iter().map(|p| p.parameters).sum();
            let experts: f64 = kernels.experts.iter().map(|e| e.total * e.parameters).sum();
            let routers: f64 = shape.layers.iter().map(|g| f64::from(g.count * g.feed_forward.experts().0)).sum();
            let counted = products + experts - routers * f64::from(shape.hidden);
            let whole = shape.parameters() - if shape.tied { 0.0 } else { shape.head_parameters() };
            assert!((counted / whole - 1.0).abs() < 1e-9, "{}: {counted} of {whole}", entry.name);
        }
    }

    #[test]
    fn a_layer_of_llama_has_four_products_and_one_attention() {
        let shape = &crate::hardware::models::entry("llama-3.1-8b").unwrap().shape;
        let kernels = shape.work().kernels;
        assert_eq!(kernels.products.len(), 1);
        assert_eq!((kernels.products[0].count, kernels.attentions), (4.0 * 32.0 + 1.0, 32.0));
        assert!(matches!(shape.layers[0].attention, Attention::Grouped { .. }));
    }
}
