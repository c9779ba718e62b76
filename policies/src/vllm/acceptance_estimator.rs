//! vLLM's online acceptance estimator: it maps the draft's probability q of a token to the probability that the token
//! is accepted. The mapping is learned while serving.
//!
//! Source: vLLM 0.33.0 `v1/worker/gpu/spec_decode/acceptance_estimator.py` (PR #52228), whose kernels were executed for
//! the fixture that the tests compare with (`tests/policies`). It is a logistic model over the feature logit(q), with
//! one slope for all draft positions and an intercept for each. Every `refit_interval` steps it takes one damped Newton
//! step on the sums since the last refit, then resets the sums. The information matrix is an arrowhead (slope against
//! each intercept), so eliminating the intercepts leaves one equation for the slope. Everything is in single precision,
//! as on vLLM's device. A q that rounds to 1 therefore gets the greatest feature.

use foretoken_sim::StepOutcome;

/// The feature logit(q) is clamped to ± `MAX_FEATURE`.
const MAX_FEATURE: f32 = 40.0;
/// Slope and intercepts at the start: the medians that vLLM's authors fitted on five models.
const START_SLOPE: f32 = 0.5;
const START_INTERCEPT: f32 = -0.2;
/// Ridge added to the slope's and each intercept's information.
const RIDGE: f32 = 1e-3;
/// A parameter observed n times moves n / (n + `DAMPING`) of a full Newton step.
const DAMPING: f32 = 50.0;

/// logit(q) of a token to which the draft gave probability `q`. vLLM computes it from Σ exp(logit − greatest logit)
/// over the vocabulary, which is 1 / q for the likeliest token.
#[inline]
fn feature(q: f64) -> f32 {
    let others = ((1.0 / q) as f32 - 1.0).max(0.0);
    (-others.ln()).clamp(-MAX_FEATURE, MAX_FEATURE)
}

/// What the estimator makes of a token: the feature of its confidence, and the probability that it is accepted if all
/// tokens before it are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Estimate {
    feature: f32,
    chance: f32,
}

impl Estimate {
    /// Probability that the token is accepted if all tokens before it are.
    #[inline]
    pub(crate) fn chance(self) -> f64 {
        f64::from(self.chance)
    }
}

/// Sums over the observations of one draft position since the last refit. x is the feature, c the predicted acceptance
/// probability, w = c(1 − c), and the label 1 if the token was accepted, else 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums<T> {
    /// Σ w·x², with the feature x and the weight w = c(1 − c) of each observation.
    square: T,
    /// Σ w·x, with the feature x and the weight w = c(1 − c) of each observation.
    coupling: T,
    /// Σ w, with the weight w = c(1 − c) of each observation.
    weight: T,
    /// Σ (label − c)·x, with the feature x and the predicted probability c of each observation.
    slope_score: T,
    /// Σ (label − c), with the predicted probability c of each observation.
    score: T,
    /// Number of observations.
    n: T,
}

/// A sum over the requests of a step, kept in eight partial sums that are added pairwise, so that rounding errors are
/// as small as on a device.
type Lanes = [f32; 8];

fn total(lanes: &Lanes) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

impl Sums<f32> {
    /// Adds the sums of a step. The eight lanes of each sum are added up first.
    fn add(&mut self, step: &Sums<Lanes>) {
        self.square += total(&step.square);
        self.coupling += total(&step.coupling);
        self.weight += total(&step.weight);
        self.slope_score += total(&step.slope_score);
        self.score += total(&step.score);
        self.n += total(&step.n);
    }
}

/// The estimator: its slope and intercepts, and the sums since the last refit.
#[derive(Clone, Debug)]
pub(crate) struct AcceptanceEstimator {
    slope: f32,
    intercepts: Vec<f32>,
    /// Sums of each position since the last refit; `step` are the sums of the present step.
    at: Vec<Sums<f32>>,
    step: Vec<Sums<Lanes>>,
    refit_interval: u32,
    /// How far a refit moves a parameter at most; infinite in vLLM.
    most_step: f32,
    steps: u32,
    refits: u32,
}

impl AcceptanceEstimator {
    /// An estimator for drafts of up to `positions` tokens that refits every `refit_interval` steps.
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

    /// The same estimator, but no refit moves a parameter by more than `most`. A refit after few tokens, all of them
    /// with a predicted chance near 0 or 1, has almost no weight, and its Newton step can be hundreds. The chances are
    /// then 0 or 1 for all tokens.
    pub(crate) fn with_steps_up_to(self, most: f32) -> AcceptanceEstimator {
        AcceptanceEstimator { most_step: most, ..self }
    }

    /// Sets the slope and all intercepts, for tests.
    #[cfg(test)]
    pub(crate) fn set(&mut self, slope: f32, intercept: f32) {
        self.slope = slope;
        self.intercepts.fill(intercept);
    }

    /// The slope, then the intercepts.
    #[cfg(test)]
    pub(crate) fn coefficients(&self) -> Vec<f32> {
        [self.slope].into_iter().chain(self.intercepts.iter().copied()).collect()
    }

    /// Number of refits so far.
    pub(crate) fn refits(&self) -> u32 {
        self.refits
    }

    /// Probability that the token at `position` (from 0) is accepted if all before it are; the draft gave it
    /// probability `q`.
    #[inline]
    pub(crate) fn predict(&self, q: f64, position: usize) -> f64 {
        self.estimate(q, position).chance()
    }

    /// The estimate of the token at `position` (from 0); the draft gave it probability `q`. It changes only when the
    /// estimator refits.
    #[inline]
    pub(crate) fn estimate(&self, q: f64, position: usize) -> Estimate {
        let feature = feature(q);
        Estimate { feature, chance: self.sigmoid(feature, position) }
    }

    #[inline]
    fn sigmoid(&self, x: f32, position: usize) -> f32 {
        1.0 / (1.0 + (-(self.slope * x + self.intercepts[position])).exp())
    }

    /// Adds the outcome of a step, also of a step without drafts. A position is observed if it was verified and all
    /// drafts before it were accepted. Refits after every `refit_interval` steps.
    pub(crate) fn observe(&mut self, outcome: &StepOutcome) {
        self.observe_known(outcome, |_, _| None);
    }

    /// [`observe`](AcceptanceEstimator::observe) if some estimates are known already. `known(i, j)` gives the
    /// [`estimate`](AcceptanceEstimator::estimate) of token j (from 0) of request i; `None` if it is not known.
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

    /// Takes one damped Newton step on the sums, and resets them. If the slope would fall below 0, only the intercepts
    /// move.
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
        // A NaN fails the comparison, so the slope stays.
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
