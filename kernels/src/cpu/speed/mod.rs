//! Measures how fast this processor is. Benches compare the speed of the CPU device's kernels with these measurements.
//!
//! Every result is the best of several tries of some hundred microseconds each. The best try counts, because another
//! process can make a try slower but never faster.

mod bandwidth;
mod clock;
mod fma;
mod processor;

pub use bandwidth::{Bandwidth, bandwidth};
pub use clock::clock;
pub use fma::peak;
pub use processor::{Processor, processor};

use super::level::Level;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The clock frequency, arithmetic rate and bandwidths of one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// The level of vector instructions with which the speed was measured: one of [`Level::KEYS`].
    pub instructions: String,
    /// Clock frequency in cycles per second; absent where [`clock()`] cannot measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_hz: Option<f64>,
    /// Arithmetic rate in f32 floating-point operations per second; a multiply-add counts as two operations.
    pub flops: f64,
    /// Bandwidths in bytes per second: to each cache, the nearest cache first, then to memory.
    pub bytes_per_s: Vec<f64>,
}

/// Bytes of the array with which memory bandwidth is measured if the sizes of the caches are not known. If they are
/// known, the array has four times the size of the largest cache, but at least half and at most twice this number.
const BEYOND: usize = 128 << 20;

impl Speed {
    /// Measures the speed of the present core at `level`. This takes some tenths of a second.
    pub fn measure(level: Level) -> Speed {
        let caches = processor().caches;
        let memory = caches.last().map_or(BEYOND, |last| (4 * last).clamp(BEYOND / 2, 2 * BEYOND));
        // The array with which a cache is measured has half the cache's size, because other threads and the system
        // always use a part of the cache.
        let footprints = caches.iter().map(|bytes| bytes / 2).chain([memory]);
        Speed {
            instructions: level.key().to_owned(),
            clock_hz: clock(20),
            flops: peak(level, 20),
            bytes_per_s: footprints.map(|bytes| bandwidth(level, bytes, 3).best()).collect(),
        }
    }

    /// Returns a part of a sentence that the program prints: this speed in multiples of the reference processor's
    /// multiply-add rate and memory bandwidth.
    pub fn compared(&self) -> String {
        let (name, reference) = Speed::reference();
        let memory = |speed: &Speed| speed.bytes_per_s.last().copied().unwrap_or(f64::NAN);
        let (flops, bytes) = (self.flops / reference.flops, memory(self) / memory(&reference));
        format!("{flops:.2} times the multiply-adds and {bytes:.2} times the memory bandwidth of {name}")
    }

    /// Returns (name, speed) of the reference processor, on which the project's recorded measurements were made.
    pub fn reference() -> (&'static str, Speed) {
        let speed = Speed {
            instructions: "avx2".to_owned(),
            clock_hz: Some(3.24e9),
            flops: 103.7e9,
            bytes_per_s: vec![204e9, 103e9, 60e9, 25e9],
        };
        ("an AMD EPYC of the third generation (Zen 3) at 3.24 GHz, AVX2", speed)
    }
}

impl fmt::Display for Speed {
    /// Writes clock, arithmetic rate and bandwidths of the core in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(clock) = self.clock_hz {
            write!(f, "{:.2} GHz, ", clock / 1e9)?;
        }
        write!(f, "{:.0} GFLOP/s a core", self.flops / 1e9)?;
        let caches = self.bytes_per_s.len().saturating_sub(1);
        for (i, bytes) in self.bytes_per_s.iter().enumerate() {
            match i == caches {
                true => write!(f, ", memory {:.0} GB/s", bytes / 1e9)?,
                false => write!(f, ", L{} {:.0} GB/s", i + 1, bytes / 1e9)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test checks only orders of magnitude, because tests run unoptimised and on busy machines. The benches check
    /// exact values.
    #[test]
    fn every_level_has_a_speed() {
        for level in Level::all() {
            let speed = Speed::measure(level);
            assert!(speed.flops > 1e6 && speed.bytes_per_s.iter().all(|b| *b > 1e6), "{speed:?}");
            assert_eq!(speed.bytes_per_s.len(), processor().caches.len() + 1);
            assert_eq!(speed.instructions, level.key());
        }
    }

    #[test]
    fn a_speed_is_a_line() {
        assert_eq!(
            Speed::reference().1.to_string(),
            "3.24 GHz, 104 GFLOP/s a core, L1 204 GB/s, L2 103 GB/s, L3 60 GB/s, memory 25 GB/s"
        );
    }
}
