//! `constant`, `by-position` and `by-context`: whether a draft token is right does not depend on other tokens. The
//! probability depends only on the token's position in its request and, with `by-context`, on the length of the prompt.

use super::TruthRow;
use super::source::{Bits, below, fill_constant, within};
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream};

/// One rate for all positions: draft tokens are independent and identically distributed (i.i.d.), as the formula E(a,
/// k) assumes (Leviathan et al. 2023, Eq. 1).
pub(super) struct Constant {
    pub rate: f64,
    pub seed: u64,
}

impl Bits for Constant {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, 1);
        let luck = Luck::new(self.seed, Stream::Right, request.id.into());
        fill_constant(luck, self.rate, positions, out.depth_mut(0));
    }

    fn rate(&self, _: RequestTruth, _: u32, _: u32) -> f64 {
        self.rate
    }
}

/// A list of acceptance rates by output position. Each rate holds for `span` positions in a row, and the last one holds
/// to the end of the output.
pub(super) struct ByPosition {
    pub rates: Vec<f64>,
    pub span: u32,
    pub seed: u64,
}

impl ByPosition {
    fn rate_at(&self, position: u32) -> f64 {
        self.rates[((position / self.span) as usize).min(self.rates.len() - 1)]
    }
}

impl Bits for ByPosition {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, 1);
        let luck = Luck::new(self.seed, Stream::Right, request.id.into());
        let span = self.span as usize;
        for (w, word) in out.depth_mut(0).iter_mut().enumerate().take(positions.div_ceil(64)) {
            let end = (w * 64 + 64).min(positions);
            let mut from = w * 64;
            while from < end {
                // `stretch` is the index in the list of the rate that holds at output position `from`. If the list has
                // no such entry, its last rate holds.
                let stretch = from / span;
                let to = if stretch + 1 < self.rates.len() { end.min((stretch + 1) * span) } else { end };
                *word |= below(luck, self.rate_at(from as u32), w) & within(w, from, to);
                from = to;
            }
        }
    }

    fn rate(&self, _: RequestTruth, position: u32, _: u32) -> f64 {
        self.rate_at(position)
    }
}

/// An acceptance rate that depends on the number of tokens before the draft token, prompt included. It is linear
/// between two `points` and constant outside of them.
pub(super) struct ByContext {
    /// Points `[tokens, rate]`: tokens of prompt and output before the draft token, and the probability that the draft
    /// token is right. Sorted by number of tokens; not empty.
    pub points: Vec<(u32, f64)>,
    pub seed: u64,
}

/// Number of output positions that share one rate: 64, the positions of one word of the bitmap of right draft tokens.
const HOLDS: u32 = 64;

impl ByContext {
    /// The probability that the draft token at this output position is right. All 64 positions of a bitmap word have
    /// the same rate: the rate at the context length of the word's first position.
    fn rate_at(&self, request: RequestTruth, position: u32) -> f64 {
        let context = f64::from(request.prompt_len) + f64::from(position / HOLDS * HOLDS);
        let behind = self.points.partition_point(|&(tokens, _)| f64::from(tokens) <= context);
        match (behind.checked_sub(1).map(|i| self.points[i]), self.points.get(behind)) {
            (Some((from, low)), Some(&(to, high))) => {
                low + (high - low) * (context - f64::from(from)) / f64::from(to - from)
            }
            (Some((_, rate)), None) | (None, Some(&(_, rate))) => rate,
            (None, None) => 0.0,
        }
    }
}

impl Bits for ByContext {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, 1);
        let luck = Luck::new(self.seed, Stream::Right, request.id.into());
        for (w, word) in out.depth_mut(0).iter_mut().enumerate().take(positions.div_ceil(64)) {
            let (from, to) = (w * 64, (w * 64 + 64).min(positions));
            *word = below(luck, self.rate_at(request, from as u32), w) & within(w, from, to);
        }
    }

    fn rate(&self, request: RequestTruth, position: u32, _: u32) -> f64 {
        self.rate_at(request, position)
    }
}
