//! Fits the linear cost formula α·context + γ·batched + δ, by which policies decide, to a latency model that may not be
//! linear.

use crate::fit::{Fit, FitError, Sample, fit};
use foretoken_sim::{Coefficients, LatencyModel, PassShape};

/// Batched tokens of the passes to which the formula is fitted: from one decode to a large batch that verifies many
/// draft tokens. Prefill passes are left out, because policies decide between verification passes.
const BATCHED: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// Context tokens of the passes to which the formula is fitted. Each number is combined with each number of batched
/// tokens.
const CONTEXT: [u64; 6] = [0, 512, 2048, 8192, 32_768, 131_072];

/// Fits α, γ, δ to the latency model `truth` over a grid of decode and verification passes. If the latency model is
/// linear, its coefficients are recovered to 1e-9 (relative). If all passes take no time, the coefficients are 0.
pub fn fit_truth(truth: &dyn LatencyModel) -> Result<Fit, FitError> {
    let mut samples = Vec::new();
    for batched in BATCHED {
        for context in CONTEXT {
            let seconds = truth.pass(PassShape { requests: 1, batched, context, pairs: context + batched }).as_s();
            samples.push(Sample { context: context as f64, batched: batched as f64, seconds });
        }
    }
    if samples.iter().all(|s| s.seconds == 0.0) {
        return Ok(Fit {
            coefficients: Coefficients::FREE,
            mean_error: 0.0,
            max_error: 0.0,
            condition: 1.0,
            n: samples.len(),
            trusted: true,
            reasons: vec![],
        });
    }
    // A pass that takes no time has no relative error, so it is left out of the fit.
    samples.retain(|s| s.seconds > 0.0);
    fit(&samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::LatencySpec;
    use foretoken_sim::Linear;

    #[test]
    fn linear_truths_are_recovered() {
        let c = Coefficients { alpha_s: 0.3e-6, gamma_s: 55e-6, delta_s: 11e-3 };
        let got = fit_truth(&Linear::new(c)).unwrap().coefficients;
        for (got, want) in [(got.alpha_s, c.alpha_s), (got.gamma_s, c.gamma_s), (got.delta_s, c.delta_s)] {
            assert!((got / want - 1.0).abs() < 1e-9, "{got} against {want}");
        }
        assert_eq!(fit_truth(&Linear::new(Coefficients::FREE)).unwrap().coefficients, Coefficients::FREE);
    }

    #[test]
    fn a_truth_that_is_not_linear_is_fitted_and_not_trusted() {
        let roofline: crate::hardware::RooflineSpec =
            serde_json::from_str(r#"{"gpu": "a100-80g", "model": "vicuna-7b", "floors": false}"#).unwrap();
        let fit = fit_truth(&*LatencySpec::Roofline(roofline).build()).unwrap();
        // The latency model is the roofline of a 7B model. In the fit, δ is mostly the time to read the weights, about
        // 8.3 ms, plus overheads.
        assert!((7e-3..11e-3).contains(&fit.coefficients.delta_s), "{fit:?}");
        // α is the time to read the KV of one token: 512 KiB at 80 % of 2,039 GB/s.
        let alpha_s = 524_288.0 / (2039e9 * 0.8);
        assert!((fit.coefficients.alpha_s / alpha_s - 1.0).abs() < 0.05, "{fit:?}");
        // A pass of more than about 90 tokens takes longer to compute than to read the weights. A linear formula cannot
        // follow this bend. The fit reports its errors and is not trusted.
        assert!(!fit.trusted && (0.05..0.15).contains(&fit.mean_error), "{fit:?}");
        let jagged = crate::hardware::StaircaseSpec {
            steps: vec![(1, 1e-3), (64, 20e-3), (512, 25e-3)],
            alpha_s: 0.0,
            tail_gamma_s: 0.0,
            tail_delta_s: 0.0,
        };
        let fit = fit_truth(&*LatencySpec::Staircase(jagged).build()).unwrap();
        assert!(!fit.trusted && !fit.reasons.is_empty(), "{fit:?}");
    }
}
