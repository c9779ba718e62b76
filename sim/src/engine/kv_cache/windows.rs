//! The KV of layers with a sliding window (vLLM's `SlidingWindowManager`, docs/model.md 4.7): how many blocks they take
//! beside the blocks of the layers that keep every token.

use crate::config::EngineConfig;
use crate::engine::scheduler::{Order, Rules};

/// The groups of layers with a sliding window. A block of a group holds `block_size` tokens. It is given back once no
/// later token attends to its tokens.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Number of groups; 0 if no layer has a window.
    groups: u32,
    /// Number of newest tokens to which a token attends, itself included.
    tokens: u32,
    block_size: u32,
    /// Most blocks that a request ever holds in a group (vLLM's `max_admission_blocks_per_request`).
    most: u32,
}

impl Windows {
    /// The windows of an engine that follows `rules`.
    pub fn new(config: &EngineConfig, rules: &Rules) -> Windows {
        // In an async engine a step is scheduled while another one is computed, so that two steps hold tokens.
        let steps = if rules.order == Order::Async { 2 } else { 1 };
        let in_flight = config.max_num_batched_tokens.saturating_mul(steps);
        let newest = config.sliding_window.saturating_sub(1).saturating_add(in_flight).min(config.max_model_len);
        Windows {
            groups: config.window_groups,
            tokens: config.sliding_window,
            block_size: config.block_size,
            most: newest.div_ceil(config.block_size) + 1,
        }
    }

    /// Number of groups; 0 if no layer has a window.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Number of a request's leading blocks that no later token attends to, once `computed` tokens are computed.
    fn passed(&self, computed: u32) -> u32 {
        (computed + 1).saturating_sub(self.tokens) / self.block_size
    }

    /// Number of blocks that a request holds in all groups, if it has slots for `blocks` blocks and `computed` of its
    /// tokens are computed.
    pub fn held(&self, blocks: u32, computed: u32) -> u32 {
        self.groups * blocks.saturating_sub(self.passed(computed))
    }

    /// Most blocks that a request of `blocks` blocks of tokens ever holds in all groups.
    pub fn most(&self, blocks: u32) -> u32 {
        self.groups * blocks.min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::Windows;
    use crate::config::EngineConfig;
    use crate::engine::{Order, Rules, SpeculativeConfig};
    use serde_json::Value;

    fn number(value: &Value) -> u32 {
        u32::try_from(value.as_u64().expect("a number")).expect("a small number")
    }

    /// vLLM's own managers held as many blocks, step by step (`tests/vllm/windows.py`).
    #[test]
    fn as_many_blocks_are_held_as_by_vllm() {
        let recorded: Value = serde_json::from_str(include_str!("windows-0.33.0.json")).unwrap();
        let (mut steps, mut in_flight) = (0, 0);
        for (name, model) in recorded.as_object().unwrap().iter().filter(|(name, _)| *name != "about") {
            for run in model["runs"].as_array().unwrap() {
                let config = EngineConfig {
                    sliding_window: number(&model["window"]),
                    window_groups: number(&model["groups"]),
                    block_size: number(&recorded["about"]["block_size"]),
                    max_model_len: number(&recorded["about"]["max_model_len"]),
                    max_num_batched_tokens: number(&run["budget"]),
                    async_scheduling: run["asynchronous"].as_bool(),
                    ..EngineConfig::default()
                };
                let rules = Rules::of(&config, &SpeculativeConfig::default()).unwrap();
                assert_eq!(run["asynchronous"] == true, rules.order == Order::Async);
                let windows = Windows::new(&config, &rules);
                assert_eq!(windows.most, number(&run["most"]), "{name}");
                let mut blocks = 0;
                for step in run["steps"].as_array().unwrap() {
                    let [computed, flying, tokens, held] = [0, 1, 2, 3].map(|i| number(&step[i]));
                    // Slots of rejected draft tokens stay with the request.
                    blocks = tokens.div_ceil(config.block_size).max(blocks);
                    assert_eq!(blocks + windows.held(blocks, computed - flying), held, "{name}: {step}");
                    (steps, in_flight) = (steps + 1, in_flight + u32::from(flying > 0));
                }
            }
        }
        assert!(steps > 3000 && in_flight > 1000, "{steps}, {in_flight}");
    }
}
