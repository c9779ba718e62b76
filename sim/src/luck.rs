//! Keyed randomness: every random draw is a hash of (seed, stream, request, position).
//!
//! There is no generator with a state. So neither the number of threads nor the order in which policies run can change
//! a result, and two policies get the same draws for the same request. The mixer is SplitMix64's finaliser (Steele,
//! Lea, Flood, OOPSLA 2014) over a per-key base with a golden-ratio counter.

/// The purpose of a random draw, such as output lengths or noise. Two streams never share a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Stream {
    /// Whether the draft model's first choice is right, keyed by output position.
    Right = 1,
    /// The confidence of a draft token before which all tokens of the round are right.
    Confidence = 2,
    /// The confidence of a draft token that follows a wrong draft token, keyed by round start and depth.
    OffPath = 3,
    /// Draws that are made once for each request, such as its acceptance rate (the probability that its draft tokens
    /// are right).
    Request = 4,
    /// Random noise on the time of a forward pass, keyed by step.
    Noise = 5,
    /// Whether a draft token is right, at a position where a recording of a real run does not say whether it is right.
    Unknown = 6,
    /// Random choices of policies, such as `random` and the bandits.
    Policy = 7,
    /// Arrival times of requests that a workload generator draws.
    Arrivals = 8,
    /// Numbers of turns of generated sessions, and the times that clients wait between two turns, keyed by session.
    Sessions = 28,
    /// Prompt and output lengths of requests that a workload generator or a length source draws.
    Lengths = 9,
    /// Which requests a trace keeps when it is thinned.
    Thinning = 10,
    /// Whether the draft token at this position copies its result (right or wrong) from the position before it
    /// (autocorrelation), in place of its own draw.
    Repeat = 11,
    /// Prompt lookup: at which positions the lookup finds a match whose first token is wrong.
    Lookup = 12,
    /// Suffix trees: the length of a match at the position where repeated text begins.
    MatchLength = 27,
    /// The rank of the target's token among the draft model's further guesses.
    Rank = 13,
    /// Random errors of the pass times that a policy gets in place of the true pass times.
    Belief = 14,
    /// Random weights of a model, when only the model's shape matters.
    Weights = 15,
    /// Random choices of the generator that writes the texts of documents.
    Text = 16,
    /// Tokens that the draft model of a live run samples.
    DraftSample = 18,
    /// Rejection sampling of the draft tokens in a live run.
    Rejection = 19,
    /// Random prompts of a live run whose models have random weights.
    Prompt = 20,
    /// A shared prefix block of a live run's random prompts, keyed by the block's id.
    PromptBlock = 22,
    /// Whether a draft model on its own device guesses correctly which draft tokens the target accepts, keyed by the
    /// output position where the request's next draft tokens start.
    Guess = 26,
    /// The order in which a profile (a measurement of pass times) measures its passes, and how its cross-validation
    /// divides them.
    Profile = 21,
    /// Random choices of a fleet's router.
    Router = 23,
    /// Seeds of the random noise on pass times, for every replica of a fleet except the first.
    Replica = 24,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's finaliser: a bijection of 64 bits with full avalanche.
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A sequence of random numbers for one key (seed, stream, request), read by position.
#[derive(Clone, Copy, Debug)]
pub struct Luck {
    base: u64,
}

impl Luck {
    /// The sequence of random numbers of the key (`seed`, `stream`, `request`).
    #[inline]
    pub fn new(seed: u64, stream: Stream, request: u64) -> Luck {
        let a = mix(seed.wrapping_add(GOLDEN).wrapping_add((stream as u64) << 56));
        Luck { base: mix(a ^ mix(request.wrapping_add(GOLDEN))) }
    }

    /// Another sequence of random numbers. Its key is made of this sequence's key and the number `part`.
    #[inline]
    pub fn narrow(self, part: u64) -> Luck {
        Luck { base: mix(self.base ^ mix(part.wrapping_add(GOLDEN))) }
    }

    /// The base number of this sequence. `bits` hashes it together with a position. A device that has the base can draw
    /// the same numbers.
    #[inline]
    pub fn base(self) -> u64 {
        self.base
    }

    /// 64 uniform bits: the draw at `position` of this sequence.
    #[inline]
    pub fn bits(self, position: u64) -> u64 {
        mix(self.base.wrapping_add(position.wrapping_mul(GOLDEN)))
    }

    /// 32 uniform bits at `position` of this sequence. Positions 2n and 2n + 1 share one 64-bit hash; each takes half
    /// of it.
    #[inline]
    pub fn half(self, position: u64) -> u32 {
        (self.bits(position >> 1) >> (32 * (position & 1))) as u32
    }

    /// A uniform number in [0, 1) with 53 bits: the draw at `position` of this sequence.
    #[inline]
    pub fn unit(self, position: u64) -> f64 {
        (self.bits(position) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// The threshold t for which a uniform `u32` is below t with probability `p`. `p` is clamped to [0, 1]; t is exact at
/// both ends.
#[inline]
pub fn threshold(p: f64) -> u64 {
    (p.clamp(0.0, 1.0) * (1u64 << 32) as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_give_equal_draws_and_other_keys_give_others() {
        let a = Luck::new(1, Stream::Right, 7);
        assert_eq!(a.bits(3), Luck::new(1, Stream::Right, 7).bits(3));
        for other in
            [Luck::new(2, Stream::Right, 7), Luck::new(1, Stream::Confidence, 7), Luck::new(1, Stream::Right, 8)]
        {
            assert_ne!(a.bits(3), other.bits(3));
        }
        assert_ne!(a.narrow(1).bits(0), a.narrow(2).bits(0));
    }

    #[test]
    fn uniforms_are_uniform() {
        let n = 100_000;
        let luck = Luck::new(42, Stream::Right, 0);
        let mean: f64 = (0..n).map(|i| luck.unit(i)).sum::<f64>() / n as f64;
        let below = (0..n).filter(|&i| u64::from(luck.half(i)) < threshold(0.3)).count() as f64 / n as f64;
        // The tolerance is four standard errors: 0.289/sqrt n for the mean of the uniform numbers, sqrt(0.21/n) for the
        // share of them that is below 0.3.
        assert!((mean - 0.5).abs() < 4.0 * 0.289 / (n as f64).sqrt(), "{mean}");
        assert!((below - 0.3).abs() < 4.0 * (0.21 / n as f64).sqrt(), "{below}");
        assert_eq!(threshold(1.0), 1 << 32);
        assert_eq!(threshold(0.0), 0);
    }
}
