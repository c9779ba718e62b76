//! What a token that is not drafted yet is worth, if a bad one may be dropped before it is verified.
//!
//! A token whose predecessors are all accepted with probability r, and that is accepted after them with probability c,
//! gives r·c tokens and costs v tokens of time in verification. It is verified only if that pays, so before it is
//! drafted it is worth E[max(r·c − v, 0)] = r · E[max(c − v/r, 0)]. The mean over c follows from the tokens drafted so
//! far, for each depth.

use crate::foresight::odds::START_WEIGHT;

/// Number of parts of the interval from 0 to 1 into which chances of acceptance are sorted.
const BINS: usize = 32;

/// The distribution of the chances of acceptance of drafted tokens, by depth.
pub(crate) struct Options {
    /// For each depth from 1 and each part of [0, 1]: (weight of its tokens, weighted sum of their chances).
    drafted: Vec<[(f64, f64); BINS]>,
    /// For each depth from 1 and each of the BINS + 1 ends t of the parts: E[max(c − t, 0)].
    table: Vec<[f64; BINS + 1]>,
    /// The same for the survival of a token, the product of the chances up to it: E[max(c_1 ⋯ c_depth − t, 0)], as if
    /// the chances of a request's tokens were independent.
    survival: Vec<[f64; BINS + 1]>,
    /// Number of calls of [`settle`](Options::settle).
    settled: u32,
}

/// A distribution on [0, 1]: for each part, (probability, probability · mean).
type Shares = [(f64, f64); BINS];

/// Survival is computed again in every `EACH`-th step.
const EACH: u32 = 8;

impl Options {
    /// No token was drafted yet: every token at every depth up to `longest` is expected to have the chance `start`.
    pub fn new(longest: u32, start: f64) -> Options {
        let depths = longest as usize + 1;
        let above = |mean: f64| std::array::from_fn(|at| (mean - edge(at)).max(0.0));
        let survival = (0..depths).map(|depth| above(start.powi(depth as i32))).collect();
        Options { drafted: vec![[(0.0, 0.0); BINS]; depths], table: vec![above(start); depths], survival, settled: 0 }
    }

    /// Multiplies the weights of all tokens by `keep`.
    pub fn fade(&mut self, keep: f64) {
        self.drafted.iter_mut().flatten().for_each(|(weight, sum)| (*weight, *sum) = (*weight * keep, *sum * keep));
    }

    /// Adds a drafted token at `depth` with a chance of acceptance and a weight.
    #[inline]
    pub fn add(&mut self, depth: u32, chance: f64, weight: f64) {
        let (all, sum) = &mut self.drafted[depth as usize][part(chance)];
        (*all, *sum) = (*all + weight, *sum + weight * chance);
    }

    /// Makes the expectations from the tokens added so far. The prior of a depth is the expectation of the depth before
    /// it, and `start` at depth 1.
    pub fn settle(&mut self, start: f64) {
        for depth in 1..self.table.len() {
            let (mut all, mut sum) = (0.0, 0.0);
            let mut above = [(0.0, 0.0); BINS + 1];
            for at in (0..BINS).rev() {
                (all, sum) = (all + self.drafted[depth][at].0, sum + self.drafted[depth][at].1);
                above[at] = (all, sum);
            }
            for (at, &(weight, sum)) in above.iter().enumerate() {
                let before = if depth == 1 { (start - edge(at)).max(0.0) } else { self.table[depth - 1][at] };
                self.table[depth][at] = (sum - edge(at) * weight + START_WEIGHT * before) / (all + START_WEIGHT);
            }
        }
        if self.settled.is_multiple_of(EACH) {
            self.settle_survival(start);
        }
        self.settled = self.settled.wrapping_add(1);
    }

    fn settle_survival(&mut self, start: f64) {
        let point = |value: f64| {
            let mut shares: Shares = [(0.0, 0.0); BINS];
            shares[part(value)] = (1.0, value);
            shares
        };
        let (mut chances, mut survival) = (point(start), point(1.0));
        for depth in 1..self.table.len() {
            let all: f64 = self.drafted[depth].iter().map(|(weight, _)| weight).sum();
            for ((share, mean), &(weight, sum)) in chances.iter_mut().zip(&self.drafted[depth]) {
                *share = (weight + START_WEIGHT * *share) / (all + START_WEIGHT);
                *mean = (sum + START_WEIGHT * *mean) / (all + START_WEIGHT);
            }
            let mut next: Shares = [(0.0, 0.0); BINS];
            for &(before, of_before) in survival.iter().filter(|(share, _)| *share > 0.0) {
                for &(share, of_share) in chances.iter().filter(|(share, _)| *share > 0.0) {
                    let value = of_before * of_share / (before * share);
                    let (to, of_to) = &mut next[part(value)];
                    (*to, *of_to) = (*to + before * share, *of_to + of_before * of_share);
                }
            }
            survival = next;
            let (mut share, mut mean) = (0.0, 0.0);
            self.survival[depth][BINS] = 0.0;
            for at in (0..BINS).rev() {
                (share, mean) = (share + survival[at].0, mean + survival[at].1);
                self.survival[depth][at] = mean - edge(at) * share;
            }
        }
    }

    /// E[max(survival − `least`, 0)] of a token at `depth`, before anything is drafted.
    #[inline]
    pub fn survival_above(&self, depth: u32, least: f64) -> f64 {
        between(&self.survival[depth as usize], least)
    }

    /// E[max(c − `least`, 0)] at `depth`; at least 0 and at most the mean of c.
    #[inline]
    pub fn above(&self, depth: u32, least: f64) -> f64 {
        between(&self.table[depth as usize], least)
    }
}

/// The part of [0, 1] that has a value.
fn part(value: f64) -> usize {
    ((value * BINS as f64) as usize).min(BINS - 1)
}

/// A table's value at `least`, on the straight line between two ends.
#[inline]
fn between(table: &[f64; BINS + 1], least: f64) -> f64 {
    let at = least.clamp(0.0, 1.0) * BINS as f64;
    let low = (at as usize).min(BINS - 1);
    table[low] + (at - low as f64) * (table[low + 1] - table[low])
}

fn edge(at: usize) -> f64 {
    at as f64 / BINS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of chance 0.9 and 0.1, in equal parts: of a token that costs 0.5, half of all draws give 0.4.
    #[test]
    fn a_bad_token_is_dropped() {
        let mut options = Options::new(2, 0.6);
        for _ in 0..100_000 {
            options.add(1, 0.9, 1.0);
            options.add(1, 0.1, 1.0);
        }
        options.settle(0.6);
        assert!((options.above(1, 0.0) - 0.5).abs() < 1e-3, "the mean");
        assert!((options.above(1, 0.5) - 0.2).abs() < 1e-3, "{}", options.above(1, 0.5));
        assert!(options.above(1, 1.0).abs() < 1e-9);
        assert!((options.above(2, 0.5) - 0.2).abs() < 1e-3, "a depth that was never drafted is like the one before it");
        // Two tokens survive with 0.81, 0.09, 0.09 or 0.01.
        options.settled = 0;
        options.settle(0.6);
        assert!((options.survival_above(2, 0.5) - 0.25 * 0.31).abs() < 1e-3, "{}", options.survival_above(2, 0.5));
        assert!((options.survival_above(2, 0.0) - 0.25).abs() < 1e-3);
    }

    #[test]
    fn without_tokens_it_is_the_prior() {
        let options = Options::new(3, 0.6);
        for (least, worth) in [(0.0, 0.6), (0.25, 0.35), (0.75, 0.0)] {
            assert!((options.above(3, least) - worth).abs() < 1e-12);
        }
    }
}
