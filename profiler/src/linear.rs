//! Fits α, γ, δ of a linear pass cost in two ways: by non-negative least squares on relative errors, and by ordinary
//! least squares, which gives standard errors and p-values.

use crate::fit::{FitError, Sample, condition};
use crate::nnls::nnls;
use crate::profile::{LinearFit, OlsFit};
use linregress::fit_low_level_regression_model;
use nalgebra::{DMatrix, DVector};

/// Fits α, γ, δ ≥ 0 by least squares on relative errors: every equation is divided by its measured time (see
/// [`crate::fit`]). The standard errors come from a least-squares fit of only those coefficients that are above 0. A
/// coefficient of 0 has the standard error 0.
pub fn fit_linear(samples: &[Sample]) -> Result<LinearFit, FitError> {
    if samples.len() < 4 {
        return Err(FitError::TooFew(samples.len()));
    }
    let condition = condition(samples);
    if condition > crate::fit::SINGULAR {
        return Err(FitError::Collinear { condition });
    }
    let a = DMatrix::from_fn(samples.len(), 3, |i, j| row(&samples[i])[j] / samples[i].seconds);
    let b = DVector::from_element(samples.len(), 1.0);
    let x = nnls(&a, &b);
    let se = standard_errors(&a, &b, &x);
    Ok(LinearFit {
        alpha_s: x[0],
        gamma_s: x[1],
        delta_s: x[2],
        alpha_se_s: se[0],
        gamma_se_s: se[1],
        delta_se_s: se[2],
        condition,
        shapes: samples.len() as u64,
    })
}

fn row(s: &Sample) -> [f64; 3] {
    [s.context, s.batched, 1.0]
}

/// Returns the standard errors of the coefficients `x` of A·x ≈ b: √(residual variance · diagonal of (AᵀA)⁻¹). A has
/// only the columns whose coefficient is above 0. Coefficients of 0 have the standard error 0.
fn standard_errors(a: &DMatrix<f64>, b: &DVector<f64>, x: &DVector<f64>) -> [f64; 3] {
    let used: Vec<usize> = (0..3).filter(|&j| x[j] > 0.0).collect();
    let own = a.select_columns(&used);
    let variance = (a * x - b).norm_squared() / (a.nrows() - used.len()).max(1) as f64;
    let mut out = [0.0; 3];
    if let Some(inverse) = (own.transpose() * own).try_inverse() {
        used.iter().enumerate().for_each(|(i, &j)| out[j] = (variance * inverse[(i, i)]).max(0.0).sqrt());
    }
    out
}

/// Fits α, γ, δ by ordinary least squares on seconds. The coefficients may be negative. The fit also gives standard
/// errors and p-values.
pub fn fit_ols(samples: &[Sample]) -> Result<OlsFit, FitError> {
    if samples.len() < 4 {
        return Err(FitError::TooFew(samples.len()));
    }
    // The columns are scaled to about 1, so that the pseudo-inverse is well-conditioned. Times are divided by the time
    // of the longest pass.
    let most = |value: fn(&Sample) -> f64| samples.iter().map(value).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let (context, batched, longest) = (most(|s| s.context), most(|s| s.batched), most(|s| s.seconds));
    let row = |s: &Sample| [s.seconds / longest, 1.0, s.context / context, s.batched / batched];
    let rows: Vec<f64> = samples.iter().flat_map(row).collect();
    let model =
        fit_low_level_regression_model(&rows, samples.len(), 4).map_err(|e| FitError::Regression(e.to_string()))?;
    let (value, se, p) = (model.parameters(), model.se(), model.p_values());
    Ok(OlsFit {
        alpha_s: value[1] * longest / context,
        gamma_s: value[2] * longest / batched,
        delta_s: value[0] * longest,
        alpha_se_s: se[1] * longest / context,
        gamma_se_s: se[2] * longest / batched,
        delta_se_s: se[0] * longest,
        alpha_p: p[1],
        gamma_p: p[2],
        delta_p: p[0],
        r2: model.rsquared(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{Coefficients, Luck, Stream};

    const TRUE: Coefficients = Coefficients { alpha_s: 0.26e-6, gamma_s: 60e-6, delta_s: 9e-3 };

    /// Samples (pass times) of a test machine with the costs `c`, with uniform relative noise of up to ±`noise`.
    fn samples(c: Coefficients, noise: f64) -> Vec<Sample> {
        let luck = Luck::new(3, Stream::Profile, 0);
        let sample = |(i, (batched, context)): (usize, (f64, f64))| {
            let seconds = c.pass_s(context, batched) * (1.0 + noise * (2.0 * luck.unit(i as u64) - 1.0));
            Sample { context, batched, seconds }
        };
        let grid = [1.0, 2.0, 4.0, 8.0, 16.0, 64.0].into_iter().flat_map(|b| [0.0, 1e3, 1e4, 4e4].map(|c| (b, c)));
        grid.enumerate().map(sample).collect()
    }

    #[test]
    fn known_coefficients_come_back() {
        let fit = fit_linear(&samples(TRUE, 0.0)).unwrap();
        let ols = fit_ols(&samples(TRUE, 0.0)).unwrap();
        let pairs = [
            (fit.alpha_s, TRUE.alpha_s),
            (fit.gamma_s, TRUE.gamma_s),
            (fit.delta_s, TRUE.delta_s),
            (ols.alpha_s, TRUE.alpha_s),
            (ols.gamma_s, TRUE.gamma_s),
            (ols.delta_s, TRUE.delta_s),
        ];
        for (got, want) in pairs {
            assert!((got / want - 1.0).abs() < 1e-8, "{got} against {want}");
        }
        assert!(ols.r2 > 1.0 - 1e-9);
    }

    #[test]
    fn with_noise_the_truth_lies_within_four_standard_errors() {
        let fit = fit_linear(&samples(TRUE, 0.05)).unwrap();
        let ols = fit_ols(&samples(TRUE, 0.05)).unwrap();
        let coefficients = [
            (fit.alpha_s, fit.alpha_se_s, TRUE.alpha_s),
            (fit.gamma_s, fit.gamma_se_s, TRUE.gamma_s),
            (fit.delta_s, fit.delta_se_s, TRUE.delta_s),
            (ols.alpha_s, ols.alpha_se_s, TRUE.alpha_s),
            (ols.delta_s, ols.delta_se_s, TRUE.delta_s),
        ];
        for (got, se, want) in coefficients {
            assert!(se > 0.0 && se < 0.1 * want, "{se} of {want}");
            assert!((got - want).abs() < 4.0 * se, "{got} ± {se} against {want}");
        }
        assert!(ols.delta_p < 1e-6, "{ols:?}");
    }

    #[test]
    fn a_negative_coefficient_becomes_zero_and_the_others_are_fitted() {
        // With this negative α, passes become faster with a longer context, which no real machine does.
        let odd = Coefficients { alpha_s: -0.1e-6, gamma_s: 60e-6, delta_s: 9e-3 };
        let fit = fit_linear(&samples(odd, 0.0)).unwrap();
        assert_eq!((fit.alpha_s, fit.alpha_se_s), (0.0, 0.0));
        assert!(fit.delta_s < 9e-3 && fit.delta_s > 6e-3, "{fit:?}");
        assert!(fit_ols(&samples(odd, 0.0)).unwrap().alpha_s < 0.0);
    }

    #[test]
    fn data_that_cannot_be_fitted_give_a_reason() {
        assert_eq!(fit_linear(&[]), Err(FitError::TooFew(0)));
        let one_context: Vec<_> = samples(TRUE, 0.0).into_iter().filter(|s| s.context == 0.0).collect();
        assert!(matches!(fit_linear(&one_context), Err(FitError::Collinear { .. })));
    }
}
