//! Generators: arrival processes and length laws with calibrated, named, defaulted parameters.
//!
//! They carry parameters fitted to published traces and none of the data. Arrivals come from one keyed stream and
//! lengths from another (one key a request), so changing one source leaves the other's draws as they were.

mod log_ou;
mod on_off;
mod quantiles;
mod renewal;
mod spec_bench;
mod tables;
mod ticks;

pub use log_ou::{LogOuPoisson, TwoRate};
pub use on_off::AzureCode;
pub use quantiles::Quantiles;
pub use renewal::{BurstGptArrivals, Gamma, Poisson};
pub use spec_bench::SpecBenchLengths;
pub use tables::{LengthTable, TableName};
pub use ticks::{AdaSpecBins, Ticks};

pub(crate) use log_ou::LogOuArrivals;
pub(crate) use on_off::OnOffArrivals;
pub(crate) use renewal::{BurstGptGaps, GammaGaps, PoissonGaps};
pub(crate) use spec_bench::SPEC_BENCH_CATEGORIES;
pub(crate) use ticks::{AdaSpecBinArrivals, TickArrivals};

use foretoken_sim::Time;
use rand::Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};

/// A standard exponential draw.
fn exponential(draws: &mut impl Rng) -> f64 {
    Exp1.sample(draws)
}

/// A standard normal draw.
fn normal(draws: &mut impl Rng) -> f64 {
    StandardNormal.sample(draws)
}

/// A log-normal draw of location `mu` and scale `sigma` (of the logarithm).
fn log_normal(draws: &mut impl Rng, mu: f64, sigma: f64) -> f64 {
    (mu + sigma * normal(draws)).exp()
}

/// A process came to no further request, however long it was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stalled;

/// The work a process may do: some to begin with, and more for every request it gives. Rates and correlation times of hostile
/// sizes would otherwise be followed for days between two requests.
pub(crate) struct Effort {
    left: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { left: Effort::FIRST }
    }
}

impl Effort {
    /// About a second of work.
    pub(crate) const FIRST: u64 = 20_000_000;
    const EACH: u64 = 100_000;

    /// Takes a step.
    #[inline]
    fn step(&mut self) -> Result<(), Stalled> {
        self.left = self.left.checked_sub(1).ok_or(Stalled)?;
        Ok(())
    }

    /// A request at `at` is found.
    #[inline]
    fn found(&mut self, at: Time) -> Time {
        self.left += Effort::EACH;
        at
    }
}
