//! Arrivals on a grid of times: Mooncake's 3-second batches, and AdaSpec's even spacing inside 3-second bins.

use super::log_ou::LogOu;
use super::{Effort, Stalled};
use crate::checks::{positive, span, variation, within};
use crate::error::TraceError;
use foretoken_sim::Draws;
use foretoken_sim::Time;
use rand_distr::Distribution;
use serde::{Deserialize, Serialize};

/// Batches of requests at fixed intervals (ticks). The number of requests in a batch is Poisson with a mean that varies
/// slowly: `mean`·exp(sX − s²/2), with X an AR(1) sequence of variance 1.
///
/// The defaults were fitted to the Mooncake FAST'25 conversation trace (variance of the count 11.2, coefficient of
/// variation of the gaps 3.03). `t2`, AdaSpec's second shape of load, has the same settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ticks {
    /// Time between ticks (times at which a batch of requests arrives), seconds.
    pub tick_s: f64,
    /// Mean number of requests that arrive together at a tick, > 0.
    pub mean: f64,
    /// Coefficient of variation of `mean` over time, ≥ 0: the standard deviation of the varying mean divided by `mean`.
    pub cv: f64,
    /// Correlation time of the varying mean number of requests per tick, seconds, > 0: how long it stays high or low.
    pub tau_s: f64,
    /// Linear trend of the mean number of requests per tick: it rises by this share of `mean` in an hour, and equals
    /// `mean` after half an hour. It never falls below 0. The Mooncake conversation trace has 0.27.
    pub trend_per_h: f64,
}

impl Default for Ticks {
    fn default() -> Self {
        Ticks { tick_s: 3.0, mean: 10.2, cv: 0.10, tau_s: 45.0, trend_per_h: 0.0 }
    }
}

/// Bins of fixed length, each with a random number of requests that are evenly spaced from the bin's start. The number
/// of requests varies less than a Poisson count.
///
/// The defaults were fitted to AdaSpec's `mooncake.csv` (1.795 requests a second). The number of requests in a bin is
/// Binomial(n, p) with p = 1 − variance/mean and n = mean/p. n is rounded up or down at random so that the mean is
/// exact: about Binomial(14, 0.376).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdaSpecBins {
    /// Length of a bin of time, whose requests are evenly spaced, seconds.
    pub bin_s: f64,
    /// Mean number of requests in a bin (an interval of `bin_s` seconds), > 0.
    pub mean: f64,
    /// Variance of the number of requests in a bin (an interval of `bin_s` seconds), > 0 and below `mean`.
    pub variance: f64,
}

impl Default for AdaSpecBins {
    fn default() -> Self {
        AdaSpecBins { bin_s: 3.0, mean: 5.38, variance: 3.36 }
    }
}

impl Ticks {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        span(&format!("{key}.tick_s"), self.tick_s)?;
        count(&format!("{key}.mean"), self.mean)?;
        variation(&format!("{key}.cv"), self.cv)?;
        positive(&format!("{key}.tau_s"), self.tau_s)?;
        if self.trend_per_h.is_finite() {
            return Ok(());
        }
        Err(TraceError::spec(
            format!("{key}.trend_per_h"),
            format!("{:?} is not a finite number", self.trend_per_h),
            "",
        ))
    }
}

impl AdaSpecBins {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        span(&format!("{key}.bin_s"), self.bin_s)?;
        count(&format!("{key}.mean"), self.mean)?;
        positive(&format!("{key}.variance"), self.variance)?;
        if self.variance < self.mean {
            return Ok(());
        }
        let what = format!("{:?} is not below the mean {:?}: no binomial has that", self.variance, self.mean);
        Err(TraceError::spec(format!("{key}.variance"), what, "use mooncake-ticks or poisson for more variance"))
    }
}

/// Refuses a setting that is a mean number of simultaneous requests and is not above 0, or is over a billion.
fn count(key: &str, mean: f64) -> Result<(), TraceError> {
    within(key, mean, f64::MIN_POSITIVE, 1e9, "a number of requests above 0 and up to 1e9")
}

/// The largest mean number of requests of a tick (a time at which a batch arrives). Only a trend can make the mean this
/// large, and no memory holds that number of requests.
const MOST_AT_ONCE: f64 = 1e18;

/// Draws the arrival times of [`Ticks`].
pub(crate) struct TickArrivals {
    p: Ticks,
    draws: Draws,
    level: LogOu,
    /// Number of ticks (times at which a batch arrives) that were drawn so far.
    tick: u64,
    /// Number of requests of the newest tick's batch that have not been returned yet.
    left: u64,
    end_s: f64,
    effort: Effort,
}

impl TickArrivals {
    pub(crate) fn new(p: &Ticks, mut draws: Draws, end_s: f64) -> TickArrivals {
        let level = LogOu::new(p.cv, p.tau_s, p.tick_s, &mut draws);
        TickArrivals { p: p.clone(), draws, level, tick: 0, left: 0, end_s, effort: Effort::default() }
    }

    fn draw_tick(&mut self) {
        let hours = self.tick as f64 * self.p.tick_s / 3600.0;
        let mean = self.p.mean * (1.0 + self.p.trend_per_h * (hours - 0.5)).max(0.0) * self.level.factor();
        // A tick (a time at which a batch arrives) whose mean number of requests has fallen to 0 has no requests.
        // `Poisson::new` refuses a mean of 0.
        self.left =
            rand_distr::Poisson::new(mean.min(MOST_AT_ONCE)).map_or(0, |count| count.sample(&mut self.draws) as u64);
        self.level.step(&mut self.draws);
        self.tick += 1;
    }
}

impl Iterator for TickArrivals {
    type Item = Result<Time, Stalled>;
    fn next(&mut self) -> Option<Result<Time, Stalled>> {
        while self.left == 0 {
            if self.tick as f64 * self.p.tick_s >= self.end_s {
                return None;
            }
            if let Err(stalled) = self.effort.step() {
                return Some(Err(stalled));
            }
            self.draw_tick();
        }
        self.left -= 1;
        Some(Ok(self.effort.found(Time::from_s((self.tick - 1) as f64 * self.p.tick_s))))
    }
}

/// Draws the arrival times of [`AdaSpecBins`].
pub(crate) struct AdaSpecBinArrivals {
    p: AdaSpecBins,
    draws: Draws,
    bin: u64,
    count: u64,
    done: u64,
    end_s: f64,
    effort: Effort,
}

impl AdaSpecBinArrivals {
    pub(crate) fn new(p: &AdaSpecBins, draws: Draws, end_s: f64) -> AdaSpecBinArrivals {
        AdaSpecBinArrivals { p: p.clone(), draws, bin: 0, count: 0, done: 0, end_s, effort: Effort::default() }
    }

    fn draw_bin(&mut self) {
        let p = 1.0 - self.p.variance / self.p.mean;
        let trials = self.p.mean / p;
        let n = trials.floor() as u64 + u64::from(self.draws.unit() < trials.fract());
        let count = rand_distr::Binomial::new(n, p).expect("variance is checked to be between 0 and the mean");
        self.count = count.sample(&mut self.draws);
        self.done = 0;
        self.bin += 1;
    }
}

impl Iterator for AdaSpecBinArrivals {
    type Item = Result<Time, Stalled>;
    fn next(&mut self) -> Option<Result<Time, Stalled>> {
        while self.done == self.count {
            if self.bin as f64 * self.p.bin_s >= self.end_s {
                return None;
            }
            if let Err(stalled) = self.effort.step() {
                return Some(Err(stalled));
            }
            self.draw_bin();
        }
        let at = ((self.bin - 1) as f64 + self.done as f64 / self.count as f64) * self.p.bin_s;
        self.done += 1;
        Some(Ok(self.effort.found(Time::from_s(at))))
    }
}
