//! `by-depth` acceptance: draft heads that feed on their own hidden states (EAGLE family) become worse with each token
//! drafted since the last verification. Each position n has one keyed uniform draw u_n, each depth a rate a: the draft
//! is right iff u_n < a(depth) (docs/model.md 13).

use super::TruthRow;
use super::source::{Bits, fill_constant};
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream};

/// For each depth the probability that a draft is right if all before it in the round are. Deeper drafts have the last
/// rate.
pub(super) struct ByDepth {
    pub rates: Vec<f64>,
    pub seed: u64,
}

impl Bits for ByDepth {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, self.rates.len());
        let luck = Luck::new(self.seed, Stream::Right, request.id.into());
        // Every depth uses the same draws; only the rate differs.
        for (depth, &rate) in self.rates.iter().enumerate() {
            fill_constant(luck, rate, positions, out.depth_mut(depth));
        }
    }

    fn rate(&self, _: RequestTruth, _: u32, depth: u32) -> f64 {
        self.rates[(depth as usize).min(self.rates.len() - 1)]
    }
}
