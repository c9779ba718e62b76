//! Measures how many multiply-adds per second a core makes.

use super::clock::best;
use crate::cpu::lanes::{Kernel, LANES, Lanes};
use crate::cpu::level::Level;
use std::hint::black_box;

/// Returns the peak arithmetic rate of one core in floating-point operations per second; a multiply-add counts as two
/// operations. The peak is the best result of six kernels with `tries` tries each. The kernels differ in how many
/// independent sums they make at a time.
pub fn peak(level: Level, tries: u32) -> f64 {
    let each = [
        rate::<1>(level, tries),
        rate::<4>(level, tries),
        rate::<5>(level, tries),
        rate::<6>(level, tries),
        rate::<8>(level, tries),
        rate::<12>(level, tries),
    ];
    each.into_iter().fold(0.0, f64::max)
}

fn rate<const N: usize>(level: Level, tries: u32) -> f64 {
    let turn = best(tries, |turns| {
        black_box(level.run(Fmas::<N> { turns }));
    });
    (2 * N * LANES * UNROLLED) as f64 / turn
}

/// Number of multiply-adds that one turn of the timed loop adds to each sum.
const UNROLLED: usize = 16;

/// A kernel that makes `N` independent sums by multiply-adds, in a loop of `turns` turns.
struct Fmas<const N: usize> {
    turns: u64,
}

impl<const N: usize> Kernel for Fmas<N> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let (factor, more) = (L::splat(black_box(0.999)), L::splat(black_box(0.001)));
        let mut sums = [more; N];
        for _ in 0..self.turns {
            for _ in 0..UNROLLED {
                for sum in &mut sums {
                    *sum = more.fma(*sum, factor);
                }
            }
        }
        let mut all = L::zero();
        for sum in sums {
            all = all.add(sum);
        }
        all.sum()
    }
}
