//! The device memory that weights and activations leave for KV.

/// Device memory for KV, over all GPUs that share the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Bytes of KV for one token, summed over all GPUs that share the model.
    pub kv_bytes_token: f64,
    /// Bytes left for KV on all GPUs together; negative if weights and activations do not fit.
    pub kv_bytes: f64,
}

impl Memory {
    /// Number of KV blocks of `block_size` tokens that fit; 0 if the weights do not fit.
    pub fn kv_blocks(&self, block_size: u32) -> u32 {
        (self.kv_bytes / (self.kv_bytes_token * f64::from(block_size))).max(0.0) as u32
    }
}
