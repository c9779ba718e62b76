//! The built roofline with floors: the seconds of each kind of kernel of a pass.

use super::attention_times::AttentionTimes;
use super::experts_read::ExpertsRead;
use crate::hardware::floors::Join;
use foretoken_sim::PassShape;

/// The seconds of each kind of kernel of a pass. What does not depend on the pass is computed once.
#[derive(Clone, Debug)]
pub(super) struct KernelTimes {
    /// Fixed seconds of a pass: the host's, and the floors of all kernels.
    pub(super) fixed_s: f64,
    pub(super) products: Vec<ProductTimes>,
    /// Routed experts, in groups of layers with equal numbers of experts.
    pub(super) experts: Vec<ExpertTimes>,
    /// Attention over KV.
    pub(super) attention: Vec<AttentionTimes>,
    /// Seconds for each request: of attention, and to read and write recurrent states.
    pub(super) request_s: f64,
    /// Seconds for each token: of small kernels, all-reduces, and the queries and outputs of attention.
    pub(super) token_s: f64,
    /// Number of data-parallel ranks.
    pub(super) ranks: f64,
    /// Seconds for each token of any rank: of the exchange between data-parallel ranks, and of what experts move.
    pub(super) exchanged_s: f64,
    pub(super) expert_reuse: f64,
    pub(super) experts_read: ExpertsRead,
    /// [`of_tokens`](KernelTimes::of_tokens) by number of tokens, for passes of fewer than [`TABULATED`] tokens, if no
    /// rank has another number of tokens.
    pub(super) by_tokens: Vec<f64>,
}

/// The times of passes of fewer tokens are tabulated: a simulation asks for them millions of times.
const TABULATED: usize = 1024;

/// All products of one precision. They have equal ratios of moving and computing, so that their times add up to the
/// time of one product.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProductTimes {
    /// Seconds to read the weights.
    pub(super) moved_s: f64,
    /// Seconds to compute one token.
    pub(super) computed_s: f64,
    pub(super) join: Join,
}

/// The routed experts of layers with equal numbers of experts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpertTimes {
    pub(super) total: f64,
    /// Probability that a token does not use a given expert of a layer.
    pub(super) miss: f64,
    /// Seconds to read the weights of one expert in every layer of the group.
    pub(super) moved_s: f64,
    /// Seconds to compute one token.
    pub(super) computed_s: f64,
    pub(super) join: Join,
}

impl KernelTimes {
    /// Adds products that read weights for `moved_s` seconds and compute a token in `computed_s`.
    pub(super) fn add_products(&mut self, join: Join, moved_s: f64, computed_s: f64) {
        self.products.push(ProductTimes { moved_s, computed_s, join });
    }

    /// Computes the times that a pass looks up. Call this when all other times are known.
    pub(super) fn tabulate(mut self) -> KernelTimes {
        self.by_tokens = (0..TABULATED).map(|n| self.of_tokens(n as f64, n as f64 * self.ranks)).collect();
        self
    }

    /// Seconds of a pass. `all` is the number of tokens of all data-parallel ranks; `None`: each has as many.
    pub(super) fn pass_s(&self, shape: PassShape, all: Option<u64>) -> f64 {
        let (tokens, requests) = (shape.batched as f64, shape.requests as f64);
        let known = self.by_tokens.get(shape.batched as usize).filter(|_| all.is_none());
        let all = all.map_or(tokens * self.ranks, |all| all as f64);
        let of_tokens = known.copied().unwrap_or_else(|| self.of_tokens(tokens, all));
        let attention = self.attention.iter().map(|a| a.joined(shape)).sum::<f64>();
        of_tokens + attention + self.request_s * requests + self.token_s * tokens + self.exchanged_s * all
    }

    /// Fixed seconds, and seconds of products and experts, of a pass of `tokens` tokens. `all`: tokens of all ranks.
    fn of_tokens(&self, tokens: f64, all: f64) -> f64 {
        let products = self.products.iter().map(|p| p.join.seconds(p.moved_s, p.computed_s * tokens)).sum::<f64>();
        let choosers = all - (all - 1.0).max(0.0) * self.expert_reuse;
        let counted = self.experts_read.at(all);
        let experts = self.experts.iter().map(|e| {
            let read = counted.unwrap_or_else(|| e.total * (1.0 - e.miss.powf(choosers)));
            e.join.seconds(read * e.moved_s, e.computed_s * all)
        });
        self.fixed_s + products + experts.sum::<f64>()
    }
}
