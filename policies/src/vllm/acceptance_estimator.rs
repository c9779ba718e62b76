//! vLLM's online acceptance estimator: it maps the draft model's probability q of a draft token to the probability that
//! the token is accepted. The mapping is learned while serving.
//!
//! Source: vLLM 0.33.0 `v1/worker/gpu/spec_decode/acceptance_estimator.py` (PR #52228), whose kernels were executed for
//! the fixture that the tests compare with (`tests/policies`). It is a logistic model over the feature logit(q), with
//! one slope for all draft positions and an intercept for each. Every `refit_interval` steps it takes one damped Newton
//! step on the sums since the last refit, then resets the sums. The information matrix is an arrowhead (slope against
//! each intercept), so eliminating the intercepts leaves one equation for the slope. Everything is in single precision,
//! as on vLLM's device. A q that rounds to 1 therefore gets the greatest feature.

use foretoken_sim::StepOutcome;

/// The feature logit(q) of a draft token with the confidence q is clamped to ± `MAX_FEATURE`.
const MAX_FEATURE: f32 = 40.0;
/// Slope of the acceptance estimator (a logistic model over logit(q)) at the start. The start values of slope and
/// intercepts are the medians that vLLM's authors fitted on five models.
const START_SLOPE: f32 = 0.5;
const START_INTERCEPT: f32 = -0.2;
/// Ridge that is added to the information (the denominators of the Newton step) of the slope and of each intercept.
const RIDGE: f32 = 1e-3;
/// After n observed draft tokens, a refit moves the slope or an intercept by n / (n + `DAMPING`) of a full Newton step.
const DAMPING: f32 = 50.0;

/// logit(q) of a draft token to which the draft model gave probability `q`. vLLM computes it from Σ exp(logit −
/// greatest logit) over the vocabulary, which is 1 / q for the likeliest token.
#[inline]
fn feature(q: f64) -> f32 {
    let others = ((1.0 / q) as f32 - 1.0).max(0.0);
    (-others.ln()).clamp(-MAX_FEATURE, MAX_FEATURE)
}

/// The acceptance estimator's result for a draft token: the feature logit(q) of its confidence q, and the probability
/// that the token is accepted if all tokens before it are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Estimate {
    feature: f32,
    chance: f32,
}

impl Estimate {
    /// Probability that the draft token is accepted if all before it are.
    #[inline]
    pub(crate) fn chance(self) -> f64 {
        f64::from(self.chance)
    }
}

/// Sums over the draft tokens at one draft position whose outcome was observed since the last refit. x is a token's
/// feature logit(q), c its predicted acceptance probability, w = c(1 − c), and its label is 1 if it was accepted, else
/// 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums<T> {
    /// Σ w·x² over the observed draft tokens, with the feature x = logit(q) and the weight w = c(1 − c) of each; c is
    /// its predicted acceptance probability.
    square: T,
    /// Σ w·x over the observed draft tokens, with the feature x = logit(q) and the weight w = c(1 − c) of each; c is
    /// its predicted acceptance probability.
    coupling: T,
    /// Σ w over the observed draft tokens of one draft position, with the weight w = c(1 − c) and the predicted
    /// acceptance probability c of each.
    weight: T,
    /// Σ (label − c)·x over the observed draft tokens: the label is 1 if accepted, else 0; c is the predicted
    /// acceptance probability, x the feature logit(q).
    slope_score: T,
    /// Σ (label − c) over the observed draft tokens: the label is 1 if accepted, else 0; c is the predicted acceptance
    /// probability.
    score: T,
    /// Number of draft tokens at this position whose outcome was observed since the last refit.
    n: T,
}

/// A sum over the requests of a step, kept in eight partial sums that are added pairwise, so that rounding errors are
/// as small as in vLLM's sums on the GPU.
type Lanes = [f32; 8];

fn total(lanes: &Lanes) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

impl Sums<f32> {
    /// Adds the sums of one step to the sums since the last refit. The eight partial sums of each are added up first.
    fn add(&mut self, step: &Sums<Lanes>) {
        self.square += total(&step.square);
        self.coupling += total(&step.coupling);
        self.weight += total(&step.weight);
        self.slope_score += total(&step.slope_score);
        self.score += total(&step.score);
        self.n += total(&step.n);
    }
}

/// Estimates how likely draft tokens are accepted. Holds the slope and intercepts of a logistic model, and the sums
/// over observed draft tokens since the last refit.
#[derive(Clone, Debug)]
pub(crate) struct AcceptanceEstimator {
    slope: f32,
    intercepts: Vec<f32>,
    /// For each draft position: the sums over the observed draft tokens of all steps since the last refit (`at`), and
    /// of the present step (`step`).
    at: Vec<Sums<f32>>,
    step: Vec<Sums<Lanes>>,
    refit_interval: u32,
    /// The most by which one refit may change the slope or an intercept; infinite in vLLM.
    most_step: f32,
    steps: u32,
    refits: u32,
}

impl AcceptanceEstimator {
    /// An acceptance estimator for up to `positions` draft tokens per request and step that refits every
    /// `refit_interval` steps.
    pub(crate) fn new(positions: u32, refit_interval: u32) -> AcceptanceEstimator {
        let positions = positions as usize;
        AcceptanceEstimator {
            slope: START_SLOPE,
            intercepts: vec![START_INTERCEPT; positions],
            at: vec![Sums::default(); positions],
            step: vec![Sums::default(); positions],
            refit_interval,
            most_step: f32::INFINITY,
            steps: 0,
            refits: 0,
        }
    }

    /// The same acceptance estimator, but no refit moves the slope or an intercept by more than `most`. A refit after
    /// few draft tokens, all of them with a predicted acceptance probability near 0 or 1, has almost no weight, and its
    /// Newton step can be hundreds. The predictions are then 0 or 1 for all tokens.
    pub(crate) fn with_steps_up_to(self, most: f32) -> AcceptanceEstimator {
        AcceptanceEstimator { most_step: most, ..self }
    }

    /// For tests: sets the slope and the intercepts of all draft positions.
    #[cfg(test)]
    pub(crate) fn set(&mut self, slope: f32, intercept: f32) {
        self.slope = slope;
        self.intercepts.fill(intercept);
    }

    /// The coefficients of the logistic model: the slope, then the intercept of each draft position.
    #[cfg(test)]
    pub(crate) fn coefficients(&self) -> Vec<f32> {
        [self.slope].into_iter().chain(self.intercepts.iter().copied()).collect()
    }

    /// Number of refits of the slope and intercepts so far.
    pub(crate) fn refits(&self) -> u32 {
        self.refits
    }

    /// Probability that the draft token at `position` (from 0) is accepted if all before it are; the draft model gave
    /// it probability `q`.
    #[inline]
    pub(crate) fn predict(&self, q: f64, position: usize) -> f64 {
        self.estimate(q, position).chance()
    }

    /// The feature and predicted acceptance probability of the draft token at `position` (from 0); the draft model gave
    /// it probability `q`. They change only when the estimator refits.
    #[inline]
    pub(crate) fn estimate(&self, q: f64, position: usize) -> Estimate {
        let feature = feature(q);
        Estimate { feature, chance: self.sigmoid(feature, position) }
    }

    #[inline]
    fn sigmoid(&self, x: f32, position: usize) -> f32 {
        1.0 / (1.0 + (-(self.slope * x + self.intercepts[position])).exp())
    }

    /// Adds the outcome of a step, also of a step without draft tokens. A draft token counts as observed if it was
    /// verified and all before it were accepted. Refits after every `refit_interval` steps.
    pub(crate) fn observe(&mut self, outcome: &StepOutcome) {
        self.observe_known(outcome, |_, _| None);
    }

    /// Adds the outcome of a step as [`observe`](AcceptanceEstimator::observe) does, but saves the computation of
    /// predictions that the caller knows. `known(i, j)` gives the [`estimate`](AcceptanceEstimator::estimate) of draft
    /// token j (from 0) of request i; `None` if it is not known.
    pub(crate) fn observe_known(&mut self, outcome: &StepOutcome, known: impl Fn(usize, usize) -> Option<Estimate>) {
        self.step.fill(Sums::default());
        for (i, (&accepted, &verified)) in outcome.accepted.iter().zip(outcome.verified).enumerate() {
            for j in 0..verified.min(accepted + 1) {
                let at = j as usize;
                let estimate = known(i, at).unwrap_or_else(|| self.estimate(outcome.drafts.confidence(i, at), at));
                self.add(i % 8, estimate, at, j < accepted);
            }
        }
        self.at.iter_mut().zip(&self.step).for_each(|(at, step)| at.add(step));
        self.steps += 1;
        if self.steps == self.refit_interval {
            self.refit();
        }
    }

    fn add(&mut self, lane: usize, estimate: Estimate, position: usize, accepted: bool) {
        let Estimate { feature: x, chance: c } = estimate;
        let (w, residual) = (c * (1.0 - c), f32::from(u8::from(accepted)) - c);
        let step = &mut self.step[position];
        step.square[lane] += w * x * x;
        step.coupling[lane] += w * x;
        step.weight[lane] += w;
        step.slope_score[lane] += residual * x;
        step.score[lane] += residual;
        step.n[lane] += 1.0;
    }

    /// Refits the slope and the intercepts: takes one damped Newton step on the sums since the last refit, and resets
    /// these sums. If the slope would fall below 0, only the intercepts move.
    fn refit(&mut self) {
        let (mut square, mut score, mut n) = (0.0, 0.0, 0.0);
        let (mut shrink, mut coupling) = (0.0, 0.0);
        for at in &self.at {
            let weight = at.weight + RIDGE;
            square += at.square;
            score += at.slope_score;
            shrink += at.coupling * at.coupling / weight;
            coupling += at.coupling * at.score / weight;
            n += at.n;
        }
        let limited = |step: f32| if step.is_nan() { step } else { step.clamp(-self.most_step, self.most_step) };
        let step = limited((score - coupling) / (square + RIDGE - shrink) * (n / (n + DAMPING)));
        // If the Newton step of the slope is NaN, the comparison is false, so the slope stays.
        let slope_step = if self.slope + step >= 0.0 { step } else { 0.0 };
        self.slope += slope_step;
        for (intercept, at) in self.intercepts.iter_mut().zip(&mut self.at) {
            let step = limited((at.score - at.coupling * slope_step) / (at.weight + RIDGE) * (at.n / (at.n + DAMPING)));
            *intercept += if step.is_nan() { 0.0 } else { step };
            *at = Sums::default();
        }
        self.steps = 0;
        self.refits += 1;
    }
}

#[cfg(test)]
#[path = "acceptance_estimator_tests.rs"]
mod tests;
