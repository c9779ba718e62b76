//! The layout of weights and KV in memory, in f32 or bf16: pairs of groups of sixteen numbers, in whole cache lines.
//!
//! With bf16, number i of the first group and number i of the second group share a word of 32 bits. One load and one
//! operation then convert sixteen numbers of either group to f32.

use super::lanes::{LANES, Lanes, SECOND};
use bytemuck::{AnyBitPattern, NoUninit, Pod, Zeroable};
use half::bf16;

/// Two groups of sixteen numbers, stored as f32 or as bf16.
pub(super) trait Pairs: AnyBitPattern + NoUninit + Send + Sync {
    /// Returns the first group of sixteen numbers.
    fn first<L: Lanes>(&self) -> L;
    /// Returns the second group of sixteen numbers.
    fn second<L: Lanes>(&self) -> L;
    /// Returns number `lane` (0 to 15) of the first group (`group` = 0) or the second group (1).
    fn get(&self, group: usize, lane: usize) -> f32;
    /// Sets number `lane` (0 to 15) of the first group to `both[0]` and of the second group to `both[1]`, rounded to
    /// the stored type.
    fn set(&mut self, lane: usize, both: [f32; 2]);
    /// Makes a pair of groups from the sixteen numbers of each group, rounded to the stored type.
    fn of(both: &[[f32; LANES]; 2]) -> Self;
}

/// Two groups of sixteen f32.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct F32Pairs([[f32; LANES]; 2]);

/// Two groups of sixteen bf16. The lower half of word `i` has number `i` of the first group, the upper half has number
/// `i` of the second.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Bf16Pairs([u32; LANES]);

impl Pairs for F32Pairs {
    #[inline(always)]
    fn first<L: Lanes>(&self) -> L {
        L::load(&self.0[0])
    }

    #[inline(always)]
    fn second<L: Lanes>(&self) -> L {
        L::load(&self.0[1])
    }

    #[inline(always)]
    fn get(&self, group: usize, lane: usize) -> f32 {
        self.0[group][lane]
    }

    #[inline(always)]
    fn set(&mut self, lane: usize, [first, second]: [f32; 2]) {
        (self.0[0][lane], self.0[1][lane]) = (first, second);
    }

    #[inline(always)]
    fn of(both: &[[f32; LANES]; 2]) -> Self {
        F32Pairs(*both)
    }
}

impl Pairs for Bf16Pairs {
    #[inline(always)]
    fn first<L: Lanes>(&self) -> L {
        L::load_first(&self.0)
    }

    #[inline(always)]
    fn second<L: Lanes>(&self) -> L {
        L::load_second(&self.0)
    }

    #[inline(always)]
    fn get(&self, group: usize, lane: usize) -> f32 {
        match group {
            0 => f32::from_bits(self.0[lane] << 16),
            _ => f32::from_bits(self.0[lane] & SECOND),
        }
    }

    #[inline(always)]
    fn set(&mut self, lane: usize, both: [f32; 2]) {
        self.0[lane] = word(both[0], both[1]);
    }

    #[inline(always)]
    fn of([first, second]: &[[f32; LANES]; 2]) -> Self {
        let mut words = [0; LANES];
        for (both, (first, second)) in words.iter_mut().zip(first.iter().zip(second)) {
            *both = word(*first, *second);
        }
        Bf16Pairs(words)
    }
}

/// Packs two numbers, rounded to bf16, into a word of 32 bits.
#[inline(always)]
fn word(first: f32, second: f32) -> u32 {
    u32::from(bf16::from_f32(first).to_bits()) | u32::from(bf16::from_f32(second).to_bits()) << 16
}
