//! How many bytes a model needs on a device. The number is computed before anything is allocated.

use super::LlamaShape;
use crate::paged::BLOCK_SIZE;
use crate::weights::{Dtype, tensors};

/// Bytes that one or two models, their KV pools and their activations need on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeeded {
    pub weights: u64,
    /// Bytes of the KV blocks of all layers.
    pub kv: u64,
    /// Bytes of the activations of the largest pass.
    pub activations: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} MiB of memory are needed ({weights} weights, {kv} KV, {activations} activations), \
     {available} are available",
    needed = mib(needed.total()), weights = mib(needed.weights), kv = mib(needed.kv),
    activations = mib(needed.activations), available = mib(*available)
)]
pub struct TooLittleMemory {
    pub needed: MemoryNeeded,
    pub available: u64,
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl MemoryNeeded {
    /// Computes the memory that a model of this `shape` needs, with weights of type `weights` and `kv_blocks` KV
    /// blocks. A pass has up to `max_rows` tokens, and up to `max_logit_rows` of these tokens need logits. A number in
    /// KV has `kv_bytes` bytes. Activations are f32.
    pub fn of(
        shape: &LlamaShape,
        weights: Dtype,
        kv_bytes: u64,
        kv_blocks: u32,
        max_rows: usize,
        max_logit_rows: usize,
    ) -> MemoryNeeded {
        let parameters: u64 = tensors(shape).iter().map(|t| t.len() as u64).sum();
        let kv_numbers = 2 * shape.layers as u64 * shape.kv_width() as u64 * BLOCK_SIZE as u64 * u64::from(kv_blocks);
        let row =
            2 * shape.hidden as usize + 2 * shape.q_width() + 2 * shape.kv_width() + 3 * shape.intermediate as usize;
        let numbers = (max_rows * row + max_logit_rows * (shape.vocab + shape.hidden) as usize) as u64;
        MemoryNeeded {
            weights: parameters * weights.bytes() as u64,
            kv: kv_numbers * kv_bytes,
            activations: 4 * numbers,
        }
    }

    /// Returns the bytes of weights, KV and activations together.
    pub fn total(&self) -> u64 {
        self.weights + self.kv + self.activations
    }

    /// Checks that `available` bytes are enough.
    pub fn fits(&self, available: u64) -> Result<(), TooLittleMemory> {
        if self.total() <= available { Ok(()) } else { Err(TooLittleMemory { needed: *self, available }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::preset;

    #[test]
    fn a_model_too_large_is_refused_with_its_numbers() {
        let shape = preset("vicuna-7b").unwrap();
        let needed = MemoryNeeded::of(&shape, Dtype::Bf16, 2, 128, 16, 16);
        // The KV pool has 128 blocks of 16 tokens, and a token takes half a MiB of KV: together 1 GiB.
        assert_eq!(needed.kv, 1 << 30);
        assert!((needed.weights as f64 / 13.476e9 - 1.0).abs() < 0.01, "{}", needed.weights);
        assert_eq!(needed.fits(needed.total()), Ok(()));
        let error = needed.fits(1 << 30).unwrap_err().to_string();
        assert!(error.starts_with("13") && error.ends_with("1024 are available"), "{error}");
    }
}
