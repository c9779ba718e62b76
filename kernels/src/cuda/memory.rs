//! Device memory for weights, activations and KV.

use super::backend::Backend;
use super::error::CudaError;
use std::sync::Arc;

/// Number of spare KV blocks, which come before the requests' blocks. Padding rows write their keys and values to the
/// spare blocks. A block's number on the device is its number on the host plus the number of spare blocks.
pub(super) const SPARE_BLOCKS: u32 = 1;

/// An allocation of device memory, freed when dropped.
pub(super) struct Memory {
    backend: Arc<dyn Backend>,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl Memory {
    pub(super) fn new(backend: &Arc<dyn Backend>, bytes: u64) -> Result<Memory, CudaError> {
        // A device cannot allocate 0 bytes, so at least 256 bytes are allocated.
        let bytes = bytes.max(256);
        Ok(Memory { backend: Arc::clone(backend), address: backend.allocate(bytes)?, bytes })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.backend.free(self.address);
    }
}

/// Distance between the beginnings of two successive rows of a matrix, counted in elements, not in bytes: `width`
/// rounded up to a multiple of 8, so that kernels can read units of 16 bytes. The elements that pad a row to this
/// distance are always zero.
pub(super) fn stride(width: usize) -> usize {
    width.next_multiple_of(8)
}

/// A matrix of weights in device memory, outputs × inputs, bf16.
pub struct Matrix {
    pub(super) memory: Memory,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
}

/// The gains (weights) of an RMSNorm in device memory, f32.
pub struct Vector {
    pub(super) memory: Memory,
    pub(super) width: usize,
}

/// A matrix of activations in device memory, one row per token, f32 or bf16.
pub struct Buffer {
    pub(super) memory: Memory,
    /// Number of rows (tokens) in use.
    pub(super) rows: usize,
    pub(super) width: usize,
    /// The largest number of rows that may be in use. The buffer was made for this number.
    pub(super) most: usize,
    /// Number of allocated rows, padding rows included.
    pub(super) capacity: usize,
    /// True if the buffer's numbers are f32, false if they are bf16.
    pub(super) wide: bool,
}

impl Buffer {
    /// Returns the number of activations in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows (tokens) in use.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn stride(&self) -> u32 {
        stride(self.width) as u32
    }

    pub(super) fn set_rows(&mut self, rows: usize) {
        assert!(rows <= self.capacity, "{rows} rows in a buffer made for {}", self.capacity);
        self.rows = rows;
    }

    /// Returns the device address of an f32 buffer.
    pub(super) fn wide(&self) -> u64 {
        assert!(self.wide, "f32 is needed, not a narrow buffer");
        self.memory.address
    }

    /// Returns the device address of a bf16 buffer.
    pub(super) fn narrow(&self) -> u64 {
        assert!(!self.wide, "a narrow buffer is needed, not f32");
        self.memory.address
    }
}

/// Paged keys and values of all layers, bf16. Each layer has a pool of keys, then a pool of values. A pool consists of
/// blocks, and a block has 16 rows of `dim` numbers for each key-value head. The spare blocks ([`SPARE_BLOCKS`]), to
/// which padding rows write, come before the blocks of requests.
pub struct Kv {
    pub(super) pools: Memory,
    pub(super) frequencies: Memory,
    /// Device memory of split attention. `parts` has the results of the stretches. `done` counts the finished stretches
    /// of each tile (group of queries) and key-value head.
    pub(super) parts: Memory,
    pub(super) done: Memory,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// `head_dim` rounded up to a head width that the attention kernels support. The added numbers of each row are
    /// zero.
    pub(super) dim: usize,
    pub(super) layers: usize,
    pub(super) blocks: usize,
}

impl Kv {
    /// Number of bf16 numbers in one layer's pool of keys. The layer's pool of values has the same size.
    pub(super) fn pool_numbers(&self) -> u64 {
        (self.blocks as u64 + u64::from(SPARE_BLOCKS)) * (self.kv_heads * crate::paged::BLOCK_SIZE * self.dim) as u64
    }

    /// Returns the device addresses of a layer's pool of keys and pool of values.
    pub(super) fn layer(&self, layer: usize) -> (u64, u64) {
        assert!(layer < self.layers, "layer {layer} of {}", self.layers);
        let pool = 2 * self.pool_numbers();
        let keys = self.pools.address + 2 * layer as u64 * pool;
        (keys, keys + pool)
    }

    /// Returns the number of query heads that share a key-value head.
    pub(super) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}
