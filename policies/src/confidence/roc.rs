//! The self-tuning of Hugging Face's confidence threshold: the point with the least FPR + 3·FNR on the ROC curve of
//! confidences against matches.
//!
//! Source: huggingface/transformers `generation/candidate_generator.py` @00a11b6a, `update_candidate_strategy`
//! (docs/model.md 5.1), which calls scikit-learn's `roc_curve`. `roc_curve` starts at an infinite threshold. That point
//! costs 3 and is never the least, since the lowest threshold costs 1. `roc_curve` also drops points on a straight line
//! between their neighbours. Such a point cannot be the first minimum. Costs are compared exactly, as integers, so that
//! no rounding breaks ties.

/// A confidence threshold is tuned only from at least this number of samples (draft tokens that the target judged).
const MIN_SAMPLES: u64 = 6;

/// Most points of the ROC curve in one block of neighbouring points; a larger block is split in two.
const BLOCK: usize = 64;

/// All samples (draft tokens that the target judged) with one confidence. They make one point of the ROC curve.
#[derive(Clone, Copy, Debug)]
struct Point {
    confidence: f64,
    matched: u32,
    missed: u32,
}

/// Neighbouring points of the ROC curve (each has all samples of one confidence), from the highest confidence down, and
/// the numbers of matched and of missed samples in all these points.
#[derive(Clone, Debug, Default)]
struct Block {
    points: Vec<Point>,
    matched: i64,
    missed: i64,
}

/// All samples of a request: the confidence of a draft token, and whether it matched. Points of the ROC curve are kept
/// in blocks so that a search skips blocks that cannot hold the best point. A long output has thousands of samples and
/// a search in every step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Blocks of points of the ROC curve, from the highest confidence down; no block is empty.
    blocks: Vec<Block>,
    matched: u64,
    missed: u64,
}

impl Samples {
    /// Removes all samples (confidences and outcomes of draft tokens), for a new request.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        (self.matched, self.missed) = (0, 0);
    }

    /// Adds the sample of a token with `confidence`, in [0, 1]. `matched` says whether the target accepted the token.
    pub(crate) fn add(&mut self, confidence: f64, matched: bool) {
        let (hit, miss) = (u32::from(matched), u32::from(!matched));
        self.matched += u64::from(hit);
        self.missed += u64::from(miss);
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        let begun = self.blocks.partition_point(|b| b.points.first().is_some_and(|p| p.confidence >= confidence));
        let b = begun.saturating_sub(1);
        let block = &mut self.blocks[b];
        block.matched += i64::from(hit);
        block.missed += i64::from(miss);
        let place = block.points.partition_point(|p| p.confidence > confidence);
        match block.points.get_mut(place) {
            Some(p) if p.confidence == confidence => {
                p.matched += hit;
                p.missed += miss;
            }
            _ => block.points.insert(place, Point { confidence, matched: hit, missed: miss }),
        }
        if block.points.len() > BLOCK {
            let points = block.points.split_off(BLOCK / 2);
            let sum = |count: fn(&Point) -> u32| points.iter().map(|p| i64::from(count(p))).sum::<i64>();
            let (matched, missed) = (sum(|p| p.matched), sum(|p| p.missed));
            block.matched -= matched;
            block.missed -= missed;
            self.blocks.insert(b + 1, Block { points, matched, missed });
        }
    }

    /// The tuned threshold, that is, the confidence with the least FPR + 3·FNR; on a tie the highest. `None` with fewer
    /// than [`MIN_SAMPLES`] samples, or if all samples or none of them matched.
    pub(crate) fn best_threshold(&self) -> Option<f64> {
        if self.matched + self.missed < MIN_SAMPLES || self.matched == 0 || self.missed == 0 {
            return None;
        }
        // Let P samples have matched and N not. A confidence threshold accepts some of both: hits and false alarms. FPR
        // + 3·FNR, times P·N, is least where 3·N·hits − P·false alarms is greatest.
        let (hit, false_alarm) = (3 * self.missed as i64, self.matched as i64);
        // A threshold's score is 3·N·hits − P·false alarms. The last point of each block of points of the ROC curve is
        // a threshold, so the best threshold's score is at least the greatest score at a block's end.
        let mut score = 0;
        let mut least = i64::MIN;
        for block in &self.blocks {
            score += hit * block.matched - false_alarm * block.missed;
            least = least.max(score);
        }
        let mut before = 0;
        let mut best = (i64::MIN, 0.0);
        for block in &self.blocks {
            // The scores of thresholds in the block are at most the score that would result if all its hits (matched
            // samples) came before its false alarms (accepted samples that did not match).
            if before + hit * block.matched >= least {
                let mut score = before;
                for p in &block.points {
                    score += hit * i64::from(p.matched) - false_alarm * i64::from(p.missed);
                    if score > best.0 {
                        best = (score, p.confidence);
                    }
                }
            }
            before += hit * block.matched - false_alarm * block.missed;
        }
        Some(best.1)
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
        // The cost FPR + 3·FNR is 0 + 3·(2/3) = 2 at threshold 0.9, 1/3 + 2 at 0.8, 1/3 + 1 at 0.7, and 1/3 + 0 at 0.6,
        // the least.
        let samples = [(0.9, true), (0.8, false), (0.7, true), (0.6, true), (0.3, false), (0.1, false)];
        assert_eq!(tuned(&samples), Some(0.6));
        assert_eq!(tuned(&samples[..5]), None, "more than five are needed");
        assert_eq!(tuned(&[(0.5, true); 9]), None, "and both kinds");
        // If all samples have the same confidence, the ROC curve has one point, with FPR 1 and FNR 0.
        assert_eq!(
            tuned(&[(0.5, true), (0.5, false), (0.5, true), (0.5, true), (0.5, false), (0.5, false)]),
            Some(0.5)
        );
        assert_eq!(
            tuned(&[(1.0, true), (1.0, true), (1.0, true), (0.0, false), (0.0, false), (0.0, false)]),
            Some(1.0)
        );
    }

    /// A direct implementation: scikit-learn's `roc_curve` with `drop_intermediate`, then numpy's argmin.
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
        /// The tuned threshold equals the threshold that scikit-learn's `roc_curve` and numpy's argmin give, ties
        /// included.
        #[test]
        fn equals_roc_curve_and_argmin(samples in prop::collection::vec((0u8..12, any::<bool>()), 6..40)) {
            let samples: Vec<(f64, bool)> = samples.iter().map(|&(c, matched)| (f64::from(c) / 11.0, matched)).collect();
            let both = samples.iter().any(|s| s.1) && samples.iter().any(|s| !s.1);
            prop_assert_eq!(tuned(&samples), both.then(|| plain(&samples)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The tuned threshold is the same with many blocks of samples, and after the samples of another request were
        /// cleared.
        #[test]
        fn blocks_change_nothing(
            samples in prop::collection::vec((0u16..600, 0u16..600), 300..900),
            scale in 1u16..4,
        ) {
            let sample = |&(c, draw): &(u16, u16)| (f64::from(c / scale) / 600.0, draw < c);
            let samples: Vec<(f64, bool)> = samples.iter().map(sample).collect();
            let mut all = Samples::default();
            (0..200).for_each(|i| all.add(f64::from(i) / 200.0, i % 3 == 0));
            all.clear();
            for (n, &(c, matched)) in samples.iter().enumerate() {
                all.add(c, matched);
                if n % 97 == 96 {
                    let both = samples[..=n].iter().any(|s| s.1) && samples[..=n].iter().any(|s| !s.1);
                    prop_assert_eq!(all.best_threshold(), both.then(|| plain(&samples[..=n])));
                }
            }
            prop_assert!(all.blocks.len() > 2 && all.blocks.iter().all(|b| (1..=BLOCK).contains(&b.points.len())));
        }
    }
}
