//! Measures how many bytes per second a core moves to and from an array. The size of the array decides whether a cache
//! holds it, and which cache, or whether it is in memory.

use super::clock::best;
use crate::cpu::lanes::{Kernel, LANES, Lanes};
use crate::cpu::level::Level;
use crate::cpu::pages::Pages;
use std::hint::black_box;

/// Bandwidth of a core in bytes per second, for three kinds of access: reading, copying and triad.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Bandwidth of reading the array, bytes per second.
    pub read: f64,
    /// Bandwidth of copying one half of the array to the other half, bytes per second; the bytes read and the bytes
    /// written both count.
    pub copy: f64,
    /// Bandwidth of the triad `a = b + factor · c`, where `a`, `b` and `c` are thirds of the array, bytes per second;
    /// the bytes of all three count.
    pub triad: f64,
}

impl Bandwidth {
    /// Returns the highest of the bandwidths of reading, copying and triad, bytes per second.
    pub fn best(&self) -> f64 {
        self.read.max(self.copy).max(self.triad)
    }
}

/// Measures the bandwidth between one core and an array of `bytes` bytes, which is read or written over and over.
/// Returns the best of `tries` tries for each kind of access.
pub fn bandwidth(level: Level, bytes: usize, tries: u32) -> Bandwidth {
    let groups = (bytes / (LANES * size_of::<f32>())).max(24);
    let mut numbers = Pages::<f32>::zeros(groups * LANES);
    // All pages of the array are written first. Before a page is written, the system maps it to one shared page of
    // zeros, which would stay in the cache.
    numbers.fill(1.0);
    let (groups, _) = numbers.as_chunks_mut();
    let each = |parts: usize, groups: &mut [[f32; LANES]], run: &mut dyn FnMut(&mut [[f32; LANES]])| {
        let used = groups.len() / parts * parts;
        let turn = best(tries, |turns| (0..turns).for_each(|_| run(&mut groups[..used])));
        (used * LANES * size_of::<f32>()) as f64 / turn
    };
    Bandwidth {
        read: each(1, groups, &mut |groups| {
            black_box(level.run(Read(groups)));
        }),
        copy: each(2, groups, &mut |groups| {
            let (from, to) = groups.split_at_mut(groups.len() / 2);
            level.run(Copy { from, to });
        }),
        triad: each(3, groups, &mut |groups| {
            let (to, from) = groups.split_at_mut(groups.len() / 3);
            let (one, two) = from.split_at(to.len());
            level.run(Triad { one, two, to });
        }),
    }
}

struct Read<'a>(&'a [[f32; LANES]]);

impl Kernel for Read<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let mut sums = [L::zero(); 4];
        let (fours, rest) = self.0.as_chunks::<4>();
        for four in fours {
            for (sum, group) in sums.iter_mut().zip(four) {
                *sum = sum.add(L::load(group));
            }
        }
        for group in rest {
            sums[0] = sums[0].add(L::load(group));
        }
        sums[0].add(sums[1]).add(sums[2]).add(sums[3]).sum()
    }
}

struct Copy<'a> {
    from: &'a [[f32; LANES]],
    to: &'a mut [[f32; LANES]],
}

impl Kernel for Copy<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            L::load(from).store(to);
        }
    }
}

struct Triad<'a> {
    one: &'a [[f32; LANES]],
    two: &'a [[f32; LANES]],
    to: &'a mut [[f32; LANES]],
}

impl Kernel for Triad<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let factor = L::splat(black_box(0.5));
        for ((to, one), two) in self.to.iter_mut().zip(self.one).zip(self.two) {
            L::load(one).fma(L::load(two), factor).store(to);
        }
    }
}
