//! The device memory that weights and activations leave for KV.

use crate::hardware::models::Work;

/// Device memory for KV, over all GPUs that share the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Bytes of KV for one token in the layers that keep every token, summed over all GPUs that share the model. With
    /// windows: the bytes of a token in one of vLLM's groups of layers, which may hold padding.
    pub kv_bytes_token: f64,
    /// Bytes left for KV on all GPUs together; negative if weights and activations do not fit.
    pub kv_bytes: f64,
    /// Bytes of one recurrent state of a request, over all layers and GPUs.
    pub state_bytes: f64,
    /// Bytes that a request takes whatever its number of tokens: windows of compressed attention, and compressors.
    pub request_bytes: f64,
    /// Number of newest tokens that layers with a sliding window keep; 0 if no layer has one, or all layers have one.
    pub sliding_window: u32,
    /// Number of groups of layers with a sliding window, each of which takes `kv_bytes_token` for a token.
    pub window_groups: u32,
    all_bytes_token: f64,
}

impl Memory {
    /// The memory of a model whose passes do `work`, if weights and activations leave `kv_bytes` on all `gpus` GPUs
    /// together.
    pub fn new(work: &Work, kv_bytes: f64, gpus: f64) -> Memory {
        let all = work.kv_bytes_token(gpus);
        // Tensor parallelism splits recurrent states over the GPUs. Each GPU holds all of a window of compressed
        // attention, whose layers have one KV head.
        let (state_bytes, request_bytes) = (work.state_bytes, gpus * work.request_bytes);
        let one = Memory {
            kv_bytes_token: all,
            kv_bytes,
            state_bytes,
            request_bytes,
            sliding_window: 0,
            window_groups: 0,
            all_bytes_token: all,
        };
        let Some(windows) = work.windows(gpus) else { return one };
        // vLLM makes groups of equally many layers (`_get_kv_cache_groups_uniform_page_size`): as many as the fewer
        // layers of the two kinds are, or as the more if these are not half as many again. The rest is padding.
        let kept = all - windows.bytes_token;
        let of_group = if windows.bytes_token < 1.5 * kept { windows.bytes_token.max(kept) } else { kept };
        let groups = (windows.bytes_token / of_group - 1e-9).ceil();
        Memory { kv_bytes_token: of_group, sliding_window: windows.tokens as u32, window_groups: groups as u32, ..one }
    }

    /// The memory if layers with a sliding window keep every token, as in vLLM v0, and with vLLM's
    /// `--disable-hybrid-kv-cache-manager`.
    pub fn without_windows(self) -> Memory {
        Memory { kv_bytes_token: self.all_bytes_token, sliding_window: 0, window_groups: 0, ..self }
    }

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
            Memory { kv_bytes_token: 65_536.0, kv_bytes: 4.57e9, state_bytes: 153_944_064.0, ..Memory::default() };
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
            let memory = Memory::new(&work, 0.0, 1.0);
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

    /// vLLM's planning made these groups, with layers of these sizes (`tests/vllm/windows.py`). gpt-oss has 18 layers
    /// of each kind with 8 KV heads of 64 numbers. Gemma 3 27B has 10 layers with all tokens and 52 with a window.
    #[test]
    fn layers_with_a_window_are_groups_beside_the_others() {
        let of = |name: &str| Memory::new(&entry(name).unwrap().shape.work(), 1e9, 1.0);
        let groups = |name: &str| (of(name).kv_bytes_token, of(name).sliding_window, of(name).window_groups);
        assert_eq!(groups("gpt-oss-120b"), (18.0 * 2048.0, 128, 1));
        assert_eq!(groups("gpt-oss-20b"), (12.0 * 2048.0, 128, 1));
        assert_eq!(groups("gemma-3-27b"), (10.0 * 8192.0, 1024, 6));
        assert_eq!(groups("gemma-3-12b"), (8.0 * 8192.0, 1024, 5));
        assert_eq!(groups("llama-3.1-8b"), (131_072.0, 0, 0));
        let kept = of("gpt-oss-120b").without_windows();
        assert_eq!((kept.kv_bytes_token, kept.window_groups), (36.0 * 2048.0, 0));
        // A group of 18 layers has twice the blocks of 36 layers.
        assert_eq!(of("gpt-oss-120b").kv_blocks(16) / kept.kv_blocks(16), 2);
    }
}
