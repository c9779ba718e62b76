//! The roofline of a pass that only writes the keys and values of its tokens: the first pass of a block drafter.
//!
//! The weights of such a pass are read once; 2 FLOP for each weight and token. Each layer has a norm, a rotation and a
//! write to the cache, which are small kernels: the overhead of a layer. The pass samples nothing and is no graph of
//! its own (vLLM runs it before the graph of the drafts), so that the overhead of a pass is not in it.

use foretoken_sim::PassShape;

/// The times of a pass that only writes keys and values.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContextPass {
    /// Fixed seconds of the pass: the overheads of its layers.
    pub(super) fixed_s: f64,
    /// Seconds to read the weights of the joining matrix and of the projections to keys and values.
    pub(super) bytes_s: f64,
    /// Seconds to compute one token.
    pub(super) token_flops_s: f64,
}

impl ContextPass {
    /// Time of a pass over the tokens of `shape`, seconds. A pass without tokens takes no time.
    pub(super) fn pass_s(&self, shape: PassShape) -> f64 {
        match shape.batched {
            0 => 0.0,
            tokens => self.fixed_s + self.bytes_s.max(self.token_flops_s * tokens as f64),
        }
    }
}
