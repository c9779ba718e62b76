//! Fits α, γ, δ of `T = α·context + γ·batched + δ`, where T is the time of a pass, by least squares on relative errors.
//!
//! Pass times span two orders of magnitude, from a decode of one request to a full prefill budget. Plain least squares
//! would fit the long passes, and the short passes could be wrong by factors. Each equation is therefore divided by its
//! measured time. All passes then have equal weights, and the residuals are relative errors, by which users judge a
//! fit.

use foretoken_sim::Coefficients;
use linregress::fit_low_level_regression_model_without_statistics;

/// One pass, measured or given by a latency model. Each sample is one equation of the fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Number of context tokens that the pass reads, summed over its requests.
    pub context: f64,
    /// Number of new tokens in the pass, summed over its requests.
    pub batched: f64,
    /// Time of the pass, seconds, above 0.
    pub seconds: f64,
}

/// The fitted coefficients α, γ, δ with their statistics, and whether the fit is trusted.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The coefficients of the pass time: α per token of context, γ per batched token, δ per pass, in seconds. All are
    /// at least 0.
    pub coefficients: Coefficients,
    pub mean_error: f64,
    /// Largest relative error of the fitted pass times.
    pub max_error: f64,
    /// Condition number of the equations, with columns scaled to unit length. A large number means that the shapes
    /// hardly separate the effects of context, batched tokens and the constant term.
    pub condition: f64,
    /// Number of passes (samples) to which the coefficients were fitted.
    pub n: usize,
    /// True if the fit is good enough to use without a warning.
    pub trusted: bool,
    /// The reasons why the fit is not trusted; empty if it is trusted.
    pub reasons: Vec<String>,
}

/// Why [`fit`] or another fit of this crate has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// There are fewer than 4 samples, too few for three coefficients.
    #[error("{0} samples cannot fit three coefficients: at least 4 shapes are needed")]
    TooFew(usize),
    /// A value of a sample is negative or not finite, or its time is 0.
    #[error("sample {index} is no measurement: {what}")]
    BadSample {
        /// Index of the sample, from 0.
        index: usize,
        /// The sample's values, as text.
        what: String,
    },
    /// Over the measured shapes, the three terms of the pass time (context, batched tokens, constant) grow together.
    /// The time can then be divided among the terms in many ways that fit equally well.
    #[error(
        "the shapes do not tell alpha, gamma and delta apart (condition {condition:.0e}): vary context at equal batched tokens, and batched tokens at equal context"
    )]
    Collinear {
        /// The condition number of the equations of the fit, with columns scaled to unit length.
        condition: f64,
    },
    /// The least-squares solver reported an error.
    #[error("least squares failed: {0}")]
    Regression(String),
}

/// A linear fit is not trusted if the mean relative error of its pass times is above this share.
const MEAN_ERROR: f64 = 0.05;
/// A linear fit is not trusted if the largest relative error of its pass times is above this share.
const MAX_ERROR: f64 = 0.25;
/// A linear fit is not trusted if the condition number of its equations is above this bound, the usual sign of harmful
/// collinearity (Belsley, Kuh and Welsch 1980, Regression Diagnostics, section 3.2).
const CONDITION: f64 = 30.0;
/// If the condition number of the equations is above this bound, there is no fit, because the coefficients would
/// consist of rounding errors.
pub(crate) const SINGULAR: f64 = 1e6;

/// Fits α, γ, δ to the samples. A negative coefficient is set to 0, the other coefficients stay as they are, and the
/// fit is not trusted.
pub fn fit(samples: &[Sample]) -> Result<Fit, FitError> {
    if samples.len() < 4 {
        return Err(FitError::TooFew(samples.len()));
    }
    for (index, s) in samples.iter().enumerate() {
        let sane = |x: f64| x >= 0.0 && x.is_finite();
        if !(sane(s.context) && sane(s.batched) && s.seconds > 0.0 && s.seconds.is_finite()) {
            return Err(FitError::BadSample { index, what: format!("{s:?}") });
        }
    }
    let condition = condition(samples);
    if condition > SINGULAR {
        return Err(FitError::Collinear { condition });
    }
    let mut reasons = Vec::new();
    if condition > CONDITION {
        reasons.push(format!("the shapes hardly tell alpha, gamma and delta apart (condition {condition:.0})"));
    }
    let mut c = solve(samples)?;
    // A negative coefficient is noise around zero, or a sign that the shapes hardly separate the effects of context,
    // batched tokens and the constant term. A coefficient that changes every pass by less than a billionth is a
    // rounding error: it becomes 0 without a report.
    let most = |f: fn(&Sample) -> f64| samples.iter().map(|s| f(s) / s.seconds).fold(0.0, f64::max);
    let weights = [most(|s| s.context), most(|s| s.batched), most(|_| 1.0)];
    let terms = [("alpha", &mut c.alpha_s), ("gamma", &mut c.gamma_s), ("delta", &mut c.delta_s)];
    for ((name, value), weight) in terms.into_iter().zip(weights) {
        if value.abs() * weight < 1e-9 {
            *value = 0.0;
        }
        if *value < 0.0 {
            reasons.push(format!("{name} came out negative ({value:.3e} s) and was set to 0"));
            *value = 0.0;
        }
    }
    let errors: Vec<f64> = samples.iter().map(|s| (c.pass_s(s.context, s.batched) / s.seconds - 1.0).abs()).collect();
    let mean_error = errors.iter().sum::<f64>() / errors.len() as f64;
    let max_error = errors.iter().copied().fold(0.0, f64::max);
    if mean_error > MEAN_ERROR {
        reasons.push(format!("mean relative error {:.1} %", mean_error * 100.0));
    }
    if max_error > MAX_ERROR {
        reasons.push(format!("largest relative error {:.0} %", max_error * 100.0));
    }
    let trusted = reasons.is_empty();
    Ok(Fit { coefficients: c, mean_error, max_error, condition, n: samples.len(), trusted, reasons })
}

fn solve(samples: &[Sample]) -> Result<Coefficients, FitError> {
    // The equations are 1 = α·(context/T) + γ·(batched/T) + δ·(1/T), where T is the measured time. The columns are
    // scaled to about 1, so that the system is well-conditioned.
    let scale = |f: fn(&Sample) -> f64| samples.iter().map(|s| f(s) / s.seconds).fold(0.0, f64::max).max(1e-300);
    let (context, batched, one) = (scale(|s| s.context), scale(|s| s.batched), scale(|_| 1.0));
    let row =
        |s: &Sample| [1.0, s.context / s.seconds / context, s.batched / s.seconds / batched, 1.0 / s.seconds / one];
    let rows: Vec<f64> = samples.iter().flat_map(row).collect();
    let p = fit_low_level_regression_model_without_statistics(&rows, samples.len(), 4)
        .map_err(|e| FitError::Regression(e.to_string()))?;
    Ok(Coefficients { alpha_s: p[0] / context, gamma_s: p[1] / batched, delta_s: p[2] / one })
}

/// Returns the condition number of the equations: the square root of the ratio of the largest to the smallest
/// eigenvalue of the Gram matrix of the three columns, scaled to unit length. Infinite if a column is a linear
/// combination of the other columns.
pub(crate) fn condition(samples: &[Sample]) -> f64 {
    let columns: [fn(&Sample) -> f64; 3] = [|s| s.context / s.seconds, |s| s.batched / s.seconds, |s| 1.0 / s.seconds];
    let dot = |i: usize, j: usize| samples.iter().map(|s| columns[i](s) * columns[j](s)).sum::<f64>();
    let cosine = |i, j| dot(i, j) / (dot(i, i) * dot(j, j)).sqrt();
    let (a, b, c) = (cosine(0, 1), cosine(0, 2), cosine(1, 2));
    // The Gram matrix is a symmetric 3 × 3 matrix with a unit diagonal. Its eigenvalues have the closed form 1 + 2p
    // cos(angle) (Smith 1961).
    let p = ((a * a + b * b + c * c) / 3.0).sqrt();
    if p == 0.0 {
        return 1.0;
    }
    // `p` is NaN if a column has only zeros. Then the effects of context, batched tokens and the constant term cannot
    // be separated.
    if p.is_nan() {
        return f64::INFINITY;
    }
    let angle = (a * b * c / p.powi(3)).clamp(-1.0, 1.0).acos() / 3.0;
    let eigenvalue = |turn: f64| 1.0 + 2.0 * p * (angle + turn * std::f64::consts::TAU / 3.0).cos();
    // If the smallest eigenvalue is zero, its computed value is a rounding error, which may be negative. A negative
    // value counts as 0.
    (eigenvalue(0.0) / eigenvalue(1.0).max(0.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(c: Coefficients, noise: f64) -> Vec<Sample> {
        let mut samples = Vec::new();
        for batched in [1.0, 2.0, 8.0, 64.0, 512.0] {
            for context in [0.0, 1000.0, 30_000.0] {
                let wobble = 1.0 + noise * if samples.len() % 2 == 0 { 1.0 } else { -1.0 };
                samples.push(Sample { context, batched, seconds: c.pass_s(context, batched) * wobble });
            }
        }
        samples
    }

    const TRUE: Coefficients = Coefficients { alpha_s: 0.26e-6, gamma_s: 60e-6, delta_s: 9e-3 };

    #[test]
    fn a_line_is_recovered() {
        let fit = fit(&line(TRUE, 0.0)).unwrap();
        let c = fit.coefficients;
        for (got, want) in [(c.alpha_s, TRUE.alpha_s), (c.gamma_s, TRUE.gamma_s), (c.delta_s, TRUE.delta_s)] {
            assert!((got / want - 1.0).abs() < 1e-9, "{got} against {want}");
        }
        assert!(fit.trusted && fit.max_error < 1e-9);
    }

    #[test]
    fn absent_terms_are_zero_and_no_reason_for_distrust() {
        let only = Coefficients { alpha_s: 0.0, gamma_s: 60e-6, delta_s: 9e-3 };
        let fit = fit(&line(only, 0.0)).unwrap();
        assert_eq!((fit.coefficients.alpha_s, fit.trusted), (0.0, true), "{fit:?}");
    }

    #[test]
    fn noise_is_reported_and_too_much_is_not_trusted() {
        let good = fit(&line(TRUE, 0.02)).unwrap();
        assert!(good.trusted && (0.01..0.03).contains(&good.mean_error), "{good:?}");
        let poor = fit(&line(TRUE, 0.2)).unwrap();
        assert!(!poor.trusted && poor.reasons[0].contains("relative error"), "{poor:?}");
    }

    #[test]
    fn data_that_cannot_be_fitted_give_a_reason() {
        assert_eq!(fit(&[]), Err(FitError::TooFew(0)));
        let mut samples = line(TRUE, 0.0);
        samples[3].seconds = -1.0;
        assert!(matches!(fit(&samples), Err(FitError::BadSample { index: 3, .. })));
    }

    /// If all requests have one length, context and batched tokens grow together. Then their costs α and γ cannot be
    /// separated.
    #[test]
    fn shapes_that_cannot_separate_the_terms_are_refused_or_distrusted() {
        let sample = |batched: f64, context: f64| Sample { context, batched, seconds: TRUE.pass_s(context, batched) };
        let proportional: Vec<Sample> = (1..20).map(|b| sample(f64::from(b), 500.0 * f64::from(b))).collect();
        let refused = fit(&proportional).unwrap_err();
        assert!(matches!(refused, FitError::Collinear { .. }), "{refused}");
        let no_context: Vec<Sample> = (1..20).map(|b| sample(f64::from(b), 0.0)).collect();
        assert!(matches!(fit(&no_context), Err(FitError::Collinear { .. })));
        let nearly = (1..20).map(|b| sample(f64::from(b), 500.0 * f64::from(b) * if b % 2 == 0 { 1.02 } else { 1.0 }));
        let fitted = fit(&nearly.collect::<Vec<_>>()).unwrap();
        assert!(!fitted.trusted && fitted.reasons[0].contains("apart"), "{fitted:?}");
        assert!(fit(&line(TRUE, 0.0)).unwrap().condition < 10.0);
    }
}
