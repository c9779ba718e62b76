//! What every source shares: bits come from the source, confidences from the one model of them (docs/model.md 13: first the
//! bit, then the confidence from its conditional law given the bit).

use super::confidence::ConfidenceModel;
use super::{AcceptanceSource, RankLaw, TruthRow};
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream, threshold};

/// Where the bits come from.
pub(super) trait Bits: Send + Sync {
    /// Lays down the truth of the first `positions` output positions.
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow);

    /// The probability that a draft at `position` and `depth` is right, pooled over the rounds that get there: what the law
    /// of its confidence is solved for.
    fn rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64;

    /// The confidence that was recorded at `position`, where the draft stood on the target's path.
    fn recorded_confidence(&self, _request: RequestTruth, _position: u32) -> Option<f32> {
        None
    }

    /// The rank, from 2, that was recorded at `position`, where the draft's first choice is wrong.
    fn recorded_rank(&self, _request: RequestTruth, _position: u32) -> Option<u32> {
        None
    }

    /// May there be nothing to propose?
    fn may_lack_proposals(&self) -> bool {
        false
    }
}

/// A source of bits with the confidences that go with it.
pub(super) struct Source<B> {
    pub bits: B,
    pub confidence: ConfidenceModel,
    pub ranks: RankLaw,
    pub seed: u64,
}

impl<B: Bits> AcceptanceSource for Source<B> {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        self.bits.fill(request, request.output_len as usize + max_draft_len as usize, out);
    }

    fn confidence(&self, request: RequestTruth, round_start: u32, depth: u32, right: Option<bool>, path: u64) -> f32 {
        if right.is_some()
            && let Some(recorded) = self.bits.recorded_confidence(request, round_start + depth)
        {
            return recorded;
        }
        let rate = self.bits.rate(request, round_start + depth, depth);
        self.confidence.draw(request.id, round_start, depth, right, path, rate)
    }

    fn rank_if_wrong(&self, request: RequestTruth, position: u32) -> u32 {
        let drawn = || self.ranks.at(Luck::new(self.seed, Stream::Rank, request.id.into()).unit(position.into()));
        self.bits.recorded_rank(request, position).unwrap_or_else(drawn)
    }

    fn ranks(&self) -> &RankLaw {
        &self.ranks
    }

    fn may_lack_proposals(&self) -> bool {
        self.bits.may_lack_proposals()
    }
}

/// Which of the 64 positions of `word` have a uniform below `rate` (to 32 bits; exact at 0 and 1)?
///
/// The uniform of position n is, bit by bit from the highest, bit n % 64 of one hash after another; all 64 are compared
/// with the rate at once. A comparison is decided by the first bit that differs, so eight hashes decide a word on
/// average, where two positions a hash would take 32. The uniforms do not depend on the rate: rates share their luck.
pub(super) fn below(luck: Luck, rate: f64, word: usize) -> u64 {
    let rate = threshold(rate);
    if rate > u64::from(u32::MAX) {
        return u64::MAX;
    }
    let (mut less, mut equal) = (0, u64::MAX);
    for bit in 0..32 {
        // With no bits of the rate left, what is equal so far can no longer come out below it.
        if equal == 0 || rate << (32 + bit) == 0 {
            break;
        }
        let random = luck.bits(word as u64 * 32 + bit);
        let of_rate = 0u64.wrapping_sub(rate >> (31 - bit) & 1);
        less |= equal & of_rate & !random;
        equal &= !(random ^ of_rate);
    }
    less
}

/// The bits of `word` that lie in the positions `from..to`.
pub(super) fn within(word: usize, from: usize, to: usize) -> u64 {
    let below = |n: usize| match n.saturating_sub(word * 64) {
        at @ 0..64 => (1u64 << at) - 1,
        _ => u64::MAX,
    };
    below(to) & !below(from)
}

/// Sets each of the first `positions` bits with probability `rate`.
pub(super) fn fill_constant(luck: Luck, rate: f64, positions: usize, words: &mut [u64]) {
    for (w, word) in words.iter_mut().enumerate().take(positions.div_ceil(64)) {
        *word = below(luck, rate, w) & within(w, 0, positions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second way: put each position's uniform together and compare it as a number.
    #[test]
    fn words_are_comparisons_of_one_uniform_a_position() {
        let luck = Luck::new(9, Stream::Right, 4);
        let uniform = |n: u64| (0..32).fold(0u64, |u, bit| u << 1 | luck.bits(n / 64 * 32 + bit) >> (n % 64) & 1);
        for rate in [0.0, 1e-9, 0.078, 0.5, 0.7, 1.0 - 1e-9, 1.0] {
            for n in 0..2000u64 {
                let right = below(luck, rate, n as usize / 64) >> (n % 64) & 1 == 1;
                assert_eq!(right, uniform(n) < threshold(rate), "rate {rate}, position {n}");
            }
        }
    }

    #[test]
    fn masks_are_clipped_to_their_word() {
        assert_eq!(within(0, 0, 3), 0b111);
        assert_eq!(within(0, 2, 64), !0b11);
        assert_eq!(within(1, 0, 64), 0);
        assert_eq!(within(1, 66, 1000), !0b11);
        assert_eq!(within(2, 0, 1000), u64::MAX);
    }
}
