//! What a user may set about the engine: vLLM's names, vLLM's defaults where it has one.

use serde::{Deserialize, Serialize};

/// Which scheduler orders the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// vLLM V1: running first, then waiting, prompts and decodes in one step (policies.md 4.2).
    #[default]
    V1,
    /// vLLM v0: a step is a prefill step or a decode step (policies.md 14); the papers ran on it.
    V0PrefillFirst,
}

/// What happens to tokens the draft has not seen because a request did not draft (policies.md 0.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftGap {
    /// They are fed to the draft in the first pass of its next use, at their cost as batched tokens.
    #[default]
    CatchUpNextUse,
    /// The draft runs over them in every step, drafting or not.
    AlwaysExtend,
    /// The request never drafts again.
    Permanent,
}

/// What draft tokens charge to the token budget (policies.md 9.11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetCharge {
    /// The policy's limit + 1 for each decode request, as vLLM.
    #[default]
    Full,
    /// Verified + 1; chunks are topped up from what selection freed.
    Trimmed,
}

/// Where the draft keeps its KV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DraftKv {
    /// Costs nothing: a draft without KV, or memory set aside beforehand.
    #[default]
    None,
    /// The pool is split so that both models get the same number of blocks (vLLM v0); `ratio` is the draft's KV
    /// bytes a token over the target's.
    EqualSplit {
        /// Draft KV bytes a token / target KV bytes a token.
        ratio: f64,
    },
    /// A pool of its own.
    Separate {
        /// Blocks in it.
        blocks: u32,
    },
}

/// Host time of a policy's decisions, seconds each. None by default: simulated policies think for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DecisionSeconds {
    /// A proposal, once a step.
    pub propose: f64,
    /// A look after a draft pass, of a policy that looks: on hardware the host waits there for the device.
    pub keep_drafting: f64,
    /// A selection before verification, of a policy that selects.
    pub select: f64,
}

/// The engine's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Scheduler generation.
    pub scheduler: Scheduler,
    /// Most requests in the running list.
    pub max_num_seqs: u32,
    /// Token budget of a step.
    pub max_num_batched_tokens: u32,
    /// May a prompt be split over steps?
    pub chunked_prefill: bool,
    /// Longest chunk of a prompt in a step; 0 is no limit.
    pub long_prefill_token_threshold: u32,
    /// Tokens in a KV block.
    pub block_size: u32,
    /// KV blocks of the device.
    pub num_gpu_blocks: u32,
    /// Longest prompt + output.
    pub max_model_len: u32,
    /// Reuse KV of equal block prefixes?
    pub prefix_caching: bool,
    /// Admit a request only when its whole present sequence fits the free pool (vLLM 2026 `scheduler_reserve_full_isl`).
    pub reserve_full_sequence: bool,
    /// Share of blocks kept free on admission while something runs (vLLM 2026).
    pub watermark: f64,
    /// The draft's KV.
    pub draft_kv: DraftKv,
    /// Does the draft run over prompts as well? False is a draft that keeps no KV (prompt lookup, or one whose cost is left
    /// out): it has no gaps to catch up on either.
    pub draft_prefill: bool,
    /// Tokens the draft missed.
    pub draft_gap: DraftGap,
    /// What drafts charge to the budget.
    pub budget_charge: BudgetCharge,
    /// Most draft tokens a request in a step (vLLM `num_speculative_tokens`).
    pub max_draft_len: u32,
    /// Host time of a step outside the model, seconds.
    pub step_overhead_s: f64,
    /// Host time of a policy's decisions.
    pub decision_s: DecisionSeconds,
    /// Skip stretches of steps in which nothing can be decided. Results are the same bytes with it on and off.
    pub skip_stretches: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            scheduler: Scheduler::V1,
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            chunked_prefill: true,
            long_prefill_token_threshold: 0,
            block_size: 16,
            num_gpu_blocks: 8192,
            max_model_len: 1 << 20,
            prefix_caching: true,
            reserve_full_sequence: false,
            watermark: 0.0,
            draft_kv: DraftKv::None,
            draft_prefill: true,
            draft_gap: DraftGap::CatchUpNextUse,
            budget_charge: BudgetCharge::Full,
            max_draft_len: 8,
            step_overhead_s: 0.0,
            decision_s: DecisionSeconds::default(),
            skip_stretches: true,
        }
    }
}

/// A setting the engine cannot run with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("engine.{key}: {why}")]
pub struct BadConfig {
    /// The setting.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub why: String,
}

impl EngineConfig {
    /// Checks every setting that serde cannot.
    pub fn check(&self) -> Result<(), BadConfig> {
        let positive = [
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("block_size", self.block_size),
            ("max_model_len", self.max_model_len),
        ];
        for (key, value) in positive {
            if value == 0 {
                return Err(BadConfig { key, why: "must be at least 1".into() });
            }
        }
        let bounded =
            [("block_size", self.block_size, MOST_BLOCK_SIZE), ("max_model_len", self.max_model_len, MOST_MODEL_LEN)];
        for (key, value, most) in bounded {
            if value > most {
                return Err(BadConfig { key, why: format!("{value} is over the limit of {most} tokens") });
            }
        }
        if self.num_gpu_blocks < 2 {
            return Err(BadConfig {
                key: "num_gpu_blocks",
                why: "must be at least 2: one block is the null block".into(),
            });
        }
        if self.max_draft_len > MAX_SPEC_LEN {
            return Err(BadConfig {
                key: "max_draft_len",
                why: format!("{} is over the limit of {MAX_SPEC_LEN}", self.max_draft_len),
            });
        }
        if !(0.0..1.0).contains(&self.watermark) {
            return Err(BadConfig { key: "watermark", why: format!("{} is not a share in [0, 1)", self.watermark) });
        }
        let times = [
            ("step_overhead_s", self.step_overhead_s),
            ("decision_s.propose", self.decision_s.propose),
            ("decision_s.keep_drafting", self.decision_s.keep_drafting),
            ("decision_s.select", self.decision_s.select),
        ];
        if let Some((key, s)) = times.into_iter().find(|(_, s)| !(*s >= 0.0 && s.is_finite())) {
            return Err(BadConfig { key, why: format!("{s} is not a time ≥ 0 s") });
        }
        match self.draft_kv {
            DraftKv::EqualSplit { ratio } if !(ratio >= 0.0 && ratio.is_finite()) => {
                Err(BadConfig { key: "draft_kv.equal-split.ratio", why: format!("{ratio} is not a ratio ≥ 0") })
            }
            DraftKv::Separate { blocks: 0 } => {
                Err(BadConfig { key: "draft_kv.separate.blocks", why: "must be at least 1".into() })
            }
            _ => Ok(()),
        }
    }
}

/// Most draft tokens a request in a step, whatever is configured (vLLM `MAX_SPEC_LEN`).
pub const MAX_SPEC_LEN: u32 = 32;

/// Most tokens in a KV block and in a request: the engine counts the tokens of a request's blocks in 32 bits.
const MOST_BLOCK_SIZE: u32 = 1 << 16;
const MOST_MODEL_LEN: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_the_longest_request_are_counted_in_32_bits() {
        let with = |block_size, max_model_len| EngineConfig { block_size, max_model_len, ..EngineConfig::default() };
        let most = with(MOST_BLOCK_SIZE, MOST_MODEL_LEN);
        assert_eq!(most.check(), Ok(()));
        let tokens = most.max_model_len + crate::MAX_TREE_TOKENS;
        assert!(tokens.div_ceil(most.block_size).checked_mul(most.block_size).is_some());
        let why = |config: EngineConfig| config.check().unwrap_err().to_string();
        assert_eq!(why(with(65_537, 4096)), "engine.block_size: 65537 is over the limit of 65536 tokens");
        assert_eq!(why(with(16, u32::MAX)), "engine.max_model_len: 4294967295 is over the limit of 2147483648 tokens");
    }
}
