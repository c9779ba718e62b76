//! The device memory that weights and activations leave for KV.

/// Device memory for KV, over all GPUs that share the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Bytes of KV for one token, summed over all GPUs that share the model.
    pub kv_bytes_token: f64,
    /// Bytes left for KV on all GPUs together; negative if weights and activations do not fit.
    pub kv_bytes: f64,
    /// Bytes of one recurrent state of a request, over all layers and GPUs.
    pub state_bytes: f64,
    /// Bytes that a request takes whatever its number of tokens: windows that drop older tokens, and compressors.
    pub request_bytes: f64,
}

impl Memory {
    /// Number of KV blocks of `block_size` tokens that fit; 0 if the weights do not fit.
    pub fn kv_blocks(&self, block_size: u32) -> u32 {
        (self.kv_bytes / (self.kv_bytes_token * f64::from(block_size))).max(0.0) as u32
    }

    /// Number of KV blocks of `block_size` tokens that `bytes` bytes take. A block has one owner, so a part of a block
    /// counts as a whole one.
    pub fn blocks_of(&self, bytes: f64, block_size: u32) -> u32 {
        // The quotient of equal sizes may be a rounding error above a whole number.
        let blocks = bytes / (self.kv_bytes_token * f64::from(block_size));
        if blocks.is_finite() { (blocks - 1e-9).ceil().max(0.0) as u32 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;
    use crate::hardware::models::entry;
    use foretoken_sim::EngineConfig;

    #[test]
    fn a_part_of_a_block_is_a_block() {
        let memory =
            Memory { kv_bytes_token: 65_536.0, kv_bytes: 4.57e9, state_bytes: 153_944_064.0, request_bytes: 0.0 };
        // Qwen3.5's 48 states of 3.2 MB: 146.8 blocks of 16 tokens. vLLM's pages of 784 tokens hold 16 states each.
        assert_eq!(memory.blocks_of(memory.state_bytes, 16), 147);
        assert_eq!(memory.blocks_of(memory.state_bytes, 784), 3);
        assert_eq!(memory.blocks_of(3.0 * 784.0 * 65_536.0, 784), 3);
        assert_eq!((memory.blocks_of(0.0, 16), Memory { kv_bytes_token: 0.0, ..memory }.blocks_of(1.0, 16)), (0, 0));
    }

    /// vLLM's own managers held as many requests as our counts say (`tests/vllm/states.py`).
    #[test]
    fn as_many_requests_are_held_as_by_vllm() {
        let recorded: serde_json::Value = serde_json::from_str(include_str!("states-0.33.0.json")).unwrap();
        let number = |value: &serde_json::Value, key: &str| u32::try_from(value[key].as_u64().unwrap()).unwrap();
        let (blocks, tokens) = (number(&recorded["about"], "blocks"), number(&recorded["about"], "tokens"));
        let models = recorded.as_object().unwrap().iter().filter(|(name, _)| *name != "about");
        let mut rows = 0;
        for (name, row) in models.flat_map(|(name, rows)| rows.as_array().unwrap().iter().map(move |row| (name, row))) {
            let work = entry(name).unwrap().shape.work();
            let memory = Memory {
                kv_bytes_token: work.kv_bytes_token(1.0),
                kv_bytes: 0.0,
                state_bytes: work.state_bytes,
                request_bytes: 0.0,
            };
            let block_size = number(row, "block_size");
            let state_blocks = memory.blocks_of(memory.state_bytes, block_size);
            assert_eq!(state_blocks, number(row, "state_groups"), "{name}");
            let engine = EngineConfig { state_blocks, ..EngineConfig::default() };
            // One block is the null block.
            let held = (blocks - 1) / (engine.blocks_of_a_request(number(row, "k")) + tokens.div_ceil(block_size));
            assert_eq!(held, number(row, "held"), "{name}: {row}");
            rows += 1;
        }
        assert_eq!(rows, 30);
    }
}
