//! Paged keys and values.
//!
//! For one key-value head, a block holds 16 keys as a matrix head_dim × 16, so that a kernel computes sixteen scores at
//! a time. It holds 16 values as a matrix 16 × head_dim, so that a kernel computes sixteen numbers of an output at a
//! time. Groups of sixteen numbers are stored in pairs. A pair of a key block is two neighbouring dimensions of the 16
//! keys; a pair of a value block is 32 neighbouring dimensions of one value (head_dim is padded to a multiple of 32).
//! The first 32 dimensions of all 16 values come first, then the next 32 dimensions, and so on.
//!
//! If the weights are bf16, the KV is bf16 too, as in vLLM. This halves the bytes that are read for a long context.
//! With other weights the KV is f32.

use super::angles::Angles;
use super::lanes::{Kernel, LANES, Lanes};
use super::level::Level;
use super::pages::Pages;
use super::pairs::{Bf16Pairs, F32Pairs, Pairs};
use crate::model::LlamaShape;
use crate::paged::BLOCK_SIZE;
use crate::weights::Dtype;

/// The pool of KV blocks of all layers, and the table of rotary angles.
pub struct Kv {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// `head_dim` rounded up to a multiple of 2 · [`LANES`]: the stored width of a value.
    pub(super) padded: usize,
    pub(super) pools: Pools,
    pub(super) angles: Angles,
}

/// The KV blocks as f32 or as bf16, one pool per layer.
pub(super) enum Pools {
    F32(Vec<Pages<F32Pairs>>),
    Bf16(Vec<Pages<Bf16Pairs>>),
}

/// Bytes of one number of a key or value, if the weights have the type `weights`.
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
    /// Makes a KV pool with `blocks` blocks of zeros for each layer. `dtype` is the type of the model's weights, which
    /// decides the type of the KV.
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
            angles: Angles::new(shape, blocks as usize * BLOCK_SIZE),
        }
    }

    /// Returns (number of pairs of the keys, number of pairs of the values) that one head takes in a block. A pair is
    /// two groups of sixteen numbers. Two dimensions of the sixteen keys take one pair. 32 dimensions of the sixteen
    /// values take sixteen pairs, one for each token.
    fn sizes(&self) -> (usize, usize) {
        (self.head_dim.div_ceil(2), self.padded / 2)
    }

    /// Returns the pool index of the first pair that holds keys of `head` in `block`. The values of the same head
    /// follow its keys.
    fn first_pair(&self, block: usize, head: usize) -> usize {
        let (keys, values) = self.sizes();
        (block * self.kv_heads + head) * (keys + values)
    }

    #[inline(always)]
    pub(super) fn keys<'p, P>(&self, pool: &'p [P], block: usize, head: usize) -> &'p [P] {
        &pool[self.first_pair(block, head)..][..self.sizes().0]
    }

    #[inline(always)]
    pub(super) fn values<'p, P>(&self, pool: &'p [P], block: usize, head: usize) -> &'p [P] {
        let (keys, values) = self.sizes();
        &pool[self.first_pair(block, head) + keys..][..values]
    }

    /// Writes the key and the value of one head to the KV slot `slot`, which is 16 · block + index in the block.
    pub(super) fn write(
        &mut self,
        level: Level,
        layer: usize,
        (slot, head): (usize, usize),
        key: &[f32],
        value: &[f32],
    ) {
        let (at, (keys, values), offset) = (self.first_pair(slot / BLOCK_SIZE, head), self.sizes(), slot % BLOCK_SIZE);
        match &mut self.pools {
            Pools::F32(pools) => {
                let (keys, values) = pools[layer][at..][..keys + values].split_at_mut(keys);
                level.run(Write { keys, values, offset, key, value });
            }
            Pools::Bf16(pools) => {
                let (keys, values) = pools[layer][at..][..keys + values].split_at_mut(keys);
                level.run(Write { keys, values, offset, key, value });
            }
        }
    }

    /// Copies the keys and values of all layers and heads from slot `from` to slot `to` (a slot is a token's place in
    /// the KV pool, 16 · block + index in the block).
    pub(super) fn copy(&mut self, from: usize, to: usize) {
        for head in 0..self.kv_heads {
            let (source, target) = (self.first_pair(from / BLOCK_SIZE, head), self.first_pair(to / BLOCK_SIZE, head));
            let slots = ((source, from % BLOCK_SIZE), (target, to % BLOCK_SIZE));
            let sizes = self.sizes();
            match &mut self.pools {
                Pools::F32(pools) => pools.iter_mut().for_each(|pool| copy(pool, sizes, slots)),
                Pools::Bf16(pools) => pools.iter_mut().for_each(|pool| copy(pool, sizes, slots)),
            }
        }
    }
}

/// A kernel that writes the key and the value of one token: the token at place `offset` (0 to 15) of a block.
struct Write<'a, P> {
    keys: &'a mut [P],
    values: &'a mut [P],
    offset: usize,
    key: &'a [f32],
    value: &'a [f32],
}

impl<P: Pairs> Kernel for Write<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (two, pairs) in self.key.chunks(2).zip(self.keys) {
            pairs.set(self.offset, [two[0], two.get(1).copied().unwrap_or(0.0)]);
        }
        for (numbers, tokens) in self.value.chunks(2 * LANES).zip(self.values.chunks_exact_mut(BLOCK_SIZE)) {
            let mut both = [[0.0; LANES]; 2];
            both.as_flattened_mut()[..numbers.len()].copy_from_slice(numbers);
            tokens[self.offset] = P::of(&both);
        }
    }
}

/// Copies one token's key and value of one head within a pool. `keys` and `values` are the numbers of pairs that a head
/// takes in a block for its keys and for its values. `slots` is (from, to). Each slot is (pool index of the head's
/// first pair in the block, the token's place in the block).
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
