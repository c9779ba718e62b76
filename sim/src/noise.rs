//! Noise on the times of passes.

use crate::luck::{Luck, Stream};
use crate::time::Time;

/// Log-normal noise with mean 1 on the time of a pass, keyed by (seed, step, pass). A pass has the same noise under
/// every policy.
pub(crate) struct Noise {
    sigma: f64,
    luck: Luck,
}

impl Noise {
    pub(crate) fn new(cv: f64, seed: u64) -> Noise {
        Noise { sigma: (1.0 + cv * cv).ln().sqrt(), luck: Luck::new(seed, Stream::Noise, 0) }
    }

    pub(crate) fn apply(&self, pass: Time, step: u64, which: u64) -> Time {
        Time((pass.0 as f64 * self.factor(step, which)).round() as u64)
    }

    /// The factor on the time of pass `which` of a step.
    pub(crate) fn factor(&self, step: u64, which: u64) -> f64 {
        let key = self.luck.narrow(step);
        // Box-Muller transform. The draw is below 1, so 1 minus the draw is above zero and has a finite logarithm.
        let (u, v) = (1.0 - key.unit(2 * which), key.unit(2 * which + 1));
        let z = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        (self.sigma * z - self.sigma * self.sigma / 2.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_mean_one_and_the_asked_spread() {
        let (noise, n) = (Noise::new(0.1, 7), 200_000u64);
        let x: Vec<f64> = (0..n).map(|s| noise.apply(Time(1 << 40), s, 0).0 as f64 / (1u64 << 40) as f64).collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        let sd = (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        assert!((mean - 1.0).abs() < 4.0 * 0.1 / (n as f64).sqrt(), "{mean}");
        assert!((sd - 0.1).abs() < 0.002, "{sd}");
    }
}
