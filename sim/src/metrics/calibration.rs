//! How well the draft model's confidences are calibrated: for each range of confidences, how many draft tokens were
//! right.
//!
//! Only draft tokens with a known result count: the accepted draft tokens and the first rejected draft token of each
//! chain. Draft tokens after a rejected one have no known result. Only policies that read confidences give data.

use crate::drafts::Drafts;
use serde::{Deserialize, Serialize};

/// Number of bins of equal width from 0 to 1. A confidence on the boundary of two bins belongs to the upper bin; 1
/// belongs to the last bin.
const BINS: usize = 20;

/// The draft tokens with confidences in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationBin {
    /// Number of draft tokens with a confidence in this bin for which verification showed whether they are right.
    pub drafts: u64,
    /// Number of draft tokens counted in `drafts` that were accepted.
    pub right: u64,
    /// Sum of the confidences of the draft tokens counted in `drafts`.
    pub confidence: f64,
}

/// For each bin of confidences: the draft tokens of a run with such a confidence, and how many of them were right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    bins: [CalibrationBin; BINS],
}

impl Calibration {
    /// Adds the draft tokens of a step whose results are known: of each request the accepted draft tokens and the first
    /// rejected one. `accepted` is the number of accepted draft tokens of each request.
    pub fn step(&mut self, drafts: &Drafts, accepted: &[u32]) {
        for (i, (&verified, &accepted)) in drafts.verify_len.iter().zip(accepted).enumerate() {
            for j in 0..verified.min(accepted + 1) {
                self.add(drafts.confidence(i, j as usize), j < accepted);
            }
        }
    }

    fn add(&mut self, confidence: f64, right: bool) {
        let bin = &mut self.bins[((confidence * BINS as f64) as usize).min(BINS - 1)];
        bin.drafts += 1;
        bin.right += u64::from(right);
        bin.confidence += confidence;
    }

    /// Adds the draft tokens of another run, bin by bin of confidences.
    pub fn merge(&mut self, other: &Calibration) {
        for (mine, theirs) in self.bins.iter_mut().zip(&other.bins) {
            mine.drafts += theirs.drafts;
            mine.right += theirs.right;
            mine.confidence += theirs.confidence;
        }
    }

    /// The bins, from confidence 0 upwards. Empty if the policy read no confidences.
    pub fn bins(&self) -> &[CalibrationBin] {
        if self.bins.iter().any(|b| b.drafts > 0) { &self.bins } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two requests. Request 0 accepts 1 of 3 draft tokens, so its third draft token has no known result. Request 1
    /// accepts both of its 2 draft tokens.
    #[test]
    fn only_what_verification_shows_is_counted() {
        let mut drafts = Drafts::default();
        drafts.reset(2, 4);
        drafts.want(crate::drafts::Wants::CONFIDENCE);
        drafts.verify_len = vec![3, 2];
        for (i, j, c) in [(0, 0, 0.93), (0, 1, 0.52), (0, 2, 0.11), (1, 0, 1.0), (1, 1, 0.97)] {
            drafts.set_confidence(i, j, c);
        }
        let mut calibration = Calibration::default();
        assert!(calibration.bins().is_empty());
        calibration.step(&drafts, &[1, 2]);
        let filled: Vec<_> = calibration
            .bins()
            .iter()
            .enumerate()
            .filter(|(_, b)| b.drafts > 0)
            .map(|(i, b)| (i, b.drafts, b.right))
            .collect();
        assert_eq!(filled, [(10, 1, 0), (18, 1, 1), (19, 2, 2)]);
        assert!((calibration.bins()[19].confidence - 1.97).abs() < 1e-12);
    }
}
