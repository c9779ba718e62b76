//! Renewal processes: Poisson, gamma, and BurstGPT's gamma process, whose shape is drawn anew at intervals.

use super::exponential;
use crate::checks::{rate, span, within};
use crate::error::TraceError;
use foretoken_sim::Draws;
use foretoken_sim::Time;
use rand_distr::Distribution;
use serde::{Deserialize, Serialize};

/// A Poisson process: the gaps between arrivals are independent and exponential.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Poisson {
    /// Mean requests a second.
    pub rate: f64,
}

/// Independent gamma gaps between arrivals: shape 1/cv², mean 1/rate. The shape is `burstiness` in vLLM's benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gamma {
    /// Mean requests a second.
    pub rate: f64,
    /// Coefficient of variation of the gaps, 0.001 to 1000: With 1 the arrivals are a Poisson process, with a larger
    /// value they are burstier.
    pub cv: f64,
}

/// The BurstGPT project's generator: gamma gaps with a shape that is drawn uniformly anew every minute (Wang et al.,
/// KDD 2025).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BurstGptArrivals {
    /// Mean requests a second. The default is BurstGPT_1's: 1,429,737 requests in 61 days.
    pub rate: f64,
    /// Smallest shape of the gamma gaps, 1e-6 to 1e6. A smaller shape is burstier.
    pub shape_min: f64,
    /// Largest shape of the gamma gaps, from `shape_min` to 1e6.
    pub shape_max: f64,
    /// Time, seconds, after which a new shape of the gamma gaps is drawn.
    pub redraw_s: f64,
}

impl Default for BurstGptArrivals {
    fn default() -> Self {
        BurstGptArrivals { rate: 0.27, shape_min: 0.25, shape_max: 0.5, redraw_s: 60.0 }
    }
}

impl Poisson {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        rate(&format!("{key}.rate"), self.rate)
    }
}

impl Gamma {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        rate(&format!("{key}.rate"), self.rate)?;
        // For a `cv` of the gaps in this range, the gamma shape 1/cv² is from 1e-6 to 1e6, the same range as for
        // BurstGPT's shapes.
        within(&format!("{key}.cv"), self.cv, 1e-3, 1e3, "a coefficient of variation from 0.001 to 1000")
    }
}

impl BurstGptArrivals {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        rate(&format!("{key}.rate"), self.rate)?;
        for (name, shape) in [("shape_min", self.shape_min), ("shape_max", self.shape_max)] {
            within(&format!("{key}.{name}"), shape, 1e-6, 1e6, "a shape from 1e-6 to 1e6")?;
        }
        span(&format!("{key}.redraw_s"), self.redraw_s)?;
        if self.shape_max >= self.shape_min {
            return Ok(());
        }
        Err(TraceError::spec(format!("{key}.shape_max"), format!("{:?} is below shape_min", self.shape_max), ""))
    }
}

/// Draws the arrival times of [`Poisson`].
pub(crate) struct PoissonGaps {
    draws: Draws,
    rate: f64,
    now_s: f64,
}

impl PoissonGaps {
    pub(crate) fn new(rate: f64, draws: Draws) -> PoissonGaps {
        PoissonGaps { draws, rate, now_s: 0.0 }
    }
}

impl Iterator for PoissonGaps {
    type Item = Time;
    fn next(&mut self) -> Option<Time> {
        self.now_s += exponential(&mut self.draws) / self.rate;
        Some(Time::from_s(self.now_s))
    }
}

/// Draws the arrival times of [`Gamma`].
pub(crate) struct GammaGaps {
    draws: Draws,
    gap: rand_distr::Gamma<f64>,
    now_s: f64,
}

impl GammaGaps {
    pub(crate) fn new(p: &Gamma, draws: Draws) -> GammaGaps {
        let shape = 1.0 / (p.cv * p.cv);
        GammaGaps { draws, gap: gamma(shape, p.rate), now_s: 0.0 }
    }
}

impl Iterator for GammaGaps {
    type Item = Time;
    fn next(&mut self) -> Option<Time> {
        self.now_s += self.gap.sample(&mut self.draws);
        Some(Time::from_s(self.now_s))
    }
}

/// Draws the arrival times of [`BurstGptArrivals`].
pub(crate) struct BurstGptGaps {
    p: BurstGptArrivals,
    draws: Draws,
    gap: rand_distr::Gamma<f64>,
    redraw_at_s: f64,
    now_s: f64,
}

impl BurstGptGaps {
    pub(crate) fn new(p: &BurstGptArrivals, draws: Draws) -> BurstGptGaps {
        BurstGptGaps { p: p.clone(), draws, gap: gamma(p.shape_min, p.rate), redraw_at_s: 0.0, now_s: 0.0 }
    }
}

impl Iterator for BurstGptGaps {
    type Item = Time;
    fn next(&mut self) -> Option<Time> {
        if self.now_s >= self.redraw_at_s {
            let shape = self.p.shape_min + self.draws.unit() * (self.p.shape_max - self.p.shape_min);
            self.gap = gamma(shape, self.p.rate);
            let periods = (self.now_s / self.p.redraw_s).floor() + 1.0;
            self.redraw_at_s = periods * self.p.redraw_s;
        }
        self.now_s += self.gap.sample(&mut self.draws);
        Some(Time::from_s(self.now_s))
    }
}

/// A gamma distribution with the given shape and mean 1/rate.
fn gamma(shape: f64, rate: f64) -> rand_distr::Gamma<f64> {
    rand_distr::Gamma::new(shape, 1.0 / (rate * shape))
        .expect("shape and rate are checked to be within what a gamma law takes")
}
