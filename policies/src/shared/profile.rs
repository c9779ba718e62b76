//! What engines measure when they start, before requests come: the time of passes at the sizes they will run. Policies
//! with a cost table build it from these measurements, once. A policy cannot keep the object that measures, so it
//! cannot look at the true costs while it runs.

use crate::shared::belief::{Belief, pass_s};
use foretoken_sim::{ContextReads, PassShape};

/// Says how long passes of given shapes take. An engine measures this before serving starts.
pub trait PassTimes: Sync {
    /// Seconds of a draft pass of this shape.
    fn draft_s(&self, shape: PassShape) -> f64;

    /// Seconds of a target pass of this shape.
    fn target_s(&self, shape: PassShape) -> f64;

    /// How target passes read the context of a request: once, or once per verified position. The caller computes the
    /// context of a shape accordingly.
    fn context_reads(&self) -> ContextReads;
}

/// A belief (a policy's linear cost formula α·context + γ·tokens + δ) gives the pass times of its formula.
impl PassTimes for Belief {
    fn draft_s(&self, shape: PassShape) -> f64 {
        pass_s(&self.draft, shape)
    }

    fn target_s(&self, shape: PassShape) -> f64 {
        pass_s(&self.target, shape)
    }

    fn context_reads(&self) -> ContextReads {
        self.context_reads
    }
}

/// The shape of a pass over `requests` requests with `each` new tokens after `context` tokens of KV each.
pub(crate) fn uniform_pass(requests: u64, each: u64, context: u64, reads: ContextReads) -> PassShape {
    let tokens = requests * each;
    // Tokens attended to, summed over all new tokens: Σ over requests of Σ_{j=0..each-1} (context + j).
    let positions = tokens * context + requests * (each * each.saturating_sub(1) / 2);
    PassShape {
        requests: if each > 0 { requests } else { 0 },
        batched: tokens,
        context: match reads {
            ContextReads::Once => requests * context,
            ContextReads::PerPosition => positions,
        },
        pairs: positions + tokens,
    }
}

/// vLLM's CUDA graph capture sizes: 1, 2, 4, then multiples of 8 up to `min(2 · max_num_seqs, 512)` (docs/model.md
/// 4.1).
pub(crate) fn capture_sizes(max_num_seqs: u32) -> Vec<u32> {
    let most = (2 * max_num_seqs).min(512);
    let mut sizes: Vec<u32> = [1, 2, 4].into_iter().chain((8..=512).step_by(8)).filter(|&s| s <= most).collect();
    if sizes.is_empty() {
        sizes.push(1);
    }
    sizes
}

/// The CUDA graph capture size to which a pass of `n` tokens is padded: the smallest of `sizes` that is at least `n`,
/// or `n` itself if `n` is above the largest size.
pub(crate) fn padded(sizes: &[u32], n: u32) -> u32 {
    sizes[..].get(sizes.partition_point(|&s| s < n)).copied().unwrap_or(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_vllms() {
        assert_eq!(capture_sizes(1), [1, 2]);
        assert_eq!(capture_sizes(12), [1, 2, 4, 8, 16, 24]);
        assert_eq!(capture_sizes(1024).last(), Some(&512));
        let sizes = capture_sizes(12);
        assert_eq!([1, 3, 5, 24, 25].map(|n| padded(&sizes, n)), [1, 4, 8, 24, 25]);
    }

    #[test]
    fn uniform_passes_are_section_12s() {
        let once = uniform_pass(3, 4, 100, ContextReads::Once);
        assert_eq!((once.batched, once.context, once.pairs), (12, 300, 3 * (100 + 101 + 102 + 103) + 12));
        assert_eq!(uniform_pass(3, 4, 100, ContextReads::PerPosition).context, 3 * 406);
    }
}
