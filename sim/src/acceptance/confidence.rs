//! The confidence that a draft model reports for a token. First it is drawn whether the token is right. Then the
//! confidence is drawn from its distribution for right or for wrong tokens, so that P(right | confidence) is the
//! [`Curve`] of the settings (docs/model.md 6.3 and 13).
//!
//! Let q be the draft model's probability of its own token and x = logit q. The curve says P(right | x) = σ(w·x + b_j)
//! at depth j. Let z = w·x + b_j have a normal prior with density φ. The mean of the prior is solved so that the
//! marginal P(right) is the acceptance rate at the token's position. Then z given right has a density ∝ φ·σ(z), and z
//! given wrong has a density ∝ φ·σ(−z). `log_odds.rs` has both. Whether a token is right never depends on its
//! confidence.

use super::log_odds::{LogOdds, Tabulated, logit, sigmoid};
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
    /// No setting: what was computed from the settings above. Clones share it.
    #[serde(skip)]
    pub tabulated: Tabulated,
}

impl Default for Confidence {
    fn default() -> Self {
        Confidence {
            curve: Curve::default(),
            prior_sd: 2.5,
            misfit: Misfit::default(),
            tabulated: Tabulated::default(),
        }
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

/// Draws confidences from tabulated distributions, and turns a confidence back into the log-odds that its token is
/// right.
pub(super) struct ConfidenceModel {
    spec: Confidence,
    seed: u64,
    /// The distributions of z, the log-odds that a token is right, if the settings do not share them. Tabulated only
    /// when the first confidence is drawn, because most policies read no confidences.
    own: OnceLock<LogOdds>,
}

impl ConfidenceModel {
    /// A model that draws confidences by the settings `spec`. Its random draws are keyed by `seed`.
    pub fn new(spec: &Confidence, seed: u64) -> ConfidenceModel {
        ConfidenceModel { spec: spec.clone(), seed, own: OnceLock::new() }
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
        let log_odds = self.log_odds();
        (log_odds.mean(rate), log_odds.sd)
    }

    fn intercept(&self, depth: u32) -> f64 {
        let intercepts = &self.spec.curve.intercepts;
        intercepts[(depth as usize).min(intercepts.len() - 1)]
    }

    fn log_odds(&self) -> &LogOdds {
        let sd = self.spec.curve.slope * self.spec.prior_sd;
        self.spec.tabulated.of(sd).unwrap_or_else(|| self.own.get_or_init(|| LogOdds::tabulate(sd)))
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
        let z = self.log_odds().quantile(right == Some(true), rate_logit, u);
        let x = (z - self.intercept(depth)) / self.spec.curve.slope;
        let seen = self.spec.misfit.scale * x + self.spec.misfit.shift;
        (sigmoid(seen) as f32).clamp(1e-6, 1.0)
    }
}
