//! What every source shares: bits come from the source, confidences from the one model of them (policies.md 13: first the
//! bit, then the confidence from its conditional law given the bit).

use super::confidence::ConfidenceModel;
use super::{AcceptanceSource, RequestTruth, TruthRow};
use crate::luck::{Luck, threshold};

/// Where the bits come from.
pub(super) trait Bits: Send + Sync {
    /// Lays down the truth of the first `positions` output positions.
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow);

    /// The probability that a draft at `position` and `depth` is right, given that the draft got there: what a perfectly
    /// informed confidence would say before it saw the token.
    fn rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64;
}

/// A source of bits with the confidences that go with it.
pub(super) struct Source<B> {
    pub bits: B,
    pub confidence: ConfidenceModel,
}

impl<B: Bits> AcceptanceSource for Source<B> {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        self.bits.fill(request, (request.output_len + max_draft_len) as usize, out);
    }

    fn confidence(&self, request: RequestTruth, round_start: u32, depth: u32, right: Option<bool>) -> f32 {
        let rate = self.bits.rate(request, round_start + depth, depth);
        self.confidence.draw(request.id, round_start, depth, right, rate)
    }
}

/// Sets each of the first `positions` bits with probability `rate`, two positions a hash.
pub(super) fn fill_constant(luck: Luck, rate: f64, positions: usize, words: &mut [u64]) {
    let right = threshold(rate);
    let mut left = positions;
    for (w, word) in words.iter_mut().enumerate().take(positions.div_ceil(64)) {
        let mut bits = 0u64;
        for pair in 0..32 {
            let hash = luck.bits(w as u64 * 32 + pair);
            bits |= u64::from((hash & 0xFFFF_FFFF) < right) << (2 * pair);
            bits |= u64::from((hash >> 32) < right) << (2 * pair + 1);
        }
        *word = if left < 64 { bits & ((1 << left) - 1) } else { bits };
        left = left.saturating_sub(64);
    }
}
