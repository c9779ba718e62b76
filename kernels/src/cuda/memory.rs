//! Where weights, activations and KV lie on the device.

use super::backend::Backend;
use super::error::CudaError;
use std::sync::Arc;

/// KV blocks before those of requests, which rows of padding write to. A host's block is the device's plus these.
pub(super) const SPARE_BLOCKS: u32 = 1;

/// Memory of the device, given back when dropped.
pub(super) struct Memory {
    backend: Arc<dyn Backend>,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl Memory {
    pub(super) fn new(backend: &Arc<dyn Backend>, bytes: u64) -> Result<Memory, CudaError> {
        // A device gives no memory of size 0.
        let bytes = bytes.max(256);
        Ok(Memory { backend: Arc::clone(backend), address: backend.allocate(bytes)?, bytes })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.backend.free(self.address);
    }
}

/// Numbers from one row to the next: whole units of 16 bytes, so that rows can be read in such. What lies between two
/// rows is zero and stays so.
pub(super) fn stride(width: usize) -> usize {
    width.next_multiple_of(8)
}

/// Weights, outputs × inputs, bf16.
pub struct Matrix {
    pub(super) memory: Memory,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
}

/// The gains of a norm, f32.
pub struct Vector {
    pub(super) memory: Memory,
    pub(super) width: usize,
}

/// Activations, f32 or bf16.
pub struct Buffer {
    pub(super) memory: Memory,
    /// Rows in use.
    pub(super) rows: usize,
    pub(super) width: usize,
    /// Rows it was made for.
    pub(super) most: usize,
    /// Rows there is room for, those of padding included.
    pub(super) capacity: usize,
    /// f32?
    pub(super) wide: bool,
}

impl Buffer {
    /// Width of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows in use.
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

    /// Its address, where it is f32.
    pub(super) fn wide(&self) -> u64 {
        assert!(self.wide, "f32 is needed, not a narrow buffer");
        self.memory.address
    }

    /// Its address, where it is bf16.
    pub(super) fn narrow(&self) -> u64 {
        assert!(!self.wide, "a narrow buffer is needed, not f32");
        self.memory.address
    }
}

/// Paged keys and values of all layers, bf16: for each layer keys, then values, each a pool of blocks, a block having for
/// each key-value head 16 rows of `dim` numbers. Before those asked for lie the spare ones.
pub struct Kv {
    pub(super) pools: Memory,
    pub(super) frequencies: Memory,
    /// Results of the stretches of split attention, and how many are done.
    pub(super) parts: Memory,
    pub(super) done: Memory,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// `head_dim` rounded up to what there are kernels for; the numbers beyond it are zero.
    pub(super) dim: usize,
    pub(super) layers: usize,
    pub(super) blocks: usize,
}

impl Kv {
    /// Numbers of one layer's keys, and of its values.
    pub(super) fn pool_numbers(&self) -> u64 {
        (self.blocks as u64 + u64::from(SPARE_BLOCKS)) * (self.kv_heads * crate::paged::BLOCK_SIZE * self.dim) as u64
    }

    /// Addresses of a layer's keys and values.
    pub(super) fn layer(&self, layer: usize) -> (u64, u64) {
        assert!(layer < self.layers, "layer {layer} of {}", self.layers);
        let pool = 2 * self.pool_numbers();
        let keys = self.pools.address + 2 * layer as u64 * pool;
        (keys, keys + pool)
    }

    /// Queries that share a key-value head.
    pub(super) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}
