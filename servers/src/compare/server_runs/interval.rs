//! The width of the 95 % interval of a predicted number. The prediction uses a calibration.

use crate::compare::numbers::{E2E, Numbers, QUANTITIES, Quantity, THROUGHPUT, TPOT, TTFT, Unit};
use foretoken_profiler::median;
use serde::{Deserialize, Serialize};

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

/// The relative errors of the numbers of runs, as standard deviations, that come from costs and schedule alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Misfit {
    /// Error of times to first token.
    pub ttft: f64,
    /// Error of times per output token.
    pub tpot: f64,
    /// Error of end-to-end latencies.
    pub e2e: f64,
    /// Error of throughputs, in tokens and in requests.
    pub throughput: f64,
}

impl Misfit {
    /// The logarithms of the ratios of predicted to observed means; 0 where one of them is missing.
    pub fn between(predicted: &Numbers, observed: &Numbers) -> Misfit {
        let log = |name: &str| {
            let quantity = QUANTITIES.iter().find(|q| q.name == name).expect("a quantity");
            match ((quantity.read)(predicted), (quantity.read)(observed)) {
                (Some(a), Some(b)) if a > 0.0 && b > 0.0 => (a / b).ln(),
                _ => 0.0,
            }
        };
        Misfit { ttft: log(TTFT), tpot: log(TPOT), e2e: log(E2E), throughput: log(THROUGHPUT) }
    }

    /// The geometric mean of two errors, by number.
    pub fn geometric_mean(&self, other: &Misfit) -> Misfit {
        let of = |read: fn(&Misfit) -> f64| (read(self) * read(other)).abs().sqrt();
        Misfit { ttft: of(|m| m.ttft), tpot: of(|m| m.tpot), e2e: of(|m| m.e2e), throughput: of(|m| m.throughput) }
    }

    /// The root mean square of errors; 0 without errors.
    pub fn root_mean_square(all: &[Misfit]) -> Misfit {
        let of = |read: fn(&Misfit) -> f64| {
            (all.iter().map(|m| read(m).powi(2)).sum::<f64>() / all.len().max(1) as f64).sqrt()
        };
        Misfit { ttft: of(|m| m.ttft), tpot: of(|m| m.tpot), e2e: of(|m| m.e2e), throughput: of(|m| m.throughput) }
    }

    fn of(&self, name: &str) -> f64 {
        match name {
            _ if name.starts_with(TTFT_NAMES) => self.ttft,
            _ if name.starts_with("TPOT") => self.tpot,
            _ if name.starts_with("E2E") => self.e2e,
            _ => self.throughput,
        }
    }
}

/// Half the width of a prediction's 95 % interval, as a share of the prediction. `draws[i][j]` is the prediction of run
/// j with random draw i of what the calibration does not know: acceptance, and costs within a misfit. Without draws,
/// the width comes from the rest alone: the larger of [`REST`] ([`REST_TTFT`] for times to first token) and `misfit`,
/// the error with which the calibration predicts this number of its own runs. `None` for shares, whose errors are
/// differences.
pub(super) fn half_width(quantity: &Quantity, draws: &[Vec<Numbers>], misfit: &Misfit) -> Option<f64> {
    if quantity.unit == Unit::Share {
        return None;
    }
    let rest = if quantity.name.starts_with(TTFT_NAMES) { REST_TTFT } else { REST };
    let rest = rest.max(misfit.of(quantity.name));
    // The value predicted with one random draw is the median over the observed runs, as the observed value is.
    let log_of_draw = |draw: &Vec<Numbers>| {
        let values: Vec<f64> = draw.iter().filter_map(|n| (quantity.read)(n)).filter(|x| *x > 0.0).collect();
        (!values.is_empty()).then(|| median(values).ln())
    };
    let logs: Vec<f64> = draws.iter().filter_map(log_of_draw).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = if n > 1.0 { logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0) } else { 0.0 };
    Some(Z * (variance + rest * rest).sqrt())
}

/// The names of all quantities that are times to the first token start with this text.
const TTFT_NAMES: &str = "TTFT";

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Misfit = Misfit { ttft: 0.0, tpot: 0.0, e2e: 0.0, throughput: 0.0 };

    #[test]
    fn an_interval_covers_the_draws_and_the_rest() {
        let quantity = |name| QUANTITIES.iter().find(|q| q.name == name).unwrap();
        let throughput = quantity(THROUGHPUT);
        assert_eq!(half_width(throughput, &[], &NONE), Some(Z * REST));
        assert_eq!(half_width(quantity(TTFT), &[], &NONE), Some(Z * REST_TTFT));
        assert_eq!(half_width(quantity("accepted / verified"), &[], &NONE), None);
        let draw = |x: f64| vec![Numbers { throughput_tok_s: Some(x), ..Numbers::default() }; 3];
        let draws: Vec<_> = [95.0, 100.0, 105.0].map(draw).into();
        let width = half_width(throughput, &draws, &NONE).unwrap();
        assert!((width - Z * (0.05f64.powi(2) + REST * REST).sqrt()).abs() < 1e-3, "{width}");
        // A larger error with which the calibration predicts its own runs takes the place of the rest, by quantity.
        let misfit = Misfit { throughput: 0.03, ttft: 0.001, ..NONE };
        assert_eq!(half_width(throughput, &[], &misfit), Some(Z * 0.03));
        assert_eq!(half_width(quantity(TTFT), &[], &misfit), Some(Z * REST_TTFT));
    }
}
