//! The distributions of z, the log-odds that a draft token is right (docs/model.md 6.3 and 13): quantiles of z for
//! right and for wrong tokens and the mean of the normal prior, tabulated over a grid of acceptance rates.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Number of acceptance rates for which the distributions of confidences are tabulated. The rates' logits are spaced
/// evenly over ±RATE_REACH; the outermost rates are about 1e-4 and 1 − 1e-4.
const RATES: usize = 64;
/// The acceptance rates for which confidences are tabulated have logits between −9.2 and 9.2.
const RATE_REACH: f64 = 9.2;
/// Number of tabulated quantiles of each distribution of confidences. The logits of their probabilities u, in (0, 1),
/// are spaced evenly over ±REACH, because the tails decide how well high confidences are calibrated.
const QUANTILES: usize = 192;
/// The quantiles of confidences are tabulated at probabilities u whose logits lie between −12 and 12.
const REACH: f64 = 12.0;
/// Number of points of the numeric integrals over z, the log-odds that a token is right.
const POINTS: usize = 512;

/// The distributions that were tabulated for some settings. Clones of the settings share them: tabulating takes about
/// ten milliseconds, as long as a run of thirty requests.
#[derive(Clone, Default)]
pub struct Tabulated(Arc<OnceLock<LogOdds>>);

impl Tabulated {
    /// The distributions for a prior with the standard deviation `sd`, tabulated at the first call. `None` if the
    /// shared ones have another deviation, because the settings of a clone were changed.
    pub(super) fn of(&self, sd: f64) -> Option<&LogOdds> {
        let shared = self.0.get_or_init(|| LogOdds::tabulate(sd));
        (shared.sd.to_bits() == sd.to_bits()).then_some(shared)
    }
}

/// Settings are equal whether or not their distributions were tabulated.
impl PartialEq for Tabulated {
    fn eq(&self, _: &Tabulated) -> bool {
        true
    }
}

impl fmt::Debug for Tabulated {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Tabulated")
    }
}

/// The distributions of z for one standard deviation of its prior.
pub(super) struct LogOdds {
    /// Standard deviation of the normal prior of z.
    pub sd: f64,
    /// Mean of the prior, by acceptance rate.
    means: Vec<f64>,
    /// Quantiles of z, by [wrong, right][rate][quantile].
    quantiles: [Vec<f32>; 2],
}

impl LogOdds {
    /// The distributions for a prior with the standard deviation `sd`.
    #[cold]
    pub fn tabulate(sd: f64) -> LogOdds {
        let prior = Prior::new(sd);
        let means: Vec<f64> = (0..RATES).map(|i| prior.mean(tabulated_rate(i))).collect();
        let quantiles =
            [false, true].map(|right| means.iter().flat_map(|&mean| prior.quantiles(mean, right)).collect());
        LogOdds { sd, means, quantiles }
    }

    /// The mean of the prior of z, for a position with this acceptance rate. Interpolates linearly between the
    /// tabulated rates.
    pub fn mean(&self, rate: f64) -> f64 {
        let (i, along) = cell(logit(rate) / (2.0 * RATE_REACH) + 0.5, RATES);
        self.means[i] + (self.means[i + 1] - self.means[i]) * along
    }

    /// The quantile at probability `u` of the log-odds z of right draft tokens (`right`) or of wrong draft tokens.
    /// `rate_logit` is the log-odds of the acceptance rate. Interpolates linearly between the tabulated rates and
    /// between the tabulated quantiles.
    pub fn quantile(&self, right: bool, rate_logit: f64, u: f64) -> f64 {
        let table = &self.quantiles[usize::from(right)];
        let (i, along_rate) = cell(rate_logit / (2.0 * RATE_REACH) + 0.5, RATES);
        let (j, along_u) = cell(logit(u) / (2.0 * REACH) + 0.5, QUANTILES);
        let entry = |i: usize, j: usize| f64::from(table[i * QUANTILES + j]);
        let low = entry(i, j) + (entry(i, j + 1) - entry(i, j)) * along_u;
        let high = entry(i + 1, j) + (entry(i + 1, j + 1) - entry(i + 1, j)) * along_u;
        low + (high - low) * along_rate
    }
}

/// The acceptance rate (probability that a draft token is right) to which entry `i` of the tabulated confidence
/// distributions belongs.
fn tabulated_rate(i: usize) -> f64 {
    sigmoid(((i as f64 + 0.5) / RATES as f64 - 0.5) * 2.0 * RATE_REACH)
}

/// Finds `x` in [0, 1] among the midpoints of `n` equal intervals of [0, 1]. Returns the index of the nearest midpoint
/// below `x`, and how far `x` is on the way to the next midpoint, from 0 to 1. Clamped at both ends.
fn cell(x: f64, n: usize) -> (usize, f64) {
    let at = (x * n as f64 - 0.5).clamp(0.0, (n - 1) as f64);
    let low = (at as usize).min(n - 2);
    (low, at - low as f64)
}

/// The logit of `u`, finite at 0 and at 1 too: `u` is clamped to [1e-9, 1 − 1e-9].
pub(super) fn logit(u: f64) -> f64 {
    let u = u.clamp(1e-9, 1.0 - 1e-9);
    (u / (1.0 - u)).ln()
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The normal prior of the log-odds z as a grid of points with weights. The points are stored relative to the prior's
/// mean, because each acceptance rate has its own mean.
struct Prior {
    sd: f64,
    /// The grid points of the log-odds, in standard deviations from the mean of the prior.
    unit: Vec<f64>,
    weight: Vec<f64>,
}

impl Prior {
    fn new(sd: f64) -> Prior {
        let unit: Vec<f64> = (0..POINTS).map(|i| (i as f64 + 0.5) / POINTS as f64 * 12.0 - 6.0).collect();
        let density: Vec<f64> = unit.iter().map(|unit| (-unit * unit / 2.0).exp()).collect();
        let total: f64 = density.iter().sum();
        Prior { sd, unit, weight: density.iter().map(|d| d / total).collect() }
    }

    /// The mean of the normal prior of the log-odds at which a draft token is right with probability `rate`.
    fn mean(&self, rate: f64) -> f64 {
        let (mut low, mut high) = (-40.0 - 8.0 * self.sd, 40.0 + 8.0 * self.sd);
        for _ in 0..60 {
            let mean = (low + high) / 2.0;
            if self.right(mean) < rate { low = mean } else { high = mean }
        }
        (low + high) / 2.0
    }

    /// The probability that a draft token is right if its log-odds have the normal prior with this mean.
    fn right(&self, mean: f64) -> f64 {
        self.unit.iter().zip(&self.weight).map(|(unit, w)| w * sigmoid(mean + self.sd * unit)).sum()
    }

    /// The tabulated quantiles of the log-odds z of right draft tokens (`right`) or of wrong draft tokens, with this
    /// mean of the prior.
    fn quantiles(&self, mean: f64, right: bool) -> Vec<f32> {
        let z: Vec<f64> = self.unit.iter().map(|unit| mean + self.sd * unit).collect();
        let given = |z: f64| sigmoid(if right { z } else { -z });
        let mass: Vec<f64> = z.iter().zip(&self.weight).map(|(&z, &w)| w * given(z)).collect();
        let total: f64 = mass.iter().sum();
        let width = z[1] - z[0];
        let (mut before, mut point) = (0.0, 0);
        let quantile = |j: usize| {
            let target = sigmoid(((j as f64 + 0.5) / QUANTILES as f64 - 0.5) * 2.0 * REACH) * total;
            while before + mass[point] < target && point + 1 < POINTS {
                before += mass[point];
                point += 1;
            }
            // The probability mass of a grid point is spread evenly over the interval of z around the point. `along` is
            // the place of the quantile in this interval, from −0.5 to 0.5.
            let along = ((target - before) / mass[point]).clamp(0.0, 1.0) - 0.5;
            (z[point] + along * width) as f32
        };
        (0..QUANTILES).map(quantile).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_distributions_of_one_deviation_only() {
        let settings = Tabulated::default();
        let clone = settings.clone();
        let (first, again) = (settings.of(0.5).unwrap(), clone.of(0.5).unwrap());
        assert!(std::ptr::eq(first, again) && first.sd == 0.5);
        assert!(clone.of(1.5).is_none());
        assert_eq!(Tabulated::default().of(1.5).unwrap().means, LogOdds::tabulate(1.5).means);
    }
}
