//! How much faster a candidate policy is than another one.

use foretoken_sim::metrics::Interval;
use serde::Serialize;

/// The gain of one candidate policy over another: the share by which its cost (such as mean E2E) is lower. The mean and
/// the interval are computed of the logarithms of the ratios of costs, paired by seed, so that no gain reaches 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The gain, 1 − cost / cost of the other policy. Below 0, the cost is higher.
    pub mean: f64,
    /// Half the width of the 95 % interval of the logarithm of the ratio; `None` if there is only one seed.
    pub half_width: Option<f64>,
    /// The lower end of the gain's 95 % interval; `None` if there is only one seed.
    pub low: Option<f64>,
    /// The upper end of the gain's 95 % interval; `None` if there is only one seed.
    pub high: Option<f64>,
    /// Number of seeds.
    pub n: usize,
}

impl Gain {
    /// The gain of a policy with the costs `after` over one with the costs `before`, one cost for each seed. `None` if
    /// a cost is missing.
    pub fn of(before: &[Option<f64>], after: &[Option<f64>]) -> Option<Gain> {
        let logs: Option<Vec<f64>> = before.iter().zip(after).map(|(b, a)| Some(((*b)? / (*a)?).ln())).collect();
        let log = Interval::of(&logs?)?;
        let share = |log: f64| -(-log).exp_m1();
        let end = |sign: f64| log.half_width.map(|half| share(log.mean + sign * half));
        Some(Gain { mean: share(log.mean), half_width: log.half_width, low: end(-1.0), high: end(1.0), n: log.n })
    }

    /// The logarithm of the ratio of the costs; above 0 for a gain.
    pub fn log(self) -> f64 {
        -(-self.mean).ln_1p()
    }

    /// How many times as fast the policy is, with the ends of the interval.
    pub fn as_fast(self) -> (f64, Option<(f64, f64)>) {
        let times = |gain: f64| 1.0 / (1.0 - gain);
        (times(self.mean), self.low.zip(self.high).map(|(low, high)| (times(low), times(high))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_needs_the_cost_of_every_seed() {
        let gain = Gain::of(&[Some(4.0), Some(4.0)], &[Some(2.0), Some(2.0)]).unwrap();
        assert_eq!((gain.mean, gain.half_width, gain.n), (0.5, Some(0.0), 2));
        assert!((gain.as_fast().0 - 2.0).abs() < 1e-12 && (gain.log() - 2f64.ln()).abs() < 1e-12);
        assert_eq!(Gain::of(&[Some(4.0), None], &[Some(3.0), Some(1.0)]), None);
    }

    /// Costs that scatter widely between seeds: an interval of the gains themselves would end above 1.
    #[test]
    fn no_interval_reaches_a_gain_of_one() {
        let gain = Gain::of(&[Some(8.0), Some(8.0)], &[Some(8.0), Some(1.0)]).unwrap();
        assert!((gain.mean - (1.0 - 1.0 / 8f64.sqrt())).abs() < 1e-12);
        assert!(gain.high.unwrap() < 1.0 && gain.low.unwrap() < 0.0, "{gain:?}");
        let (times, ends) = gain.as_fast();
        assert!((times - 8f64.sqrt()).abs() < 1e-9 && ends.unwrap().0 > 0.0);
    }
}
