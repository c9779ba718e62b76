//! Paged keys and values, and the rotary angles that keys are turned by before they are stored.
//!
//! A block holds, for one key-value head, 16 keys as head_dim × 16, so that sixteen scores are made at a time, and 16
//! values as 16 × head_dim (padded to lanes), so that an output is made at a time. Both are groups of sixteen numbers.
//!
//! They are kept as the weights are: bf16 below bf16 weights, as engines do it, which halves what a long context reads.

use super::lanes::LANES;
use super::memory::{Bf16s, F32s, Group};
use crate::model::LlamaShape;
use crate::paged::BLOCK_SIZE;
use crate::weights::Dtype;

/// Keys and values of all layers.
pub struct Kv {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// `head_dim` rounded up to lanes.
    pub(super) padded: usize,
    pub(super) pools: Pools,
    /// Rotary frequency of each pair, radians a position.
    frequencies: Vec<f32>,
    /// The positions that `angles` are of.
    positions: Vec<u32>,
    /// Cosine and sine of each pair, position by position.
    angles: Vec<(f32, f32)>,
}

/// One pool of blocks a layer.
pub(super) enum Pools {
    F32(Vec<Vec<F32s>>),
    Bf16(Vec<Vec<Bf16s>>),
}

/// Bytes of a number that is kept beside weights of this type.
pub(super) fn kv_bytes(weights: Dtype) -> u64 {
    match weights {
        Dtype::Bf16 => 2,
        Dtype::F32 | Dtype::F16 => 4,
    }
}

fn zeros<G: Group>(layers: u32, groups: usize) -> Vec<Vec<G>> {
    (0..layers).map(|_| vec![G::ZERO; groups]).collect()
}

impl Kv {
    /// Zeros, beside weights of type `dtype`.
    pub(super) fn new(shape: &LlamaShape, dtype: Dtype, blocks: u32) -> Kv {
        let head_dim = shape.head_dim as usize;
        let padded = head_dim.next_multiple_of(LANES);
        let kv_heads = shape.kv_heads as usize;
        let groups = blocks as usize * kv_heads * (head_dim + padded);
        let pools = match dtype {
            Dtype::Bf16 => Pools::Bf16(zeros(shape.layers, groups)),
            Dtype::F32 | Dtype::F16 => Pools::F32(zeros(shape.layers, groups)),
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

    /// The group where the keys of a block begin; its values follow.
    fn at(&self, block: usize, head: usize) -> usize {
        (block * self.kv_heads + head) * (self.head_dim + self.padded)
    }

    /// Keys of a block, one group a dimension.
    #[inline(always)]
    pub(super) fn keys<'p, G>(&self, pool: &'p [G], block: usize, head: usize) -> &'p [G] {
        &pool[self.at(block, head)..][..self.head_dim]
    }

    /// Values of a block, `padded / 16` groups a token.
    #[inline(always)]
    pub(super) fn values<'p, G>(&self, pool: &'p [G], block: usize, head: usize) -> &'p [G] {
        &pool[self.at(block, head) + self.head_dim..][..self.padded]
    }

    /// Writes the key and the value of one head to a slot.
    pub(super) fn write(&mut self, layer: usize, slot: usize, head: usize, key: &[f32], value: &[f32]) {
        let (at, dim, offset) = (self.at(slot / BLOCK_SIZE, head), self.head_dim, slot % BLOCK_SIZE);
        match &mut self.pools {
            Pools::F32(pools) => write(&mut pools[layer][at..][..dim + self.padded], offset, key, value),
            Pools::Bf16(pools) => write(&mut pools[layer][at..][..dim + self.padded], offset, key, value),
        }
    }

    /// Copies keys and values of all layers and heads from one slot to another.
    pub(super) fn copy(&mut self, from: usize, to: usize) {
        for head in 0..self.kv_heads {
            let (source, target) = (self.at(from / BLOCK_SIZE, head), self.at(to / BLOCK_SIZE, head));
            let slots = ((source, from % BLOCK_SIZE), (target, to % BLOCK_SIZE));
            match &mut self.pools {
                Pools::F32(pools) => pools.iter_mut().for_each(|pool| copy(pool, self.head_dim, slots)),
                Pools::Bf16(pools) => pools.iter_mut().for_each(|pool| copy(pool, self.head_dim, slots)),
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
            angles.extend(
                positions
                    .iter()
                    .flat_map(|&p| (0..self.frequencies.len()).map(move |i| (p, i)))
                    .map(|(p, i)| self.angle(p, i)),
            );
            self.angles = angles;
        }
    }

    /// Cosine and sine of each pair's angle at the position of this index.
    pub(super) fn angles(&self, at: usize) -> &[(f32, f32)] {
        &self.angles[at * self.frequencies.len()..][..self.frequencies.len()]
    }

    /// Cosine and sine of pair `i`'s angle at a position.
    pub(super) fn angle(&self, position: u32, i: usize) -> (f32, f32) {
        // In f32 as transformers does it: the angle's rounding is part of what checkpoints were trained with.
        let angle = position as f32 * self.frequencies[i];
        let (sin, cos) = f64::from(angle).sin_cos();
        (cos as f32, sin as f32)
    }
}

/// Writes the key and the value of token `offset` of a block.
fn write<G: Group>(block: &mut [G], offset: usize, key: &[f32], value: &[f32]) {
    let (keys, values) = block.split_at_mut(key.len());
    for (group, &k) in keys.iter_mut().zip(key) {
        group.set(offset, k);
    }
    let per_token = values.len() / BLOCK_SIZE;
    for (group, numbers) in values[offset * per_token..].iter_mut().zip(value.chunks(LANES)) {
        for (lane, &v) in numbers.iter().enumerate() {
            group.set(lane, v);
        }
    }
}

/// Copies a token's key and value between slots: (first group of the block, token in the block).
fn copy<G: Group>(pool: &mut [G], dim: usize, ((source, from), (target, to)): ((usize, usize), (usize, usize))) {
    for d in 0..dim {
        let key = pool[source + d].get(from);
        pool[target + d].set(to, key);
    }
    let per_token = dim.div_ceil(LANES);
    let value = source + dim + from * per_token;
    pool.copy_within(value..value + per_token, target + dim + to * per_token);
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
