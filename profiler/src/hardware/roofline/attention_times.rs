//! The time of attention over KV in a pass.

use crate::hardware::floors::Join;
use crate::hardware::models::AttentionWork;
use foretoken_sim::PassShape;

/// Seconds of attention over KV, for the layers of one [`AttentionWork`]: layers with the same number of key-value
/// heads and the same limit on the tokens to which a token attends.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionTimes {
    bytes_s: f64,
    pair_flops_s: f64,
    /// Seconds of latent attention that first expands its compressed keys and values: (seconds of a query-key pair,
    /// seconds to expand the key and value of a token). `None` for attention that never expands them.
    unpacked: Option<(f64, f64)>,
    window: Option<f64>,
    by_token: bool,
}

impl AttentionTimes {
    /// Converts the bytes and FLOP of the attention `work` to seconds. `copies` is the number of GPUs that each hold a
    /// copy of the same part of the KV.
    pub(super) fn new(work: &AttentionWork, copies: f64, bandwidth: f64, flops: f64) -> AttentionTimes {
        AttentionTimes {
            bytes_s: work.bytes * copies / bandwidth,
            pair_flops_s: work.pair_flops / flops,
            unpacked: work.unpacked.map(|u| (u.pair_flops / flops, u.token_flops / flops)),
            window: work.window,
            by_token: work.by_token,
        }
    }

    pub(super) fn seconds(&self, shape: PassShape) -> f64 {
        let (moved, computed) = self.parts(shape);
        moved.max(computed)
    }

    /// Seconds of attention where moving and computing overlap in part.
    pub(super) fn joined(&self, shape: PassShape) -> f64 {
        let (moved, computed) = self.parts(shape);
        Join::Root.seconds(moved, computed)
    }

    /// (seconds to read the KV, seconds to compute the pairs).
    fn parts(&self, shape: PassShape) -> (f64, f64) {
        let (tokens, requests) = (shape.batched as f64, shape.requests as f64);
        let (mut read, mut pairs) = ((shape.context + shape.batched) as f64, shape.pairs as f64);
        if let Some(window) = self.window {
            // Cuts `read`, the number of tokens whose KV the pass reads, to the window. The cut number is exact if
            // all contexts are shorter than the window, or if all are longer. If the batch has both kinds of
            // contexts, the number is too large.
            let readers = if self.by_token { tokens } else { requests };
            if readers > 0.0 {
                read = read.min(window * readers + if self.by_token { 0.0 } else { tokens });
            }
            pairs = pairs.min(window * tokens);
        }
        let packed = self.pair_flops_s * pairs;
        let compute = match self.unpacked {
            Some((pair_s, token_s)) => packed.min(pair_s * pairs + token_s * read),
            None => packed,
        };
        (self.bytes_s * read, compute)
    }
}
