//! Detects which vector instructions the present processor has, and runs kernels with them.

use super::lanes::{Kernel, Plain};
#[cfg(target_arch = "x86_64")]
use super::x86;

/// A level of vector instructions (plain code, AVX2 or AVX-512) that this processor was found to have. Only this module
/// makes values of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(Lanes);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lanes {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The names of all levels of vector instructions in settings, the best level last. A processor may lack some of
    /// these levels.
    pub const KEYS: [&str; 3] = ["plain", "avx2", "avx-512"];

    /// Returns the levels of vector instructions that this processor has, the best level last.
    pub fn all() -> Vec<Level> {
        let mut all = vec![Level(Lanes::Plain)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                all.push(Level(Lanes::Avx2));
            }
            if is_x86_feature_detected!("avx512f") {
                all.push(Level(Lanes::Avx512));
            }
        }
        all
    }

    /// Returns the best level of vector instructions that this processor has.
    pub fn best() -> Level {
        *Level::all().last().expect("plain code runs everywhere")
    }

    /// Returns the level of vector instructions with the name `key`, one of [`KEYS`](Level::KEYS); `None` if the
    /// processor does not have it.
    pub fn of(key: &str) -> Option<Level> {
        Level::all().into_iter().find(|level| level.key() == key)
    }

    /// Returns the name of this level of vector instructions in settings: one of [`KEYS`](Level::KEYS).
    pub fn key(self) -> &'static str {
        match self.0 {
            Lanes::Plain => Level::KEYS[0],
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx2 => Level::KEYS[1],
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx512 => Level::KEYS[2],
        }
    }

    /// Returns the name of this level of vector instructions in printed text.
    pub fn name(self) -> &'static str {
        match self.0 {
            Lanes::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx2 => "AVX2 with FMA",
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx512 => "AVX-512",
        }
    }

    /// Number of f32 that one vector instruction of the level handles. `None` for plain code, whose instructions the
    /// compiler chooses.
    pub fn width(self) -> Option<u32> {
        match self.0 {
            Lanes::Plain => None,
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx2 => Some(8),
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx512 => Some(16),
        }
    }

    /// Runs the computation `kernel` with the vector instructions of this level.
    #[inline]
    #[cfg_attr(
        target_arch = "x86_64",
        expect(unsafe_code, reason = "the compiler cannot know that a level was detected")
    )]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Lanes::Plain => kernel.run::<Plain>(),
            // SAFETY: only `Level::all` makes values of `Level`, after it has detected the instructions.
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx2 => unsafe { x86::with_avx2(kernel) },
            // SAFETY: only `Level::all` makes values of `Level`, after it has detected the instructions.
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx512 => unsafe { x86::with_avx512(kernel) },
        }
    }
}
