//! `by-depth` acceptance: draft heads that feed on their own hidden states (EAGLE family) become worse with each token
//! that they have drafted since the last verification. Each output position n has one uniform random number u_n, and
//! each depth has an acceptance rate a. The draft token at position n and depth j is right iff u_n < a(j)
//! (docs/model.md 13).

use super::TruthRow;
use super::source::{Bits, fill_constant};
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream};

/// For each depth: the probability that the draft token is right if all draft tokens before it in the round are right.
/// Depths beyond the list have the last rate.
pub(super) struct ByDepth {
    pub rates: Vec<f64>,
    pub seed: u64,
}

impl Bits for ByDepth {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, self.rates.len());
        let luck = Luck::new(self.seed, Stream::Right, request.id.into());
        // Every depth of a draft round uses the same random draws; only the acceptance rate differs.
        for (depth, &rate) in self.rates.iter().enumerate() {
            fill_constant(luck, rate, positions, out.depth_mut(depth));
        }
    }

    fn rate(&self, _: RequestTruth, _: u32, depth: u32) -> f64 {
        self.rates[(depth as usize).min(self.rates.len() - 1)]
    }
}
