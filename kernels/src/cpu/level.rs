//! Which lanes the processor at hand has, and the way to them.

use super::lanes::{Kernel, Plain};
#[cfg(target_arch = "x86_64")]
use super::x86;

/// What the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Neither of the others.
    Plain,
    /// AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The levels this processor has, the best last.
    pub(super) fn all() -> Vec<Level> {
        let mut all = vec![Level::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                all.push(Level::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                all.push(Level::Avx512);
            }
        }
        all
    }

    /// What people call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Level::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "AVX2 with FMA",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "AVX-512",
        }
    }

    /// The best one.
    pub(super) fn best() -> Level {
        *Level::all().last().expect("plain code runs everywhere")
    }

    /// Runs `kernel` with these lanes.
    #[inline]
    #[cfg_attr(
        target_arch = "x86_64",
        expect(unsafe_code, reason = "the compiler cannot know that a level was detected")
    )]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Level::Plain => kernel.run::<Plain>(),
            // SAFETY: only `Level::all` makes these values, after it found the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { x86::with_avx2(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::with_avx512(kernel) },
        }
    }
}
