//! Paged keys and values, and the rotary angles that keys are turned by before they are stored.
//!
//! A block holds, for one key-value head, 16 keys as head_dim × 16, so that sixteen scores are made at a time, and 16
//! values as 16 × head_dim (padded to lanes), so that an output is made at a time.

use super::aligned::Aligned;
use super::lanes::LANES;
use crate::model::LlamaShape;
use crate::paged::BLOCK_SIZE;

/// f32 keys and values of all layers.
pub struct Kv {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// `head_dim` rounded up to lanes.
    pub(super) padded: usize,
    /// One pool a layer.
    pools: Vec<Aligned>,
    /// Rotary frequency of each pair, radians a position.
    frequencies: Vec<f32>,
    /// The positions that `angles` are of.
    positions: Vec<u32>,
    /// Cosine and sine of each pair, position by position.
    angles: Vec<(f32, f32)>,
}

impl Kv {
    pub(super) fn new(shape: &LlamaShape, blocks: u32) -> Kv {
        let head_dim = shape.head_dim as usize;
        let padded = head_dim.next_multiple_of(LANES);
        let kv_heads = shape.kv_heads as usize;
        let pool = blocks as usize * kv_heads * BLOCK_SIZE * (head_dim + padded);
        Kv {
            heads: shape.heads as usize,
            kv_heads,
            head_dim,
            padded,
            pools: (0..shape.layers).map(|_| Aligned::zeros(pool)).collect(),
            frequencies: frequencies(shape),
            positions: Vec::new(),
            angles: Vec::new(),
        }
    }

    /// Where the keys of a block begin; its values follow.
    fn at(&self, block: usize, head: usize) -> usize {
        (block * self.kv_heads + head) * BLOCK_SIZE * (self.head_dim + self.padded)
    }

    /// Keys of a block, one group of lanes a dimension.
    pub(super) fn keys(&self, layer: usize, block: usize, head: usize) -> &[[f32; LANES]] {
        self.pools[layer][self.at(block, head)..][..BLOCK_SIZE * self.head_dim].as_chunks().0
    }

    /// Values of a block, `padded / 16` groups of lanes a token.
    pub(super) fn values(&self, layer: usize, block: usize, head: usize) -> &[[f32; LANES]] {
        let from = self.at(block, head) + BLOCK_SIZE * self.head_dim;
        self.pools[layer][from..][..BLOCK_SIZE * self.padded].as_chunks().0
    }

    /// Writes the key and the value of one head to a slot.
    pub(super) fn write(&mut self, layer: usize, slot: usize, head: usize, key: &[f32], value: &[f32]) {
        let (block, offset) = (slot / BLOCK_SIZE, slot % BLOCK_SIZE);
        let at = self.at(block, head);
        let (dim, padded) = (self.head_dim, self.padded);
        let block = &mut self.pools[layer][at..][..BLOCK_SIZE * (dim + padded)];
        let (keys, values) = block.split_at_mut(BLOCK_SIZE * dim);
        for (d, &k) in key.iter().enumerate() {
            keys[d * BLOCK_SIZE + offset] = k;
        }
        values[offset * padded..][..dim].copy_from_slice(value);
    }

    /// Copies keys and values of all layers and heads from one slot to another.
    pub(super) fn copy(&mut self, from: usize, to: usize) {
        for layer in 0..self.pools.len() {
            for head in 0..self.kv_heads {
                let (source, target) = (self.at(from / BLOCK_SIZE, head), self.at(to / BLOCK_SIZE, head));
                let (dim, padded, pool) = (self.head_dim, self.padded, &mut self.pools[layer]);
                for d in 0..dim {
                    let row = d * BLOCK_SIZE;
                    pool[target + row + to % BLOCK_SIZE] = pool[source + row + from % BLOCK_SIZE];
                }
                let value = |slot: usize| BLOCK_SIZE * dim + slot % BLOCK_SIZE * padded;
                let source = source + value(from);
                pool.copy_within(source..source + dim, target + value(to));
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

    #[test]
    fn long_wavelengths_are_slowed_and_short_ones_kept() {
        let shape = preset("llama-3.2-1b").unwrap();
        let plain = frequencies(&LlamaShape { rope_scaling: None, ..shape.clone() });
        let scaled = frequencies(&shape);
        assert_eq!((plain[0], scaled[0]), (1.0, 1.0));
        assert_eq!(scaled[31], plain[31] / 32.0);
        assert!(plain.iter().zip(&scaled).all(|(p, s)| (p / 32.1..=*p).contains(s)));
    }
}
