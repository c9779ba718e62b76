//! The cost of a step, fitted to what steps took: a target pass over its tokens, then the draft passes behind it. One problem of
//! non-negative least squares in errors over the expected time, so that short steps count as much as long ones and the fit is to means.
//!
//! A step of `b` tokens and `c` of context takes T(b, c) + D(b + n) + (K − 1) · D(n) where n requests draft K tokens each: the first draft
//! pass runs over all tokens of the step and one slot a request, the others over a token a request. T is a line through points in
//! b that never falls, and rises with context and with the prompts' tokens; D is α, γ, δ.

use crate::costs::{Part, StepRow};
use foretoken_profiler::nnls::nnls;
use foretoken_sim::Coefficients;
use foretoken_sim::latency::{LatencySpec, MeasuredSpec};
use nalgebra::{DMatrix, DVector};

/// Where the target's line may bend: batched tokens.
const BENDS: [u64; 9] = [1, 4, 8, 16, 32, 64, 128, 256, 1024];

/// Errors are weighed by what a step took in the first round, and by what it is expected to take in these: steps that were
/// short by luck would otherwise count most, and the fit would lie below the mean.
const ROUNDS: usize = 3;

/// A fitted cost.
#[derive(Clone, Debug, PartialEq)]
pub struct CostFit {
    /// `[tokens, seconds]` of a target pass without context.
    pub batched: Vec<(u64, f64)>,
    /// Seconds a token of context that the target reads.
    pub alpha_s: f64,
    /// A draft pass.
    pub draft: Coefficients,
    /// Host time between steps, seconds: the mean.
    pub host_s: f64,
    /// Root mean square of the relative errors.
    pub noise: f64,
}

impl CostFit {
    /// Fits to steps.
    ///
    /// # Panics
    /// Without steps.
    pub fn to(rows: &[StepRow]) -> CostFit {
        let most = rows.iter().map(tokens).max().expect("steps");
        let bends: Vec<u64> = BENDS.into_iter().filter(|&b| b < most).chain([most]).collect();
        let mut expected: Vec<f64> = rows.iter().map(|r| r.elapsed_s).collect();
        let mut fit = CostFit::weighted(rows, &bends, &expected);
        for _ in 0..ROUNDS {
            expected = rows.iter().map(|r| fit.step_s(r).max(f64::MIN_POSITIVE)).collect();
            fit = CostFit::weighted(rows, &bends, &expected);
        }
        let squares: f64 = rows.iter().map(|r| (r.elapsed_s / fit.step_s(r) - 1.0).powi(2)).sum();
        fit.noise = (squares / rows.len() as f64).sqrt();
        fit
    }

    /// Least squares of errors over what is expected of each step.
    fn weighted(rows: &[StepRow], bends: &[u64], expected: &[f64]) -> CostFit {
        let a = DMatrix::from_fn(rows.len(), columns(bends), |i, j| column(&rows[i], bends, j) / expected[i]);
        let x = nnls(&a, &DVector::from_fn(rows.len(), |i, _| rows[i].elapsed_s / expected[i]));
        let ramps = bends.len() - 1;
        let mut at = x[0];
        let mut batched = vec![(bends[0], at)];
        for (i, &bend) in bends.iter().enumerate().skip(1) {
            at += x[i];
            batched.push((bend, at));
        }
        let (alpha_s, d) = (x[1 + ramps], 2 + ramps);
        let host: Vec<f64> = rows.iter().filter_map(|r| r.host_s).collect();
        CostFit {
            batched,
            alpha_s,
            draft: Coefficients { alpha_s: x[d], gamma_s: x[d + 1], delta_s: x[d + 2] },
            host_s: host.iter().sum::<f64>() / host.len().max(1) as f64,
            noise: 0.0,
        }
    }

    /// What a step takes by this fit, seconds.
    pub fn step_s(&self, r: &StepRow) -> f64 {
        let (target, d) = (line(&self.batched, tokens(r)) + self.alpha_s * r.context as f64, &self.draft);
        let draft = d.delta_s * passes(r) + d.gamma_s * draft_tokens(r) + d.alpha_s * draft_context(r);
        match r.part {
            Part::Step => target + draft,
            Part::Target => target,
            Part::Draft => draft,
        }
    }

    /// The target's cost in the form of a latency model.
    pub fn target(&self) -> LatencySpec {
        const FAR: u64 = 1 << 20;
        let context = if self.alpha_s > 0.0 { vec![(0, 0.0), (FAR, self.alpha_s * FAR as f64)] } else { vec![] };
        LatencySpec::Measured(MeasuredSpec { batched: self.batched.clone(), pairs: vec![], context })
    }

    /// The draft's cost in that form.
    pub fn draft_model(&self) -> LatencySpec {
        LatencySpec::Linear(self.draft)
    }

    /// The target's line for beliefs: through what passes of up to `most` tokens take.
    pub fn target_line(&self, most: u64) -> Coefficients {
        // Least squares on relative errors over the sizes, each once.
        let sizes: Vec<u64> = (1..=most.max(2)).collect();
        let a = DMatrix::from_fn(sizes.len(), 2, |i, j| {
            let seconds = line(&self.batched, sizes[i]);
            if j == 0 { 1.0 / seconds } else { sizes[i] as f64 / seconds }
        });
        let x = nnls(&a, &DVector::from_element(sizes.len(), 1.0));
        Coefficients { alpha_s: self.alpha_s, gamma_s: x[1], delta_s: x[0] }
    }
}

/// A constant, the target's ramps, its context; the draft's context, tokens and passes.
fn columns(bends: &[u64]) -> usize {
    bends.len() + 4
}

fn column(r: &StepRow, bends: &[u64], j: usize) -> f64 {
    let ramps = bends.len() - 1;
    match (j, r.part) {
        (j, Part::Draft) if j <= ramps + 1 => 0.0,
        (j, Part::Target) if j > ramps + 1 => 0.0,
        (0, _) => 1.0,
        (j, _) if j <= ramps => {
            // The last one goes on beyond its end.
            let (from, to) = (bends[j - 1] as f64, bends[j] as f64);
            let share = (tokens(r) as f64 - from) / (to - from);
            if j == ramps { share.max(0.0) } else { share.clamp(0.0, 1.0) }
        }
        (j, _) if j == ramps + 1 => r.context as f64,
        (j, _) if j == ramps + 2 => draft_context(r),
        (j, _) if j == ramps + 3 => draft_tokens(r),
        _ => passes(r),
    }
}

/// Tokens that the target runs over.
fn tokens(r: &StepRow) -> u64 {
    r.verified + r.prompt_tokens
}

/// Draft passes behind the step.
fn passes(r: &StepRow) -> f64 {
    f64::from(r.k)
}

/// Tokens of all of them: the first runs over the step's and a slot a request, the others over one a request.
fn draft_tokens(r: &StepRow) -> f64 {
    let requests = f64::from(r.decodes + r.prompts);
    match r.k {
        0 => 0.0,
        k => tokens(r) as f64 + requests * f64::from(k),
    }
}

/// Context that all of them read.
fn draft_context(r: &StepRow) -> f64 {
    r.context as f64 * f64::from(r.k)
}

/// The line through points, gone on beyond the last two.
fn line(points: &[(u64, f64)], x: u64) -> f64 {
    if points.len() == 1 {
        return points[0].1;
    }
    let right = points.partition_point(|p| p.0 < x).clamp(1, points.len() - 1);
    let ((x0, y0), (x1, y1)) = (points[right - 1], points[right]);
    y0 + (y1 - y0) * (x as f64 - x0 as f64) / (x1 - x0) as f64
}
