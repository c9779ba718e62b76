//! Sixteen numbers at a time, with the same bits on every processor.
//!
//! Every sum is made of sixteen partial sums, one a lane, by fused multiply-adds, and these are added in one fixed
//! tree. AVX-512, AVX2 and plain code do the same operations in the same order, so they agree to the bit.

/// Numbers handled at a time.
pub(super) const LANES: usize = 16;

/// Sixteen f32.
pub(super) trait Lanes: Copy {
    /// Rows, and outputs, of a tile whose partial sums fit the registers: 2 or 4.
    const TILE: usize;
    /// Zeros.
    fn zero() -> Self;
    /// The same number sixteen times.
    fn splat(x: f32) -> Self;
    /// From memory.
    fn load(x: &[f32; LANES]) -> Self;
    /// From bf16 in memory.
    fn load_bf16(x: &[u16; LANES]) -> Self;
    /// Asks for memory that will soon be read; any address will do.
    fn prefetch<T>(address: *const T);
    /// To memory.
    fn store(self, x: &mut [f32; LANES]);
    /// `self + a · b`, rounded once.
    fn fma(self, a: Self, b: Self) -> Self;
    /// Lane by lane the larger one.
    fn larger(self, other: Self) -> Self;
    /// The sum: lanes 8 apart, then 4, 2 and 1.
    fn sum(self) -> f32;
    /// Four sums. Made together they can share the shuffles, which otherwise cost as much as the products of a short row.
    #[inline(always)]
    fn sums([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        [a.sum(), b.sum(), c.sum(), d.sum()]
    }
}

/// Plain code, for processors that have neither AVX2 nor AVX-512.
#[derive(Clone, Copy)]
pub(super) struct Plain([f32; LANES]);

impl Lanes for Plain {
    const TILE: usize = 2;

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
    fn load_bf16(x: &[u16; LANES]) -> Self {
        Plain(x.map(|x| f32::from_bits(u32::from(x) << 16)))
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
