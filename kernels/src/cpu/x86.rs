//! Implements [`Lanes`] with the instructions of AVX2 and of AVX-512.
//!
//! Only kernels that [`with_avx2`] and [`with_avx512`] run make values of [`Avx2`] and [`Avx512`]. The callers of these
//! two functions have detected that the processor has the instructions, so calling the intrinsics is safe.

use super::lanes::{Kernel, LANES, Lanes, SECOND};
use std::arch::x86_64::*;

/// Runs a kernel that is compiled with the instructions of AVX2.
#[target_feature(enable = "avx2,fma")]
pub(super) fn with_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx2>()
}

/// Runs a kernel that is compiled with the instructions of AVX-512.
#[target_feature(enable = "avx512f,avx2,fma")]
pub(super) fn with_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512>()
}

/// Sixteen f32 in two registers of eight f32 each.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256, __m256);

/// Sixteen f32 in one register.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

/// Returns the sum of the eight f32 of `x`, added in the order that [`Lanes::sum`] states.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_of_8(x: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}

/// Returns a register with [`SECOND`] in all eight lanes, a mask for the `and` instruction. The empty assembly hides
/// the value from the compiler. Otherwise the compiler would replace the `and` by a blend with zeros, and Zen
/// processors have half as many execution units for blends as for `and`.
#[inline]
#[target_feature(enable = "avx2")]
#[expect(unsafe_code, reason = "hides a value from the compiler")]
fn second_mask() -> __m256 {
    let mut mask = _mm256_set1_ps(f32::from_bits(SECOND));
    // SAFETY: the assembly is an empty comment; it changes nothing.
    unsafe { std::arch::asm!("/* {0} */", inout(ymm_reg) mask, options(pure, nomem, nostack, preserves_flags)) };
    mask
}

// SAFETY of every block below: the processor has the instructions (see the module's header). Loads and stores stay
// within the sixteen numbers that the references guarantee, and need no alignment.
#[expect(unsafe_code, reason = "intrinsics, called where the compiler cannot see that the features are there")]
impl Lanes for Avx2 {
    const WIDE: bool = false;

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: the processor has AVX2.
        unsafe { Avx2(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        // SAFETY: the processor has AVX2; the reference guarantees sixteen numbers.
        unsafe { Avx2(_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x[8..].as_ptr())) }
    }

    #[inline(always)]
    fn load_first(x: &[u32; LANES]) -> Self {
        // SAFETY: the processor has AVX2; the reference guarantees sixteen numbers.
        unsafe {
            let first = |half: &[u32]| _mm256_slli_epi32::<16>(_mm256_loadu_si256(half.as_ptr().cast()));
            Avx2(_mm256_castsi256_ps(first(x)), _mm256_castsi256_ps(first(&x[8..])))
        }
    }

    #[inline(always)]
    fn load_second(x: &[u32; LANES]) -> Self {
        // SAFETY: the processor has AVX2; the reference guarantees sixteen numbers.
        unsafe {
            let mask = second_mask();
            let second = |half: &[u32]| _mm256_and_ps(_mm256_loadu_ps(half.as_ptr().cast()), mask);
            Avx2(second(x), second(&x[8..]))
        }
    }

    #[inline(always)]
    fn prefetch<T>(address: *const T) {
        // SAFETY: a prefetch is a hint that never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn store(self, x: &mut [f32; LANES]) {
        // SAFETY: the processor has AVX2; the reference guarantees sixteen numbers.
        unsafe {
            _mm256_storeu_ps(x.as_mut_ptr(), self.0);
            _mm256_storeu_ps(x[8..].as_mut_ptr(), self.1);
        }
    }

    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        // SAFETY: the processor has AVX2.
        unsafe { Avx2(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // SAFETY: the processor has AVX2.
        unsafe { Avx2(_mm256_max_ps(self.0, other.0), _mm256_max_ps(self.1, other.1)) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: the processor has AVX2.
        unsafe { Avx2(_mm256_add_ps(self.0, other.0), _mm256_add_ps(self.1, other.1)) }
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: the processor has AVX2.
        unsafe { sum_of_8(_mm256_add_ps(self.0, self.1)) }
    }
}

// SAFETY of every block below: the processor has AVX-512 (see the module's header). Loads and stores stay within the
// sixteen numbers that the references guarantee, and need no alignment.
#[expect(unsafe_code, reason = "intrinsics, called where the compiler cannot see that the features are there")]
impl Lanes for Avx512 {
    const WIDE: bool = true;

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: the processor has AVX-512.
        unsafe { Avx512(_mm512_set1_ps(x)) }
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        // SAFETY: the processor has AVX-512; the reference guarantees sixteen numbers.
        unsafe { Avx512(_mm512_loadu_ps(x.as_ptr())) }
    }

    #[inline(always)]
    fn load_first(x: &[u32; LANES]) -> Self {
        // SAFETY: the processor has AVX-512; the reference guarantees sixteen numbers.
        unsafe { Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_loadu_si512(x.as_ptr().cast())))) }
    }

    #[inline(always)]
    fn load_second(x: &[u32; LANES]) -> Self {
        // SAFETY: the processor has AVX-512; the reference guarantees sixteen numbers.
        unsafe {
            let mask = _mm512_set1_epi32(SECOND.cast_signed());
            Avx512(_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(x.as_ptr().cast()), mask)))
        }
    }

    #[inline(always)]
    fn prefetch<T>(address: *const T) {
        // SAFETY: a prefetch is a hint that never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn store(self, x: &mut [f32; LANES]) {
        // SAFETY: the processor has AVX-512; the reference guarantees sixteen numbers.
        unsafe { _mm512_storeu_ps(x.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        // SAFETY: the processor has AVX-512.
        unsafe { Avx512(_mm512_fmadd_ps(a.0, b.0, self.0)) }
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // SAFETY: the processor has AVX-512.
        unsafe { Avx512(_mm512_max_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: the processor has AVX-512.
        unsafe { Avx512(_mm512_add_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: the processor has AVX-512.
        unsafe {
            let high = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(self.0));
            sum_of_8(_mm256_add_ps(_mm512_castps512_ps256(self.0), _mm256_castpd_ps(high)))
        }
    }
}
