//! Sixteen numbers at a time, with the same bits on every processor.
//!
//! A lane is one of sixteen sums that are computed side by side. Each sum is made by fused multiply-adds in a fixed
//! order, and one fixed order adds the sixteen lanes. AVX-512, AVX2 and plain code do the same operations in the same
//! order, so their results agree to the bit.

/// Number of f32 that the CPU's kernels handle at a time.
pub(super) const LANES: usize = 16;

/// Mask of the second bf16 in a 32-bit word. The word after `and` with this mask, read as an f32, has the value of that
/// bf16.
pub(super) const SECOND: u32 = 0xFFFF_0000;

/// A vector of sixteen f32. Each level of vector instructions (AVX-512, AVX2, plain code) implements the same
/// operations on it.
pub(super) trait Lanes: Copy {
    /// True for AVX-512, which has 32 vector registers of sixteen f32. False for AVX2, which has 16 registers of eight
    /// f32, and for plain code. If `WIDE` is true, a kernel computes more sums at a time.
    const WIDE: bool;
    fn zero() -> Self;
    /// A vector that has the number `x` in all sixteen lanes.
    fn splat(x: f32) -> Self;
    /// Reads sixteen f32 from memory.
    fn load(x: &[f32; LANES]) -> Self;
    /// Reads sixteen bf16 from memory: the lower half of each word.
    fn load_first(x: &[u32; LANES]) -> Self;
    /// Reads sixteen bf16 from memory: the upper half of each word.
    fn load_second(x: &[u32; LANES]) -> Self;
    /// Prefetches memory that will be read soon. Any address is allowed. In plain code this function does nothing.
    fn prefetch<T>(address: *const T);
    /// Writes the sixteen f32 of this vector to memory.
    fn store(self, x: &mut [f32; LANES]);
    /// Computes `self + a · b` in each lane, rounded once.
    fn fma(self, a: Self, b: Self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn add(self, other: Self) -> Self;
    /// Returns the sum of all sixteen lanes: adds lanes that are 8 apart, then the results that are 4, 2 and 1 apart.
    fn sum(self) -> f32;
}

/// Code without vector instructions, for processors that have neither AVX2 nor AVX-512.
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

/// A computation that runs with any implementation of [`Lanes`], that is with any level of vector instructions. Its
/// `run` must be `#[inline(always)]`; otherwise the compiler compiles it without these instructions.
pub(super) trait Kernel {
    type Output;
    /// Runs the computation with the vector instructions of `L`.
    fn run<L: Lanes>(self) -> Self::Output;
}
