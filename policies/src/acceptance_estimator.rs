//! vLLM's online acceptance estimator: from the draft's probability of a token to the probability that it is accepted,
//! learned while serving.
//!
//! Source: vllm-project/vllm PR #52228, `v1/worker/gpu/spec_decode/acceptance_estimator.py` @322dc44b (policies.md 6.3).
//! A logistic model with one slope for all draft positions and an intercept for each, over the feature logit(q). Every so
//! many steps it takes one damped Newton step on the sums of those steps alone, then forgets them. The information matrix
//! is an arrowhead (slope against each intercept), so eliminating the intercepts leaves one equation for the slope.

use foretoken_sim::StepOutcome;

/// The feature is clamped to ± this.
const MAX_FEATURE: f64 = 40.0;
/// Slope and intercepts before anything was learned: c = 0.818 everywhere.
const START_SLOPE: f64 = 0.0;
const START_INTERCEPT: f64 = 1.5;
/// Ridge on the slope's and each intercept's information.
const RIDGE: f64 = 1e-3;
/// A parameter seen n times moves n / (n + this) of a full Newton step.
const DAMPING: f64 = 50.0;

/// logit(q) of a token the draft gave probability `q`.
#[inline]
fn feature(q: f64) -> f64 {
    (q / (1.0 - q)).ln().clamp(-MAX_FEATURE, MAX_FEATURE)
}

/// Sums over the observations of one draft position since the last refit; w = c(1 − c).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    /// Σ w·x.
    coupling: f64,
    /// Σ w.
    weight: f64,
    /// Σ (label − c).
    score: f64,
    /// Observations.
    n: f64,
}

/// The estimator.
#[derive(Clone, Debug)]
pub(crate) struct AcceptanceEstimator {
    slope: f64,
    intercepts: Vec<f64>,
    /// Sums of each position, and over all of them Σ w·x² and Σ (label − c)·x.
    at: Vec<Sums>,
    slope_weight: f64,
    slope_score: f64,
    refit_interval: u32,
    steps: u32,
    refits: u32,
}

impl AcceptanceEstimator {
    /// Learns about drafts of up to `positions` tokens, every `refit_interval` steps.
    pub(crate) fn new(positions: u32, refit_interval: u32) -> AcceptanceEstimator {
        let positions = positions as usize;
        AcceptanceEstimator {
            slope: START_SLOPE,
            intercepts: vec![START_INTERCEPT; positions],
            at: vec![Sums::default(); positions],
            slope_weight: 0.0,
            slope_score: 0.0,
            refit_interval,
            steps: 0,
            refits: 0,
        }
    }

    /// Gives it these coefficients.
    #[cfg(test)]
    pub(crate) fn set(&mut self, slope: f64, intercept: f64) {
        self.slope = slope;
        self.intercepts.fill(intercept);
    }

    /// Refits so far.
    pub(crate) fn refits(&self) -> u32 {
        self.refits
    }

    /// Probability that the token at `position` (from 0) is accepted if all before it are, when the draft gave it
    /// probability `q`.
    #[inline]
    pub(crate) fn predict(&self, q: f64, position: usize) -> f64 {
        self.sigmoid(feature(q), position)
    }

    #[inline]
    fn sigmoid(&self, x: f64, position: usize) -> f64 {
        1.0 / (1.0 + (-(self.slope * x + self.intercepts[position])).exp())
    }

    /// Takes in a step: a position is observed if it was verified and everything before it accepted.
    pub(crate) fn observe(&mut self, outcome: &StepOutcome) {
        for (i, (&accepted, &verified)) in outcome.accepted.iter().zip(outcome.verified).enumerate() {
            for j in 0..verified.min(accepted + 1) {
                self.add(outcome.drafts.confidence(i, j as usize), j as usize, j < accepted);
            }
        }
        self.steps += 1;
        if self.steps == self.refit_interval {
            self.refit();
        }
    }

    fn add(&mut self, q: f64, position: usize, accepted: bool) {
        let x = feature(q);
        let c = self.sigmoid(x, position);
        let (w, residual) = (c * (1.0 - c), f64::from(u8::from(accepted)) - c);
        let at = &mut self.at[position];
        at.coupling += w * x;
        at.weight += w;
        at.score += residual;
        at.n += 1.0;
        self.slope_weight += w * x * x;
        self.slope_score += residual * x;
    }

    /// One damped Newton step on the sums, which start over. A slope that would fall below 0 stays; the intercepts move.
    fn refit(&mut self) {
        let (mut information, mut score, mut n) = (self.slope_weight + RIDGE, self.slope_score, 0.0);
        for at in &self.at {
            let weight = at.weight + RIDGE;
            information -= at.coupling * at.coupling / weight;
            score -= at.coupling * at.score / weight;
            n += at.n;
        }
        let step = score / information * n / (n + DAMPING);
        let slope_step = if self.slope + step >= 0.0 { step } else { 0.0 };
        self.slope += slope_step;
        for (intercept, at) in self.intercepts.iter_mut().zip(&mut self.at) {
            let step = (at.score - at.coupling * slope_step) / (at.weight + RIDGE) * at.n / (at.n + DAMPING);
            *intercept += if step.is_nan() { 0.0 } else { step };
            *at = Sums::default();
        }
        (self.slope_weight, self.slope_score) = (0.0, 0.0);
        self.steps = 0;
        self.refits += 1;
    }
}

#[cfg(test)]
#[path = "acceptance_estimator_tests.rs"]
mod tests;
