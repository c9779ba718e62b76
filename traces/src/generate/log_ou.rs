//! A Poisson process of arrivals with a varying rate: λ(t) = m(t)·exp(sX − s²/2), where m(t) is the mean rate and X a
//! stationary Ornstein–Uhlenbeck process.
//!
//! s = √ln(1 + cv²), so the factor on m(t) has mean 1 and coefficient of variation cv. X is constant in cells of time
//! whose length is a twentieth of X's correlation time; within a cell the process is exactly Poisson.

use super::{Effort, Stalled, exponential, normal};
use crate::checks::{positive, rate, span, variation};
use crate::error::TraceError;
use foretoken_sim::Draws;
use foretoken_sim::Time;
use serde::{Deserialize, Serialize};

/// Number of cells of time in a correlation time of X, the random process that drives the rate of arrivals. X is
/// constant within a cell.
pub(super) const CELLS: f64 = 20.0;

/// A Poisson process whose rate varies around a mean. The defaults were fitted to the hour of conversations in the
/// Azure 2023 trace. The dispersion of the counts of arrivals is within 7 % of the data. The coefficient of variation
/// of the gaps is 1.05 (data 1.09). The Kolmogorov-Smirnov distance to the data is 0.016.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogOuPoisson {
    /// Mean requests a second, around which the rate varies.
    pub rate: f64,
    /// Coefficient of variation of the rate of arrivals: its standard deviation over its mean, ≥ 0.
    pub cv: f64,
    /// Correlation time of the rate of arrivals, seconds: how long the rate stays high or low.
    pub tau_s: f64,
    /// Coefficient of variation of a second, faster random factor on the rate of arrivals; 0 for none. A fit to the
    /// Azure 2023 trace with both factors has 0.182.
    pub fine_cv: f64,
    /// Correlation time of the second, faster random factor on the rate of arrivals, seconds: how long this factor
    /// stays high or low.
    pub fine_tau_s: f64,
}

impl Default for LogOuPoisson {
    fn default() -> Self {
        LogOuPoisson { rate: 5.53, cv: 0.228, tau_s: 185.0, fine_cv: 0.0, fine_tau_s: 0.62 }
    }
}

/// A model of a ServeGen day (Xiang et al., 2025): a Poisson process whose rate follows the time of day, with slow
/// fluctuation. Time 0 is the trace's time 0, an hour before the peak. The rate goes from 0.62 to 1.73 times its mean.
/// The daily shape was fitted to the trace `reason/deepseek-r1`: harmonics of 24, 12 and 8 hours to the logarithm of
/// the rates in windows of 10 minutes (amplitudes 0.505, 0.148, 0.058). `cv` and `tau_s` were taken from the residuals
/// of this fit (standard deviation 0.306, correlation 0.733 between neighbouring windows).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServeGenDay {
    /// Mean requests a second over a day. The ServeGen trace has 11.9.
    pub rate: f64,
    /// Coefficient of variation of the rate of arrivals around its daily shape, ≥ 0.
    pub cv: f64,
    /// Correlation time of the fluctuation of the rate of arrivals around its daily shape, seconds: how long the rate
    /// stays above or below it.
    pub tau_s: f64,
    /// Length of the simulated day, seconds, > 0. In a shorter day the rate of arrivals has the same shape.
    pub day_s: f64,
}

impl Default for ServeGenDay {
    fn default() -> Self {
        ServeGenDay { rate: MEAN_RATE, cv: 0.313, tau_s: 1932.0, day_s: 86_400.0 }
    }
}

impl ServeGenDay {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        rate(&format!("{key}.rate"), self.rate)?;
        variation(&format!("{key}.cv"), self.cv)?;
        span(&format!("{key}.tau_s"), self.tau_s)?;
        span(&format!("{key}.day_s"), self.day_s)
    }

    /// The rate of arrivals at a time of day, as a multiple of the mean rate. `share` is the time since the start of
    /// the day divided by the length of a day.
    fn shape(share: f64) -> f64 {
        let log: f64 = (1..)
            .zip(HARMONICS)
            .map(|(k, (amplitude, peak_h))| {
                amplitude * (f64::from(k) * std::f64::consts::TAU * (share - peak_h / 24.0)).cos()
            })
            .sum();
        log.exp() / MEAN_SHAPE
    }
}

/// Mean rate of ServeGen's trace `reason/deepseek-r1`, requests a second.
const MEAN_RATE: f64 = 11.9;
/// The harmonics of 24, 12 and 8 hours of the daily shape, as (amplitude of the logarithm of the rate, time of the peak
/// in hours).
const HARMONICS: [(f64, f64); 3] = [(0.505, 0.68), (0.148, 0.83), (0.058, 3.84)];
/// The mean over a day of exp(sum of the `HARMONICS`). The daily shape of the rate is divided by it, so that its mean
/// is 1.
const MEAN_SHAPE: f64 = 1.0754;
/// Number of cells of time in a day. The rate of arrivals is constant within a cell.
const CELLS_OF_A_DAY: f64 = 1440.0;

/// AdaSpec's first shape of load, T1 (Huang et al., SoCC 2025): arrivals are frequent before the time `switch_s` and
/// rarer after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TwoRate {
    /// Mean requests a second before the time `switch_s`.
    pub busy_rate: f64,
    /// Mean requests a second after the time `switch_s`; AdaSpec's trace has 2.5 to 3.0.
    pub quiet_rate: f64,
    /// Time at which the mean rate of arrivals changes from `busy_rate` to `quiet_rate`, seconds, > 0.
    pub switch_s: f64,
    /// Coefficient of variation of the rate of arrivals around `busy_rate` and `quiet_rate`: its standard deviation
    /// over its mean.
    pub cv: f64,
    /// Correlation time of the rate of arrivals, seconds: how long the rate stays high or low.
    pub tau_s: f64,
}

impl Default for TwoRate {
    fn default() -> Self {
        TwoRate { busy_rate: 6.5, quiet_rate: 2.75, switch_s: 300.0, cv: 0.15, tau_s: 60.0 }
    }
}

impl LogOuPoisson {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        rate(&format!("{key}.rate"), self.rate)?;
        variation(&format!("{key}.cv"), self.cv)?;
        span(&format!("{key}.tau_s"), self.tau_s)?;
        variation(&format!("{key}.fine_cv"), self.fine_cv)?;
        span(&format!("{key}.fine_tau_s"), self.fine_tau_s)
    }
}

impl TwoRate {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        rate(&format!("{key}.busy_rate"), self.busy_rate)?;
        rate(&format!("{key}.quiet_rate"), self.quiet_rate)?;
        positive(&format!("{key}.switch_s"), self.switch_s)?;
        variation(&format!("{key}.cv"), self.cv)?;
        span(&format!("{key}.tau_s"), self.tau_s)
    }
}

/// The factor exp(sX − s²/2) on the rate of arrivals, where X is a random process with variance 1. X changes at the
/// start of each cell (a short interval of time).
pub(super) struct LogOu {
    sigma: f64,
    /// Correlation of X (the random process that drives the rate of arrivals) between one cell (a short interval of
    /// time) and the next.
    keep: f64,
    x: f64,
}

impl LogOu {
    /// Draws the first value of X (the random process that drives the rate of arrivals) from its stationary law, the
    /// standard normal law.
    pub(super) fn new(cv: f64, tau_s: f64, cell_s: f64, draws: &mut Draws) -> LogOu {
        LogOu { sigma: (cv * cv).ln_1p().sqrt(), keep: (-cell_s / tau_s).exp(), x: normal(draws) }
    }

    pub(super) fn step(&mut self, draws: &mut Draws) {
        self.x = self.keep * self.x + (1.0 - self.keep * self.keep).sqrt() * normal(draws);
    }

    pub(super) fn factor(&self) -> f64 {
        (self.sigma * self.x - 0.5 * self.sigma * self.sigma).exp()
    }
}

/// Draws the arrival times of [`LogOuPoisson`], [`TwoRate`] and [`ServeGenDay`].
pub(crate) struct LogOuArrivals {
    draws: Draws,
    /// Mean rates of arrivals before and after the time `switch_s`, requests/s.
    means: (f64, f64),
    switch_s: f64,
    /// Length of the day over which the mean rate follows ServeGen's daily shape, seconds; `None` if the mean rate has
    /// no daily shape.
    day_s: Option<f64>,
    slow: LogOu,
    fine: LogOu,
    cell_s: f64,
    cell: u64,
    now_s: f64,
    end_s: f64,
    effort: Effort,
}

impl LogOuArrivals {
    /// Prepares to draw the arrival times of the process with the settings `p`. The search for arrivals stops at
    /// `end_s`, seconds, so that it ends even if arrivals are very rare. The last arrival may lie beyond `end_s`; the
    /// caller removes it.
    pub(crate) fn new(p: &LogOuPoisson, mut draws: Draws, end_s: f64) -> LogOuArrivals {
        let finest = if p.fine_cv > 0.0 { p.tau_s.min(p.fine_tau_s) } else { p.tau_s };
        let cell_s = finest / CELLS;
        LogOuArrivals {
            means: (p.rate, p.rate),
            switch_s: f64::INFINITY,
            day_s: None,
            slow: LogOu::new(p.cv, p.tau_s, cell_s, &mut draws),
            fine: LogOu::new(p.fine_cv, p.fine_tau_s, cell_s, &mut draws),
            draws,
            cell_s,
            cell: 0,
            now_s: 0.0,
            end_s,
            effort: Effort::default(),
        }
    }

    pub(crate) fn two_rate(p: &TwoRate, draws: Draws, end_s: f64) -> LogOuArrivals {
        let one = LogOuPoisson { rate: p.busy_rate, cv: p.cv, tau_s: p.tau_s, fine_cv: 0.0, fine_tau_s: 1.0 };
        LogOuArrivals { means: (p.busy_rate, p.quiet_rate), switch_s: p.switch_s, ..Self::new(&one, draws, end_s) }
    }

    /// Prepares to draw the arrival times of a ServeGen day (a rate of arrivals that follows the time of day). The
    /// search for arrivals stops at `end_s`, seconds.
    pub(crate) fn of_a_day(p: &ServeGenDay, mut draws: Draws, end_s: f64) -> LogOuArrivals {
        let one = LogOuPoisson { rate: p.rate, cv: p.cv, tau_s: p.tau_s, fine_cv: 0.0, fine_tau_s: 1.0 };
        let cell_s = (p.tau_s / CELLS).min(p.day_s / CELLS_OF_A_DAY);
        let slow = LogOu::new(p.cv, p.tau_s, cell_s, &mut draws);
        LogOuArrivals { day_s: Some(p.day_s), cell_s, slow, ..Self::new(&one, draws, end_s) }
    }

    /// Returns (present rate of arrivals in requests/s, time in seconds at which the rate changes next).
    fn piece(&self) -> (f64, f64) {
        let cell_end = (self.cell + 1) as f64 * self.cell_s;
        let (mean, end) = if self.now_s < self.switch_s {
            (self.means.0, cell_end.min(self.switch_s))
        } else {
            (self.means.1, cell_end)
        };
        let of_day = |day_s: f64| ServeGenDay::shape((self.cell as f64 + 0.5) * self.cell_s / day_s);
        (mean * self.day_s.map_or(1.0, of_day) * self.slow.factor() * self.fine.factor(), end)
    }
}

impl Iterator for LogOuArrivals {
    type Item = Result<Time, Stalled>;

    /// Returns the time of the next arrival. The integral of the rate of arrivals from the last arrival to the next is
    /// an exponential draw with mean 1.
    fn next(&mut self) -> Option<Result<Time, Stalled>> {
        let mut need = exponential(&mut self.draws);
        while self.now_s < self.end_s {
            if let Err(stalled) = self.effort.step() {
                return Some(Err(stalled));
            }
            let (rate, end) = self.piece();
            let room = rate * (end - self.now_s);
            if need <= room && rate > 0.0 {
                self.now_s += need / rate;
                return Some(Ok(self.effort.found(Time::from_s(self.now_s))));
            }
            need -= room;
            self.now_s = end;
            if end >= (self.cell + 1) as f64 * self.cell_s {
                self.cell += 1;
                self.slow.step(&mut self.draws);
                self.fine.step(&mut self.draws);
            }
        }
        None
    }
}
