//! The self-tuning of Hugging Face's confidence threshold: the point of the ROC curve, of confidences against matches, with
//! the least FPR + 3·FNR.
//!
//! Source: huggingface/transformers `generation/candidate_generator.py` @00a11b6a, `update_candidate_strategy` (policies.md
//! 5.1), which calls scikit-learn's `roc_curve`. That starts at an infinite threshold (cost 3, never the least, since the
//! lowest threshold costs 1) and drops points between equal steps, which cannot be the first least. Costs are compared
//! exactly, as integers, so that no rounding breaks ties.

/// Fewest samples before anything is tuned.
const MIN_SAMPLES: usize = 6;

/// What was drafted and whether it matched, sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Bits of each confidence, shifted by one to make room for the match: confidences are not negative, so that this
    /// orders as they do.
    sorted: Vec<u64>,
    matches: u64,
}

impl Samples {
    /// Adds a token of this confidence, in [0, 1].
    pub(crate) fn add(&mut self, confidence: f64, matched: bool) {
        let sample = (confidence.to_bits() << 1) | u64::from(matched);
        let place = self.sorted.partition_point(|&s| s < sample);
        self.sorted.insert(place, sample);
        self.matches += u64::from(matched);
    }

    /// The tuned threshold, once there are enough samples of both kinds; the highest of equally good ones.
    pub(crate) fn best_threshold(&self) -> Option<f64> {
        let (positives, negatives) = (self.matches, self.sorted.len() as u64 - self.matches);
        if self.sorted.len() < MIN_SAMPLES || positives == 0 || negatives == 0 {
            return None;
        }
        // FPR + 3·FNR, times both counts, is least where 3·N·hits − P·false alarms is greatest.
        let (hit, false_alarm) = (3 * negatives as i64, positives as i64);
        let mut score = 0;
        let mut best = (i64::MIN, 0);
        for (n, &sample) in self.sorted.iter().enumerate().rev() {
            score += if sample & 1 == 1 { hit } else { -false_alarm };
            let last_of_its_confidence = n == 0 || self.sorted[n - 1] >> 1 != sample >> 1;
            if last_of_its_confidence && score > best.0 {
                best = (score, sample);
            }
        }
        Some(f64::from_bits(best.1 >> 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tuned(samples: &[(f64, bool)]) -> Option<f64> {
        let mut all = Samples::default();
        samples.iter().for_each(|&(c, matched)| all.add(c, matched));
        all.best_threshold()
    }

    #[test]
    fn by_hand() {
        // Thresholds 0.9: 0 + 3·(2/3) = 2. 0.8: 1/3 + 2. 0.7: 1/3 + 1. 0.6: 1/3 + 0, the least.
        let samples = [(0.9, true), (0.8, false), (0.7, true), (0.6, true), (0.3, false), (0.1, false)];
        assert_eq!(tuned(&samples), Some(0.6));
        assert_eq!(tuned(&samples[..5]), None, "more than five are needed");
        assert_eq!(tuned(&[(0.5, true); 9]), None, "and both kinds");
        // One confidence for all: one point, FPR 1, FNR 0.
        assert_eq!(
            tuned(&[(0.5, true), (0.5, false), (0.5, true), (0.5, true), (0.5, false), (0.5, false)]),
            Some(0.5)
        );
        assert_eq!(
            tuned(&[(1.0, true), (1.0, true), (1.0, true), (0.0, false), (0.0, false), (0.0, false)]),
            Some(1.0)
        );
    }

    /// scikit-learn's `roc_curve` with `drop_intermediate`, then numpy's argmin, in plain words.
    fn plain(samples: &[(f64, bool)]) -> f64 {
        let mut thresholds: Vec<f64> = samples.iter().map(|s| s.0).collect();
        thresholds.sort_by(|a, b| b.total_cmp(a));
        thresholds.dedup();
        let above = |t: f64, kind: bool| samples.iter().filter(|s| s.0 >= t && s.1 == kind).count() as i64;
        let points: Vec<(i64, i64)> = thresholds.iter().map(|&t| (above(t, false), above(t, true))).collect();
        let corner = |n: usize| {
            n == 0 || n + 1 == points.len() || {
                let (a, b, c) = (points[n - 1], points[n], points[n + 1]);
                (c.0 - 2 * b.0 + a.0, c.1 - 2 * b.1 + a.1) != (0, 0)
            }
        };
        let (negatives, positives) = points[points.len() - 1];
        let cost = |(fp, tp): (i64, i64)| fp * positives + 3 * (positives - tp) * negatives;
        let kept = (0..points.len()).filter(|&n| corner(n));
        thresholds[kept.min_by_key(|&n| cost(points[n])).expect("there is a point")]
    }

    proptest! {
        /// Equal to the plain reading, ties included.
        #[test]
        fn equals_roc_curve_and_argmin(samples in prop::collection::vec((0u8..12, any::<bool>()), 6..40)) {
            let samples: Vec<(f64, bool)> = samples.iter().map(|&(c, matched)| (f64::from(c) / 11.0, matched)).collect();
            let both = samples.iter().any(|s| s.1) && samples.iter().any(|s| !s.1);
            prop_assert_eq!(tuned(&samples), both.then(|| plain(&samples)));
        }
    }
}
