//! Sixteen numbers at a time, with the same bits on every processor.
//!
//! A lane is one sum, made by fused multiply-adds in a fixed order; where one sum is made of all lanes, they are added in one
//! fixed tree. AVX-512, AVX2 and plain code do the same operations in the same order, so they agree to the bit.

/// Numbers handled at a time.
pub(super) const LANES: usize = 16;

/// The bits of a pair of bf16 that are the second one. As an f32 they are its value.
pub(super) const SECOND: u32 = 0xFFFF_0000;

/// Sixteen f32.
pub(super) trait Lanes: Copy {
    /// Are there 32 registers of sixteen lanes? Else there are 16 of eight. It says how many sums a kernel makes at a time.
    const WIDE: bool;
    /// Zeros.
    fn zero() -> Self;
    /// The same number sixteen times.
    fn splat(x: f32) -> Self;
    /// From memory.
    fn load(x: &[f32; LANES]) -> Self;
    /// The first of each pair of bf16 in memory: the lower halves.
    fn load_first(x: &[u32; LANES]) -> Self;
    /// The second of each pair.
    fn load_second(x: &[u32; LANES]) -> Self;
    /// Asks for memory that will soon be read; any address will do.
    fn prefetch<T>(address: *const T);
    /// To memory.
    fn store(self, x: &mut [f32; LANES]);
    /// `self + a · b`, rounded once.
    fn fma(self, a: Self, b: Self) -> Self;
    /// Lane by lane the larger one.
    fn larger(self, other: Self) -> Self;
    /// Lane by lane the sum.
    fn add(self, other: Self) -> Self;
    /// The sum: lanes 8 apart, then 4, 2 and 1.
    fn sum(self) -> f32;
}

/// Plain code, for processors that have neither AVX2 nor AVX-512.
#[derive(Clone, Copy)]
pub(super) struct Plain([f32; LANES]);

impl Lanes for Plain {
    const WIDE: bool = false;

    #[inline(always)]
    fn zero() -> Self {
        Plain([0.0; LANES])
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Plain([x; LANES])
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        Plain(*x)
    }

    #[inline(always)]
    fn load_first(x: &[u32; LANES]) -> Self {
        Plain(x.map(|x| f32::from_bits(x << 16)))
    }

    #[inline(always)]
    fn load_second(x: &[u32; LANES]) -> Self {
        Plain(x.map(|x| f32::from_bits(x & SECOND)))
    }

    #[inline(always)]
    fn prefetch<T>(_: *const T) {}

    #[inline(always)]
    fn store(self, x: &mut [f32; LANES]) {
        *x = self.0;
    }

    #[inline(always)]
    fn fma(mut self, a: Self, b: Self) -> Self {
        for i in 0..LANES {
            self.0[i] = a.0[i].mul_add(b.0[i], self.0[i]);
        }
        self
    }

    #[inline(always)]
    fn larger(mut self, other: Self) -> Self {
        for (mine, others) in self.0.iter_mut().zip(other.0) {
            *mine = if *mine > others { *mine } else { others };
        }
        self
    }

    #[inline(always)]
    fn add(mut self, other: Self) -> Self {
        for (mine, others) in self.0.iter_mut().zip(other.0) {
            *mine += others;
        }
        self
    }

    #[inline(always)]
    fn sum(mut self) -> f32 {
        for apart in [8, 4, 2, 1] {
            for i in 0..apart {
                self.0[i] += self.0[i + apart];
            }
        }
        self.0[0]
    }
}

/// Something that can be done with any kind of lanes. `run` must be `#[inline(always)]`, or it would not be compiled
/// for the processor at hand.
pub(super) trait Kernel {
    /// Its result.
    type Output;
    /// Does it.
    fn run<L: Lanes>(self) -> Self::Output;
}
