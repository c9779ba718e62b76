//! The common part of all acceptance sources. Each source draws in its own way which draft tokens are right. The
//! confidences of right and wrong tokens are then drawn by one model for all sources (docs/model.md 13).

use super::confidence::ConfidenceModel;
use super::log_odds::{logit, sigmoid};
use super::{AcceptanceSource, Law, RankLaw, TruthRow};
use crate::drafts::Shown;
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream, threshold};

/// Draws which draft tokens are right. Also gives the probabilities with which draft tokens are right, and the recorded
/// confidences and ranks, if there are any.
pub(super) trait Bits: Send + Sync {
    /// Fills in, for the first `positions` output positions of the request, which draft tokens are right. If the
    /// drafter may have no proposal, also fills in at which positions the drafter has a match. If the length of
    /// proposals is limited, also fills in the limit at each position.
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow);

    /// The probability that a draft token at `position` and `depth` is right, averaged over the rounds that reach this
    /// depth. The confidences are drawn from a distribution that is solved for this rate.
    fn rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64;

    /// The recorded confidence at `position`, where all earlier tokens of the draft round are right. `None` if no
    /// confidence was recorded.
    fn recorded_confidence(&self, _request: RequestTruth, _position: u32) -> Option<f32> {
        None
    }

    /// Whether [`recorded_confidence`](Bits::recorded_confidence) also holds after a wrong draft token, because
    /// confidences say nothing of which draft tokens are right.
    fn confidences_are_blind(&self) -> bool {
        false
    }

    /// The recorded rank, from 2, of the target's token at `position`, where the draft model's first choice is wrong.
    /// `None` if no rank was recorded.
    fn recorded_rank(&self, _request: RequestTruth, _position: u32) -> Option<u32> {
        None
    }

    /// Whether the drafter may have nothing to propose at some positions.
    fn may_lack_proposals(&self) -> bool {
        false
    }

    /// Whether the source draws from a probability [law](Law) which draft tokens are right.
    fn has_law(&self) -> bool {
        true
    }

    /// Replaces `weights` by the probability of each hypothesis (possible value of what is hidden) about the request
    /// ([`Law::prior`]). By default there is one hypothesis.
    fn prior(&self, _request: RequestTruth, weights: &mut Vec<f64>) {
        weights.clear();
        weights.push(1.0);
    }

    /// The [`rate`](Bits::rate) of right draft tokens at `position` and `depth`, if hypothesis number `_hypothesis` (a
    /// possible value of what is hidden about the request) is true.
    fn rate_of_hypothesis(&self, request: RequestTruth, _hypothesis: usize, position: u32, depth: u32) -> f64 {
        self.rate(request, position, depth)
    }

    /// The probability that the draft token at `position` and `depth` is right, if hypothesis number `hypothesis` (a
    /// possible value of what is hidden about the request) is true ([`Law::right_after`]). `_before` says whether the
    /// draft token at the previous position is right. The default is for independent draft tokens.
    fn right_after(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32, _before: bool) -> f64 {
        self.rate_of_hypothesis(request, hypothesis, position, depth)
    }

    /// The mean of [`rate`](Bits::rate) over all requests of the same category whose draft rounds reach this depth. The
    /// default is for sources in which all these requests have the same rate.
    fn mean_rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64 {
        self.rate(request, position, depth)
    }

    /// The probability, for this request, that the draft token at `position` and `depth` is right if all tokens before
    /// it in the round are right ([`Law::own_rate`]). The default is for draft tokens that are right independently of
    /// each other.
    fn own_rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64 {
        self.rate(request, position, depth)
    }

    /// The probability that a lookup finds a match where its first token would be wrong ([`Law::proposes_if_wrong`]). 1
    /// for drafters that always have a proposal.
    fn proposes_if_wrong(&self) -> f64 {
        1.0
    }

    /// The most tokens that the draft model beside a prompt lookup drafts in a round in which the lookup finds no
    /// match; 0 if there is no such model.
    fn drafts_without_match(&self) -> u32 {
        0
    }
}

/// An acceptance source: `bits` draws which draft tokens are right; the other fields draw the draft model's confidences
/// and the ranks of its guesses.
struct Source<B> {
    bits: B,
    confidence: ConfidenceModel,
    ranks: RankLaw,
    seed: u64,
}

/// The parts that all acceptance sources share: the model of confidences, the probabilities of second and later
/// guesses, and the seed of the draws.
pub(super) struct Common {
    pub confidence: ConfidenceModel,
    pub ranks: RankLaw,
    pub seed: u64,
}

impl Common {
    pub fn with<B: Bits + 'static>(self, bits: B) -> Box<dyn AcceptanceSource> {
        Box::new(Source { bits, confidence: self.confidence, ranks: self.ranks, seed: self.seed })
    }
}

impl<B: Bits> AcceptanceSource for Source<B> {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        self.bits.fill(request, request.output_len as usize + max_draft_len as usize, out);
    }

    fn confidence(&self, request: RequestTruth, round_start: u32, depth: u32, right: Option<bool>, path: u64) -> f32 {
        self.confidence_with(request, &TruthRow::default(), round_start, depth, right, path)
    }

    fn confidence_with(
        &self,
        request: RequestTruth,
        truth: &TruthRow,
        round_start: u32,
        depth: u32,
        right: Option<bool>,
        path: u64,
    ) -> f32 {
        if (right.is_some() || self.bits.confidences_are_blind())
            && let Some(recorded) = self.bits.recorded_confidence(request, round_start + depth)
        {
            return recorded;
        }
        let rate_logit = truth.rate_logit.unwrap_or_else(|| logit(self.bits.rate(request, round_start + depth, depth)));
        self.confidence.draw(request.id, round_start, depth, right, path, rate_logit)
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

    fn drafts_without_match(&self) -> u32 {
        self.bits.drafts_without_match()
    }

    fn law(&self) -> Option<&dyn Law> {
        self.bits.has_law().then_some(self)
    }
}

impl<B: Bits> Law for Source<B> {
    fn prior(&self, request: RequestTruth, weights: &mut Vec<f64>) {
        self.bits.prior(request, weights);
    }

    fn right_after(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32, before: bool) -> f64 {
        self.bits.right_after(request, hypothesis, position, depth, before)
    }

    fn proposes_if_wrong(&self) -> f64 {
        self.bits.proposes_if_wrong()
    }

    fn evidence(&self, confidence: f64, depth: u32) -> Option<f64> {
        self.confidence.evidence(confidence, depth)
    }

    fn evidence_spread(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32) -> (f64, f64) {
        self.confidence.spread(self.bits.rate_of_hypothesis(request, hypothesis, position, depth))
    }

    fn confidence_rate(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32) -> f64 {
        self.bits.rate_of_hypothesis(request, hypothesis, position, depth)
    }

    fn own_rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64 {
        self.bits.own_rate(request, position, depth)
    }

    fn chance(&self, request: RequestTruth, position: u32, depth: u32, confidence: f64, shown: Shown) -> f64 {
        let evidence = self.confidence.evidence(confidence, depth);
        let own = || self.bits.own_rate(request, position, depth);
        match (shown, evidence) {
            (Shown::Confidence, _) => confidence,
            (Shown::Calibrated, Some(z)) => sigmoid(z),
            (Shown::Calibrated, None) => self.bits.mean_rate(request, position, depth),
            // Confidences are drawn for the rate `bits.rate`. The request's own acceptance rate (given that all tokens
            // before in the round are right) may differ from `bits.rate`. The log-odds then move by the difference of
            // the logits of these two rates.
            (Shown::OwnRate, Some(z)) => sigmoid(z + logit(own()) - logit(self.bits.rate(request, position, depth))),
            (Shown::OwnRate, None) => own(),
        }
    }
}

/// A bitmap of the 64 positions of word number `word`. A bit is set if the uniform draw of its position is below `rate`
/// (to 32 bits; exact at 0 and 1).
///
/// The uniform draw of position n consists of bit n % 64 of each of 32 hashes. The first hash gives the draw's highest
/// bit. All 64 positions are compared with the rate at once. The first bit that differs decides a comparison, so a word
/// needs eight hashes on average. If each hash gave two draws, a word would need 32. The draws do not depend on the
/// rate: all rates share them.
pub(super) fn below(luck: Luck, rate: f64, word: usize) -> u64 {
    let rate = threshold(rate);
    if rate > u64::from(u32::MAX) {
        return u64::MAX;
    }
    let (mut less, mut equal) = (0, u64::MAX);
    for bit in 0..32 {
        // If all further bits of the rate are 0, a draw whose bits equal the rate's bits so far cannot be below the
        // rate.
        if equal == 0 || rate << (32 + bit) == 0 {
            break;
        }
        let random = luck.bits(word as u64 * 32 + bit);
        let rate_bit = 0u64.wrapping_sub(rate >> (31 - bit) & 1);
        less |= equal & rate_bit & !random;
        equal &= !(random ^ rate_bit);
    }
    less
}

/// A bitmap of the 64 positions of word number `word`. A bit is set if its position lies in `from..to`.
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

    /// Compares [`below`] with simple code that builds each position's uniform draw as a number and compares it with
    /// the rate.
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
