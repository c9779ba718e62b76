//! Generators: arrival processes and distributions of lengths. Their parameters have names and calibrated defaults.
//!
//! They contain parameters that were fitted to published traces, but no data from these traces. Arrivals and lengths
//! use different streams of random draws, and the lengths of each request have a stream of their own. So a change of
//! the lengths does not change the arrivals, and the reverse.

pub(crate) mod categories;
mod log_normal;
mod log_ou;
mod on_off;
mod quantiles;
mod renewal;
mod sessions;
mod spec_bench;
mod tables;
mod ticks;

pub use categories::{Categories, CategoryLaw, CategoryLengths, FixedLengths};
pub use log_normal::{LogNormalLength, LogNormalLengths};
pub use log_ou::{LogOuPoisson, ServeGenDay, TwoRate};
pub use on_off::AzureCode;
pub use quantiles::Quantiles;
pub use renewal::{BurstGptArrivals, Gamma, Poisson};
pub use sessions::Sessions;
pub use spec_bench::SpecBenchLengths;
pub use tables::{LengthTable, TableName};
pub use ticks::{AdaSpecBins, Ticks};

pub(crate) use log_ou::LogOuArrivals;
pub(crate) use on_off::OnOffArrivals;
pub(crate) use renewal::{BurstGptGaps, GammaGaps, PoissonGaps};
pub(crate) use sessions::Turn;
pub(crate) use spec_bench::SPEC_BENCH_CATEGORIES;
pub(crate) use ticks::{AdaSpecBinArrivals, TickArrivals};

use foretoken_sim::Time;
use rand::Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};

/// A draw from the exponential distribution with mean 1.
fn exponential(draws: &mut impl Rng) -> f64 {
    Exp1.sample(draws)
}

/// A draw from the standard normal distribution.
fn normal(draws: &mut impl Rng) -> f64 {
    StandardNormal.sample(draws)
}

/// A draw from a log-normal distribution. `mu` and `sigma` are the mean and the standard deviation of its logarithm.
fn log_normal(draws: &mut impl Rng, mu: f64, sigma: f64) -> f64 {
    (mu + sigma * normal(draws)).exp()
}

/// The error of an arrival process that found no further request within the number of steps that its search may take
/// ([`Effort`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stalled;

/// Limits the steps that an arrival process may take in its search for requests. The process has a number of steps at
/// the start, and gets more for every request that it makes. Without this limit, extreme rates and correlation times
/// could make a process search for days between two requests.
pub(crate) struct Effort {
    left: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { left: Effort::FIRST }
    }
}

impl Effort {
    /// Number of steps of its search that an arrival process may take before it makes its first request. They take
    /// about a second.
    pub(crate) const FIRST: u64 = 20_000_000;
    const EACH: u64 = 100_000;

    /// Uses up one step of an arrival process's search for requests. Returns the error if no step is left.
    #[inline]
    fn step(&mut self) -> Result<(), Stalled> {
        self.left = self.left.checked_sub(1).ok_or(Stalled)?;
        Ok(())
    }

    /// Adds the steps of search that an arrival process gets for each request that it makes. Returns the request's time
    /// `at` unchanged.
    #[inline]
    fn found(&mut self, at: Time) -> Time {
        self.left += Effort::EACH;
        at
    }
}
