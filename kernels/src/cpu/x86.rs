//! Lanes of AVX2 and AVX-512.
//!
//! These types are made nowhere but under [`with_avx2`] and [`with_avx512`], whose callers have found the features;
//! that is what makes their intrinsics safe to call.

use super::lanes::{Kernel, LANES, Lanes};
use std::arch::x86_64::*;

/// Runs a kernel compiled for AVX2.
#[target_feature(enable = "avx2,fma")]
pub(super) fn with_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx2>()
}

/// Runs a kernel compiled for AVX-512.
#[target_feature(enable = "avx512f,avx2,fma")]
pub(super) fn with_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512>()
}

/// Two registers of eight.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256, __m256);

/// One register of sixteen.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

/// Eight lanes to one, as [`Lanes::sum`] says.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_of_8(x: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}

// SAFETY of every block below: the features are there (see the module's header), and loads and stores stay within the
// sixteen numbers that the references guarantee; none of them needs alignment.
#[expect(unsafe_code, reason = "intrinsics, called where the compiler cannot see that the features are there")]
impl Lanes for Avx2 {
    const TILE: usize = 2;

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: see above.
        unsafe { Avx2(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        // SAFETY: see above.
        unsafe { Avx2(_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x[8..].as_ptr())) }
    }

    #[inline(always)]
    fn load_bf16(x: &[u16; LANES]) -> Self {
        // SAFETY: see above.
        unsafe {
            let widen = |half| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half)));
            let (low, high) = (_mm_loadu_si128(x.as_ptr().cast()), _mm_loadu_si128(x[8..].as_ptr().cast()));
            Avx2(widen(low), widen(high))
        }
    }

    #[inline(always)]
    fn prefetch<T>(address: *const T) {
        // SAFETY: a hint, which reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn store(self, x: &mut [f32; LANES]) {
        // SAFETY: see above.
        unsafe {
            _mm256_storeu_ps(x.as_mut_ptr(), self.0);
            _mm256_storeu_ps(x[8..].as_mut_ptr(), self.1);
        }
    }

    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        unsafe { Avx2(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { Avx2(_mm256_max_ps(self.0, other.0), _mm256_max_ps(self.1, other.1)) }
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: see above.
        unsafe { sum_of_8(_mm256_add_ps(self.0, self.1)) }
    }
}

// SAFETY of every block below: as for AVX2.
#[expect(unsafe_code, reason = "intrinsics, called where the compiler cannot see that the features are there")]
impl Lanes for Avx512 {
    const TILE: usize = 4;

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: see above.
        unsafe { Avx512(_mm512_set1_ps(x)) }
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        // SAFETY: see above.
        unsafe { Avx512(_mm512_loadu_ps(x.as_ptr())) }
    }

    #[inline(always)]
    fn load_bf16(x: &[u16; LANES]) -> Self {
        // SAFETY: see above.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    fn prefetch<T>(address: *const T) {
        // SAFETY: a hint, which reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn store(self, x: &mut [f32; LANES]) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(x.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        unsafe { Avx512(_mm512_fmadd_ps(a.0, b.0, self.0)) }
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { Avx512(_mm512_max_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: see above.
        unsafe {
            let high = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(self.0));
            sum_of_8(_mm256_add_ps(_mm512_castps512_ps256(self.0), _mm256_castpd_ps(high)))
        }
    }

    #[inline(always)]
    fn sums([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        // SAFETY: see above.
        unsafe {
            // Quarters of a register: of x and y the first two, or the last two, side by side; then every other one.
            let halves = |x: Self, y: Self| {
                let (low, high) = (_mm512_shuffle_f32x4::<0x44>(x.0, y.0), _mm512_shuffle_f32x4::<0xEE>(x.0, y.0));
                _mm512_add_ps(low, high)
            };
            let (ab, cd) = (halves(a, b), halves(c, d));
            let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xDD>(ab, cd));
            // A quarter for each of the four; within it lanes 2 apart, then 1.
            let fours = _mm512_add_ps(even, odd);
            let twos = _mm512_add_ps(fours, _mm512_permute_ps::<0b01_00_11_10>(fours));
            let ones = _mm512_add_ps(twos, _mm512_permute_ps::<0b10_11_00_01>(twos));
            let mut out = [0.0; 4];
            for (out, quarter) in out.iter_mut().zip([
                _mm512_castps512_ps128(ones),
                _mm512_extractf32x4_ps::<1>(ones),
                _mm512_extractf32x4_ps::<2>(ones),
                _mm512_extractf32x4_ps::<3>(ones),
            ]) {
                *out = _mm_cvtss_f32(quarter);
            }
            out
        }
    }
}
