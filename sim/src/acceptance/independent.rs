//! `constant` and `by-position`: an independent draft whose chance depends on the output position only.

use super::source::{Bits, fill_constant};
use super::{RequestTruth, TruthRow};
use crate::luck::{Luck, Stream, threshold};

/// One rate for everything: the i.i.d. model behind E(a, k) (Leviathan et al. 2023, Eq. 1).
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

/// A rate for each stretch of `span` output positions; the last one holds to the end.
pub(super) struct ByPosition {
    pub rates: Vec<f64>,
    pub span: u32,
    pub seed: u64,
}

impl ByPosition {
    fn at(&self, position: u32) -> f64 {
        self.rates[((position / self.span) as usize).min(self.rates.len() - 1)]
    }
}

impl Bits for ByPosition {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, 1);
        let luck = Luck::new(self.seed, Stream::Right, request.id.into());
        for n in (0..positions).filter(|&n| u64::from(luck.half(n as u64)) < threshold(self.at(n as u32))) {
            out.set(0, n);
        }
    }

    fn rate(&self, _: RequestTruth, position: u32, _: u32) -> f64 {
        self.at(position)
    }
}
