//! Acceptance rates of a drafter's heads, one head per depth, learnt from the depths at which trees were accepted.
//!
//! SmartSpec's model of a tree (arXiv 2406.14066, 4.4): a token that head j proposes is the target's own token with
//! probability α_j, whatever its rank and whatever happened before. Of k such tokens, one is the target's with
//! probability s_j(k) = 1 − (1 − α_j)^k. A step shows whether one of the k tokens was accepted, but not its rank. The
//! paper does not say how to compute α_j from this.
//!
//! Here α_j moves by (1 − keep)·(r − s_j(k)) after a step, where keep is the weight of the old rate. Of the requests
//! that had a token of every earlier head accepted, r is the share that had one of the k tokens of head j accepted.
//! With k = 1 this is SmartSpec's moving average. With any k, α_j settles where s_j(k) equals the observed share on
//! average. An average of the inverse 1 − (1 − r)^(1/k) would not settle there, because the inverse is convex in r, and
//! with one request r is 0 or 1.

use foretoken_sim::StepOutcome;

/// Greatest number of heads (depths of a tree) for which acceptance rates are learnt. Deeper trees never pay.
pub(crate) const MOST_HEADS: usize = 8;

/// For each head of the drafter: its acceptance rate α, the probability that one of its tokens is the target's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    alpha: [f64; MOST_HEADS],
    keep: f64,
}

impl Heads {
    /// Heads that all start with the acceptance rate `start`. When a step updates a rate, the old rate has the weight
    /// `keep`.
    pub(crate) fn new(start: f64, keep: f64) -> Heads {
        Heads { alpha: [start; MOST_HEADS], keep }
    }

    /// For tests: heads with the acceptance rates `alpha`. Heads beyond them have the rate 0.
    #[cfg(test)]
    pub(crate) fn of(alpha: &[f64]) -> Heads {
        let mut heads = Heads::new(0.0, 0.85);
        heads.alpha[..alpha.len()].copy_from_slice(alpha);
        heads
    }

    /// The acceptance rate α of the head that drafts at `depth` (from 1).
    pub(crate) fn alpha(&self, depth: usize) -> f64 {
        self.alpha[depth - 1]
    }

    /// Probability that one of the `width` tokens of the head at `depth` is accepted, if one token of every head before
    /// it was accepted.
    pub(crate) fn passes(&self, depth: usize, width: u32) -> f64 {
        1.0 - (1.0 - self.alpha(depth)).powi(width as i32)
    }

    /// Updates the heads' acceptance rates from a step. The numbers of tokens per head are read from the step's trees.
    /// A head keeps its rate if no request had a token of the head before it accepted.
    pub(crate) fn observe(&mut self, outcome: &StepOutcome) {
        let mut reached = [0u32; MOST_HEADS];
        let mut passed = [0u32; MOST_HEADS];
        let mut deepest = None;
        for (i, (&accepted, &verified)) in outcome.accepted.iter().zip(outcome.verified).enumerate() {
            let verified = (verified as usize).min(MOST_HEADS);
            for head in 0..verified.min(accepted as usize + 1) {
                reached[head] += 1;
                passed[head] += u32::from(accepted as usize > head);
            }
            if deepest.is_none_or(|(_, depth)| verified > depth) {
                deepest = Some((i, verified));
            }
        }
        let Some((i, depth)) = deepest.filter(|&(_, depth)| depth > 0) else { return };
        // All trees of a step have the same widths up to their depth, so the greatest rank at a depth is its width.
        let mut width = [0u32; MOST_HEADS];
        for node in outcome.drafts.trees[i].nodes().iter().filter(|n| n.kept && n.depth as usize <= depth) {
            let widest = &mut width[node.depth as usize - 1];
            *widest = (*widest).max(node.rank);
        }
        for head in (0..depth).filter(|&head| reached[head] > 0) {
            let share = f64::from(passed[head]) / f64::from(reached[head]);
            let expected = self.passes(head + 1, width[head]);
            self.alpha[head] = (self.alpha[head] + (1.0 - self.keep) * (share - expected)).clamp(0.0, 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;
    use foretoken_sim::{DraftTree, Drafts, Growth};

    /// The draft tokens of a step in which each of `n` requests has a tree with these widths (tokens per head).
    fn trees(widths: &[u32], n: usize) -> Drafts {
        let mut tree = DraftTree::default();
        let growth = Growth::Expansion(widths.into());
        widths.iter().for_each(|_| tree.grow(&growth, |_, _| (0.5, 0)));
        let mut drafts = Drafts::default();
        drafts.trees = vec![tree; n];
        drafts
    }

    #[test]
    fn with_one_token_per_head_each_rate_is_a_moving_average() {
        let mut heads = Heads::new(0.7, 0.85);
        let drafts = trees(&[1, 1, 1], 4);
        heads.observe(&outcome(&drafts, &[3, 3, 3, 0], &[0, 1, 3, 0]));
        // A token of head 1 was accepted for 2 of 3 requests, a token of head 2 for 1 of these 2, a token of head 3 for
        // this one.
        let expected = [2.0 / 3.0, 0.5, 1.0].map(|r| 0.85 * 0.7 + 0.15 * r);
        for (depth, expected) in (1..).zip(expected) {
            assert!((heads.alpha(depth) - expected).abs() < 1e-15);
        }
        // A step whose draft tokens form no trees changes no acceptance rate.
        let before = heads.alpha;
        heads.observe(&outcome(&Drafts::default(), &[0, 0], &[0, 0]));
        assert_eq!(heads.alpha, before);
    }

    /// With one request a step, the share r of requests with an accepted token of the head is 0 or 1. An average of the
    /// inverse 1 − (1 − r)^(1/k) would then settle at s_j(k), the probability that one of the head's k tokens is
    /// accepted. It should settle at α_j, the probability for one token.
    #[test]
    fn wide_heads_come_to_rest_at_the_rate_of_one_token() {
        let mut heads = Heads::new(0.9, 0.98);
        let drafts = trees(&[3, 2], 1);
        // α, the probability that a single token is accepted, is .4 for the first head and .2 for the second. With 3
        // tokens, the first head has a token accepted in s_1 = 1 − .6³ = .784 of the steps. With 2 tokens, the second
        // head has one accepted in s_2 = 1 − .8² = .36 of these steps.
        let (mut first, mut second, mut sums, n) = (0.0, 0.0, [0.0; 2], 20_000);
        for step in 0..n {
            first += 0.784;
            let passes_first = first >= 1.0;
            first -= f64::from(passes_first);
            second += if passes_first { 0.36 } else { 0.0 };
            let passes_second = passes_first && second >= 1.0;
            second -= f64::from(passes_second);
            heads.observe(&outcome(&drafts, &[2], &[u32::from(passes_first) + u32::from(passes_second)]));
            if step >= n / 2 {
                sums[0] += heads.alpha(1);
                sums[1] += heads.alpha(2);
            }
        }
        let means = sums.map(|s| s / f64::from(n / 2));
        assert!((means[0] - 0.4).abs() < 0.01 && (means[1] - 0.2).abs() < 0.01, "{means:?}");
    }
}
