//! The built roofline: computes the time of a pass from its tokens, context and query-key pairs.

use super::attention_times::AttentionTimes;
use super::experts_read::ExpertsRead;
use super::kernel_times::KernelTimes;
use crate::hardware::models::Blocks;
use foretoken_sim::{LatencyModel, PassShape, Time};

/// The latency model of a roofline, ready to compute the time of a pass.
#[derive(Clone, Debug)]
pub struct Roofline {
    /// A pass of the whole model.
    pub(super) form: Form,
    /// A pass that only writes the keys and values of its tokens.
    pub(super) context: ContextPass,
    pub(super) time_factor: f64,
}

#[derive(Clone, Debug)]
pub(super) enum Form {
    /// From measured floors and shares of each kind of kernel.
    Kernels(KernelTimes),
    /// From shares that all kernels have in common.
    Common(CommonTimes),
}

/// The seconds of each kind of work in a pass, at shares of the datasheet that all kernels have in common.
#[derive(Clone, Debug)]
pub(super) struct CommonTimes {
    /// Fixed seconds of a pass: the overheads of the pass and its layers, and the latency of all-reduces.
    pub(super) fixed_s: f64,
    /// Seconds to read the weights that every pass reads, except feed-forward blocks and the output head.
    pub(super) always_bytes_s: f64,
    /// Seconds to read the weights of feed-forward blocks, in groups of layers with equal numbers of experts.
    pub(super) blocks: Vec<BlockTimes>,
    /// Seconds to compute one token, except attention over KV and the output head.
    pub(super) token_flops_s: f64,
    /// Seconds to read the weights of the output head.
    pub(super) head_bytes_s: f64,
    /// Seconds to compute the output head for one token.
    pub(super) head_flops_s: f64,
    /// Seconds of attention over KV. Each entry stands for the layers that have the same number of key-value heads and
    /// the same limit on the tokens to which a token attends.
    pub(super) attention: Vec<AttentionTimes>,
    /// Seconds to read and write the recurrent states of one request.
    pub(super) state_bytes_s: f64,
    /// Seconds to move the activations of one token between the GPUs of a tensor-parallel group.
    pub(super) link_token_s: f64,
    /// Share of a token's experts, in [0, 1], that earlier tokens of the pass have already read. The share comes on
    /// top of the overlap that tokens have by chance if they choose their experts independently.
    pub(super) expert_reuse: f64,
    /// Measured number of distinct experts that a pass reads, by its number of tokens. Empty: the number is the
    /// expected number for tokens that choose their experts independently, reduced by `expert_reuse`.
    pub(super) experts_read: ExpertsRead,
}

/// The times of the feed-forward blocks of layers with equal numbers of experts. A dense block counts as one expert.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockTimes {
    /// Seconds to read the weights of one expert in every layer of the group (one expert for each layer).
    pub(super) bytes_s: f64,
    total: f64,
    /// Probability that a token does not use a given expert of a layer.
    miss: f64,
}

impl BlockTimes {
    pub(super) fn new(blocks: &Blocks, bandwidth: f64) -> BlockTimes {
        let miss = 1.0 - blocks.active / blocks.total;
        BlockTimes { bytes_s: blocks.bytes / bandwidth, total: blocks.total, miss }
    }

    /// Seconds to read the distinct experts that `tokens` tokens choose. `counted` is the measured number of distinct
    /// experts. If `counted` is `None`, the number is the expected number for tokens that choose their experts
    /// independently. A dense block is read once, whatever `counted` is.
    fn seconds(&self, tokens: f64, counted: Option<f64>) -> f64 {
        let read = match counted {
            _ if self.total <= 1.0 => 1.0,
            Some(experts) => experts,
            None => self.total * (1.0 - self.miss.powf(tokens)),
        };
        read * self.bytes_s
    }
}

impl Roofline {
    /// Time of a pass, seconds. Each data-parallel rank has a pass of this shape.
    pub fn pass_s(&self, shape: PassShape) -> f64 {
        self.seconds(shape, None)
    }

    /// Time of a pass, seconds. `all` is the number of tokens of all data-parallel ranks; `None`: each has as many.
    fn seconds(&self, shape: PassShape, all: Option<u64>) -> f64 {
        let seconds = match &self.form {
            Form::Kernels(times) => times.pass_s(shape, all),
            Form::Common(times) => times.pass_s(shape),
        };
        seconds * self.time_factor
    }
}

impl CommonTimes {
    fn pass_s(&self, shape: PassShape) -> f64 {
        let tokens = shape.batched as f64;
        // With reuse, the tokens of a pass read fewer distinct experts than with independent choices. `choosers` is the
        // number of tokens with independent choices that would read equally many experts.
        let choosers = tokens - (tokens - 1.0).max(0.0) * self.expert_reuse;
        let counted = self.experts_read.at(tokens);
        let read = self.blocks.iter().fold(self.always_bytes_s, |s, blocks| s + blocks.seconds(choosers, counted));
        let weights = read.max(self.token_flops_s * tokens);
        let attention = self.attention.iter().fold(0.0, |s, layers| s + layers.seconds(shape));
        let head = self.head_bytes_s.max(self.head_flops_s * tokens);
        let states = self.state_bytes_s * shape.requests as f64;
        self.fixed_s + weights + attention + head + self.link_token_s * tokens + states
    }
}

impl LatencyModel for Roofline {
    fn pass(&self, shape: PassShape) -> Time {
        Time::from_s(self.pass_s(shape))
    }

    fn pass_beside(&self, shape: PassShape, all: u64) -> Time {
        Time::from_s(self.seconds(shape, Some(all)))
    }

    fn least(&self) -> Time {
        // No term falls when a pass has more tokens. Floating-point sums of more terms may be rounded differently.
        Time::from_s(self.pass_s(PassShape { requests: 0, batched: 1, context: 0, pairs: 0 }) * (1.0 - 1e-9))
    }

    fn context_pass(&self, shape: PassShape) -> Time {
        Time::from_s(self.context.pass_s(shape) * self.time_factor)
    }
}

/// The times of a pass that only writes the keys and values of its tokens: the first pass of a block drafter.
///
/// The weights of such a pass are read once; 2 FLOP for each weight and token. Each layer has a norm, a rotation and a
/// write to the cache, which are small kernels: the overhead of a layer. The pass samples nothing and is no graph of
/// its own (vLLM runs it before the graph of the drafts), so that the overhead of a pass is not in it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers were counted in GLM-4.7-Flash's router (mlx-lm PR #1485). Two neighbouring tokens share 25.7 % of
    /// their experts (each token uses 4 of 64). A pass over both tokens reads 1.743 times the experts of one token.
    /// [`BlockTimes`] must give this ratio, 1.743, with an `expert_reuse` of 0.213.
    #[test]
    fn the_reuse_that_was_counted_gives_the_experts_that_were_counted() {
        let experts = BlockTimes { bytes_s: 1.0, total: 64.0, miss: 1.0 - 4.0 / 64.0 };
        let read = |reuse: f64| experts.seconds(2.0 - reuse, None) / experts.seconds(1.0, None);
        assert!((read(0.213) - 1.743).abs() < 2e-3, "{}", read(0.213));
        // Two tokens that choose 4 of 64 experts independently share 4/64 of their experts on average.
        assert!((read(0.0) - (2.0 - 4.0 / 64.0)).abs() < 1e-12);
    }
}
