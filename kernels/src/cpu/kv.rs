//! Paged keys and values, and the rotary angles that keys are turned by before they are stored.
//!
//! A block holds, for one key-value head, 16 keys as head_dim × 16, so that sixteen scores are made at a time, and 16
//! values as 16 × head_dim, so that sixteen numbers of an output are. Both are pairs of such groups: of two neighbouring
//! dimensions of the keys, and of 32 dimensions of a value, for which head_dim is padded: all tokens' first 32, then the next.
//!
//! They are kept as the weights are: bf16 below bf16 weights, as engines do it, which halves what a long context reads.

use super::lanes::LANES;
use super::pages::Pages;
use super::pairs::{Bf16Pairs, F32Pairs, Pairs};
use crate::model::LlamaShape;
use crate::paged::BLOCK_SIZE;
use crate::weights::Dtype;

/// Keys and values of all layers.
pub struct Kv {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// `head_dim` rounded up to pairs of lanes.
    pub(super) padded: usize,
    pub(super) pools: Pools,
    /// Rotary frequency of each pair, radians a position.
    frequencies: Vec<f32>,
    /// The positions that `angles` are of.
    positions: Vec<u32>,
    /// Cosines of all pairs and then their sines, position by position.
    angles: Vec<f32>,
}

/// One pool of blocks a layer.
pub(super) enum Pools {
    F32(Vec<Pages<F32Pairs>>),
    Bf16(Vec<Pages<Bf16Pairs>>),
}

/// Bytes of a number that is kept beside weights of this type.
pub(super) fn kv_bytes(weights: Dtype) -> u64 {
    match weights {
        Dtype::Bf16 => 2,
        Dtype::F32 | Dtype::F16 => 4,
    }
}

fn zeros<P: Pairs>(layers: u32, pairs: usize) -> Vec<Pages<P>> {
    (0..layers).map(|_| Pages::zeros(pairs)).collect()
}

impl Kv {
    /// Zeros, beside weights of type `dtype`.
    pub(super) fn new(shape: &LlamaShape, dtype: Dtype, blocks: u32) -> Kv {
        let head_dim = shape.head_dim as usize;
        let padded = head_dim.next_multiple_of(2 * LANES);
        let kv_heads = shape.kv_heads as usize;
        let pairs = blocks as usize * kv_heads * (head_dim.div_ceil(2) + padded / 2);
        let pools = match dtype {
            Dtype::Bf16 => Pools::Bf16(zeros(shape.layers, pairs)),
            Dtype::F32 | Dtype::F16 => Pools::F32(zeros(shape.layers, pairs)),
        };
        Kv {
            heads: shape.heads as usize,
            kv_heads,
            head_dim,
            padded,
            pools,
            frequencies: frequencies(shape),
            positions: Vec::new(),
            angles: Vec::new(),
        }
    }

    /// The pairs of a block's keys, one for two dimensions, and of its values: sixteen tokens for each 32 dimensions.
    fn sizes(&self) -> (usize, usize) {
        (self.head_dim.div_ceil(2), self.padded / 2)
    }

    /// The pair where the keys of a block begin; its values follow.
    fn at(&self, block: usize, head: usize) -> usize {
        let (keys, values) = self.sizes();
        (block * self.kv_heads + head) * (keys + values)
    }

    /// Keys of a block.
    #[inline(always)]
    pub(super) fn keys<'p, P>(&self, pool: &'p [P], block: usize, head: usize) -> &'p [P] {
        &pool[self.at(block, head)..][..self.sizes().0]
    }

    /// Values of a block.
    #[inline(always)]
    pub(super) fn values<'p, P>(&self, pool: &'p [P], block: usize, head: usize) -> &'p [P] {
        let (keys, values) = self.sizes();
        &pool[self.at(block, head) + keys..][..values]
    }

    /// Writes the key and the value of one head to a slot.
    pub(super) fn write(&mut self, layer: usize, slot: usize, head: usize, key: &[f32], value: &[f32]) {
        let (at, (keys, values), offset) = (self.at(slot / BLOCK_SIZE, head), self.sizes(), slot % BLOCK_SIZE);
        match &mut self.pools {
            Pools::F32(pools) => write(pools[layer][at..][..keys + values].split_at_mut(keys), offset, key, value),
            Pools::Bf16(pools) => write(pools[layer][at..][..keys + values].split_at_mut(keys), offset, key, value),
        }
    }

    /// Copies keys and values of all layers and heads from one slot to another.
    pub(super) fn copy(&mut self, from: usize, to: usize) {
        for head in 0..self.kv_heads {
            let (source, target) = (self.at(from / BLOCK_SIZE, head), self.at(to / BLOCK_SIZE, head));
            let slots = ((source, from % BLOCK_SIZE), (target, to % BLOCK_SIZE));
            let sizes = self.sizes();
            match &mut self.pools {
                Pools::F32(pools) => pools.iter_mut().for_each(|pool| copy(pool, sizes, slots)),
                Pools::Bf16(pools) => pools.iter_mut().for_each(|pool| copy(pool, sizes, slots)),
            }
        }
    }

    /// Makes the angles of these positions: once for all layers of a pass.
    pub(super) fn turn_to(&mut self, positions: &[u32]) {
        if self.positions != positions {
            self.positions.clear();
            self.positions.extend_from_slice(positions);
            let mut angles = std::mem::take(&mut self.angles);
            angles.clear();
            for &position in positions {
                let each = (0..self.frequencies.len()).map(|i| self.angle(position, i));
                angles.extend(each.clone().map(|angle| angle.0));
                angles.extend(each.map(|angle| angle.1));
            }
            self.angles = angles;
        }
    }

    /// Cosines and sines of each pair's angle at the position of this index.
    pub(super) fn angles(&self, at: usize) -> (&[f32], &[f32]) {
        let pairs = self.frequencies.len();
        self.angles[2 * at * pairs..][..2 * pairs].split_at(pairs)
    }

    /// Cosine and sine of pair `i`'s angle at a position.
    pub(super) fn angle(&self, position: u32, i: usize) -> (f32, f32) {
        // In f32 as transformers does it: the angle's rounding is part of what checkpoints were trained with.
        let angle = position as f32 * self.frequencies[i];
        let (sin, cos) = f64::from(angle).sin_cos();
        (cos as f32, sin as f32)
    }
}

/// Writes the key and the value of token `offset` of a block: (keys, values).
fn write<P: Pairs>((keys, values): (&mut [P], &mut [P]), offset: usize, key: &[f32], value: &[f32]) {
    for (two, pairs) in key.chunks(2).zip(keys) {
        pairs.set(offset, [two[0], two.get(1).copied().unwrap_or(0.0)]);
    }
    for (numbers, tokens) in value.chunks(2 * LANES).zip(values.chunks_exact_mut(BLOCK_SIZE)) {
        let (first, second) = numbers.split_at(numbers.len().min(LANES));
        for (lane, &x) in first.iter().enumerate() {
            tokens[offset].set(lane, [x, second.get(lane).copied().unwrap_or(0.0)]);
        }
    }
}

/// Copies a token's key and value between slots: (first pair of the block, token in the block).
fn copy<P: Pairs>(pool: &mut [P], (keys, values): (usize, usize), slots: ((usize, usize), (usize, usize))) {
    let ((source, from), (target, to)) = slots;
    for d in 0..keys {
        let key = [0, 1].map(|group| pool[source + d].get(group, from));
        pool[target + d].set(to, key);
    }
    for n in (keys..keys + values).step_by(BLOCK_SIZE) {
        pool[target + n + to] = pool[source + n + from];
    }
}

/// `theta^(−2i / head_dim)`, stretched as Llama 3 does it (see [`crate::model::RopeScaling`]).
pub(crate) fn frequencies(shape: &LlamaShape) -> Vec<f32> {
    let one = |i: u32| {
        let frequency = shape.rope_theta.powf(-f64::from(2 * i) / f64::from(shape.head_dim));
        let Some(s) = shape.rope_scaling else { return frequency as f32 };
        let turns = f64::from(s.original_max_position_embeddings) * frequency / std::f64::consts::TAU;
        // How much of the frequency is kept: none where it makes few turns over the first context, all where many.
        let kept = ((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0.0, 1.0);
        (kept * frequency + (1.0 - kept) * frequency / s.factor) as f32
    };
    (0..shape.head_dim / 2).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::preset;
    use itertools::Itertools;

    #[test]
    fn long_wavelengths_are_slowed_and_short_ones_kept() {
        let shape = preset("llama-3.2-1b").unwrap();
        let plain = frequencies(&LlamaShape { rope_scaling: None, ..shape.clone() });
        let scaled = frequencies(&shape);
        assert_eq!((plain[0], scaled[0]), (1.0, 1.0));
        assert_eq!(scaled[31], plain[31] / 32.0);
        assert!(plain.iter().zip_eq(&scaled).all(|(p, s)| (p / 32.1..=*p).contains(s)));
    }
}
