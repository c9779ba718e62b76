//! The width of the 95 % interval of a predicted number. The prediction uses a calibration (costs and acceptance fitted
//! to a server).

use crate::numbers::{Numbers, Quantity, Unit};
use foretoken_profiler::median;

/// 97.5 % quantile of the normal distribution: a 95 % interval is this many standard deviations wide on each side.
const Z: f64 = 1.96;

/// Relative standard deviation of a prediction that comes from errors of costs and of the schedule, in addition to the
/// spread over random draws of the acceptance rates. The value was chosen once, from the errors of costs in
/// `experiments/validation/clockwork/`. The share of numbers within their intervals was counted only afterwards, and
/// the value was not changed since.
const REST: f64 = 0.010;
/// The same as [`REST`], for a predicted time to first token: the relative standard deviation that comes from errors of
/// costs and of the schedule.
const REST_TTFT: f64 = 0.020;

/// Half the width of a prediction's 95 % interval, as a share of the prediction. `draws[i][j]` is the prediction of run
/// j with random draw i of the acceptance rates, which the calibration knows with an uncertainty. Without draws, the
/// width comes from [`REST`] or [`REST_TTFT`] alone. `None` for shares, whose errors are differences.
/// `misfit` is the standard deviation of what the form of the calibrated costs cannot say.
pub(super) fn half_width(quantity: &Quantity, draws: &[Vec<Numbers>], misfit: f64) -> Option<f64> {
    if quantity.unit == Unit::Share {
        return None;
    }
    let rest = if quantity.name.starts_with(TTFT_NAMES) { REST_TTFT } else { REST };
    // The value predicted with one random draw of the acceptance rates is the median over the observed runs, as the
    // observed value is.
    let log_of_draw = |draw: &Vec<Numbers>| {
        let values: Vec<f64> = draw.iter().filter_map(|n| (quantity.read)(n)).filter(|x| *x > 0.0).collect();
        (!values.is_empty()).then(|| median(values).ln())
    };
    let logs: Vec<f64> = draws.iter().filter_map(log_of_draw).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = if n > 1.0 { logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0) } else { 0.0 };
    Some(Z * (variance + rest * rest + misfit * misfit).sqrt())
}

/// The names of all quantities that are times to the first token start with this text.
const TTFT_NAMES: &str = "TTFT";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{QUANTITIES, THROUGHPUT, TTFT};

    #[test]
    fn an_interval_covers_the_draws_and_the_rest() {
        let quantity = |name| QUANTITIES.iter().find(|q| q.name == name).unwrap();
        let throughput = quantity(THROUGHPUT);
        assert_eq!(half_width(throughput, &[], 0.0), Some(Z * REST));
        assert_eq!(half_width(quantity(TTFT), &[], 0.0), Some(Z * REST_TTFT));
        assert_eq!(half_width(quantity("accepted / verified"), &[], 0.0), None);
        let draw = |x: f64| vec![Numbers { throughput_tok_s: Some(x), ..Numbers::default() }; 3];
        let draws: Vec<_> = [95.0, 100.0, 105.0].map(draw).into();
        let width = half_width(throughput, &draws, 0.0).unwrap();
        assert!((width - Z * (0.05f64.powi(2) + REST * REST).sqrt()).abs() < 1e-3, "{width}");
        let width = half_width(throughput, &[], 0.03).unwrap();
        assert!((width - Z * (0.03f64.powi(2) + REST * REST).sqrt()).abs() < 1e-12, "{width}");
    }
}
