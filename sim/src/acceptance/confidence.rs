//! The confidence that a draft model reports for a token. First it is drawn whether the token is right. Then the
//! confidence is drawn from its distribution for right or for wrong tokens, so that P(right | confidence) is the
//! [`Curve`] of the settings (docs/model.md 6.3 and 13).
//!
//! Let q be the draft model's probability of its own token and x = logit q. The curve says P(right | x) = σ(w·x + b_j)
//! at depth j. Let z = w·x + b_j have a normal prior with density φ. The mean of the prior is solved so that the
//! marginal P(right) is the acceptance rate at the token's position. Then z given right has a density ∝ φ·σ(z), and z
//! given wrong has a density ∝ φ·σ(−z). The quantile functions of both densities are tabulated once over a grid of
//! rates. Whether a token is right never depends on its confidence.

use crate::luck::{Luck, Stream};
use crate::workload::RequestId;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// How often a draft token is right, given the draft model's own probability q of its token: P(right | q) = σ(slope ·
/// logit q + intercept), with an intercept for each depth. σ is the logistic function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Curve {
    /// Factor on logit q, 0.001 to 1000. Fits in vLLM PR #52228 gave 0.44 to 0.83, by model; the default is in the
    /// middle.
    pub slope: f64,
    /// Intercepts for draft token 1, 2, … of a round; the last one holds for all deeper draft tokens. Means of the fits
    /// in vLLM PR #52228 are −0.92 to −0.14; the default is in the middle.
    pub intercepts: Vec<f64>,
}

impl Default for Curve {
    fn default() -> Self {
        Curve { slope: 0.635, intercepts: vec![-0.53] }
    }
}

/// An error of the confidences that policies see: logit(seen) = scale · logit(true) + shift.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Misfit {
    /// Factor on the logit of the true confidence; 1 for no error.
    pub scale: f64,
    /// Number that is added to the logit of the true confidence; 0 for no error.
    pub shift: f64,
}

impl Default for Misfit {
    fn default() -> Self {
        Misfit { scale: 1.0, shift: 0.0 }
    }
}

/// How a draft model's confidences are drawn: the calibration curve, their spread, and their error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Confidence {
    /// How often a draft token of a given confidence is right (calibration curve).
    pub curve: Curve,
    /// Standard deviation of logit(q) over all draft tokens, right or wrong, > 0, where q is the draft model's own
    /// probability of its token. Assumed: no source gives it.
    pub prior_sd: f64,
    /// The error that is put on each confidence before policies see it.
    pub misfit: Misfit,
}

impl Default for Confidence {
    fn default() -> Self {
        Confidence { curve: Curve::default(), prior_sd: 2.5, misfit: Misfit::default() }
    }
}

impl Confidence {
    /// The key of the first wrong setting, and why the setting is wrong; `None` if all settings are good.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        // These settings have limits. Beyond the limits, confidences would carry no information or would overflow. For
        // example, in an f64 a probability with a logit of 40 equals 1.
        let positive = [("confidence.curve.slope", self.curve.slope), ("confidence.prior_sd", self.prior_sd)];
        if let Some((key, x)) = positive.into_iter().find(|(_, x)| !(1e-3..=1e3).contains(x)) {
            return Some((key, format!("{x:?} is not a number > 0, from 0.001 to 1000")));
        }
        let within = |x: &f64| (-1e6..=1e6).contains(x);
        if self.curve.intercepts.is_empty() || !self.curve.intercepts.iter().all(within) {
            return Some(("confidence.curve.intercepts", "needs numbers from -1000000 to 1000000".into()));
        }
        if !(within(&self.misfit.scale) && within(&self.misfit.shift)) {
            return Some(("confidence.misfit", "scale and shift must be numbers from -1000000 to 1000000".into()));
        }
        None
    }
}

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

/// Draws confidences from tabulated distributions, and turns a confidence back into the log-odds that its token is
/// right.
pub(super) struct ConfidenceModel {
    spec: Confidence,
    seed: u64,
    /// Quantiles of z, the log-odds that a token is right, by [wrong, right][rate][quantile]. Tabulated only when the
    /// first confidence is drawn, because most policies read no confidences.
    table: OnceLock<[Vec<f32>; 2]>,
    /// Mean of the prior of z (the log-odds that a token is right), by acceptance rate. Tabulated when it is first
    /// needed: only bounds (policies that know more than a server can) need it.
    means: OnceLock<Vec<f64>>,
}

impl ConfidenceModel {
    /// A model that draws confidences by the settings `spec`. Its random draws are keyed by `seed`.
    pub fn new(spec: &Confidence, seed: u64) -> ConfidenceModel {
        ConfidenceModel { spec: spec.clone(), seed, table: OnceLock::new(), means: OnceLock::new() }
    }

    /// The log-odds z that the token is right, computed back from the confidence `seen` that policies see. `None` if
    /// the confidence does not depend on z, because the setting `misfit` (the error of confidences) has the scale 0.
    pub fn evidence(&self, seen: f64, depth: u32) -> Option<f64> {
        let Misfit { scale, shift } = self.spec.misfit;
        let x = (logit(seen.min(1.0 - 1e-7)) - shift) / scale;
        (scale != 0.0).then(|| self.spec.curve.slope * x + self.intercept(depth))
    }

    /// Mean and standard deviation of the log-odds z that a token is right, for a position with this acceptance rate,
    /// as long as it is not known whether the token is right.
    pub fn spread(&self, rate: f64) -> (f64, f64) {
        let sd = self.spec.curve.slope * self.spec.prior_sd;
        let tabulate = || {
            let prior = Prior::new(sd);
            (0..RATES).map(|i| prior.mean(tabulated_rate(i))).collect()
        };
        let means = self.means.get_or_init(tabulate);
        let (i, along) = cell(logit(rate) / (2.0 * RATE_REACH) + 0.5, RATES);
        (means[i] + (means[i + 1] - means[i]) * along, sd)
    }

    fn intercept(&self, depth: u32) -> f64 {
        let intercepts = &self.spec.curve.intercepts;
        intercepts[(depth as usize).min(intercepts.len() - 1)]
    }

    /// Tabulates the distributions of the log-odds z for right and for wrong draft tokens. This takes about ten
    /// milliseconds.
    #[cold]
    fn tabulate(&self) -> [Vec<f32>; 2] {
        let prior = Prior::new(self.spec.curve.slope * self.spec.prior_sd);
        let mut table = [Vec::new(), Vec::new()];
        for i in 0..RATES {
            let mean = prior.mean(tabulated_rate(i));
            for (right, table) in table.iter_mut().enumerate() {
                table.extend(prior.quantiles(mean, right == 1));
            }
        }
        table
    }

    /// Draws the confidence that policies see, from 1e-6 to 1, for the token at `depth` (from 0) of the draft round
    /// that starts at output position `round_start`. `rate_logit` is the log-odds that the token is right.
    ///
    /// `right` says whether the token is right, if all tokens before it in the draft round are right. Otherwise the
    /// token is off the target's path: then `right` is `None`, `path` identifies the branch of the draft tree, and the
    /// confidence is drawn as for a wrong token.
    pub fn draw(
        &self,
        id: RequestId,
        round_start: u32,
        depth: u32,
        right: Option<bool>,
        path: u64,
        rate_logit: f64,
    ) -> f32 {
        let off_path = || Luck::new(self.seed, Stream::OffPath, id.into()).narrow(round_start.into());
        let u = match right {
            Some(_) => Luck::new(self.seed, Stream::Confidence, id.into()).unit(u64::from(round_start + depth)),
            None if path == 0 => off_path().unit(depth.into()),
            None => off_path().narrow(path).unit(depth.into()),
        };
        let z = self.quantile(right == Some(true), rate_logit, u);
        let x = (z - self.intercept(depth)) / self.spec.curve.slope;
        let seen = self.spec.misfit.scale * x + self.spec.misfit.shift;
        (sigmoid(seen) as f32).clamp(1e-6, 1.0)
    }

    /// The quantile at probability `u` of the log-odds z of right draft tokens (`right`) or of wrong draft tokens.
    /// `rate_logit` is the log-odds of the acceptance rate. Interpolates linearly between the tabulated rates and
    /// between the tabulated quantiles.
    fn quantile(&self, right: bool, rate_logit: f64, u: f64) -> f64 {
        let table = &self.table.get_or_init(|| self.tabulate())[usize::from(right)];
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
