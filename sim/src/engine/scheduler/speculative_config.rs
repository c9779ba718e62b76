//! What the scheduler must know of who drafts.

use crate::config::BatchRange;
use crate::oracle::OraclePolicy;
use crate::policy::SpecPolicy;
use crate::tree::MAX_TREE_TOKENS;

/// What the scheduler must know of speculation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeculativeConfig {
    /// Is there a drafter at all (invariant 7)?
    pub drafter: bool,
    /// `num_speculative_tokens`: the most any request may ever have drafted in a step; 0 is no speculation.
    pub num_speculative_tokens: u32,
    /// `parallel_drafting`: does one forward bring all draft tokens?
    pub parallel_drafting: bool,
    /// `num_speculative_tokens_per_batch_size`. Empty is none.
    pub per_batch_size: Vec<BatchRange>,
    /// Whose lengths are they?
    pub lengths: Lengths,
}

/// Who chooses the lengths of drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lengths {
    /// vLLM, by its settings: one length for all, or one by the batch.
    #[default]
    Released,
    /// A policy that vLLM does not have. It is taken to be built into it as its EAGLE drafter is: as many passes as it asks for.
    Own,
    /// An oracle: a bound, which nothing of the engine holds back.
    Free,
}

impl SpeculativeConfig {
    /// A policy's, of chains of at most `max_draft_len` tokens. Trees are not vLLM's: they count by their tokens.
    pub fn of_policy(policy: &dyn SpecPolicy, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig {
        let limits = policy.limits();
        let chain = limits.max_depth.min(max_draft_len);
        let tree = limits.max_tree_tokens.min(MAX_TREE_TOKENS);
        SpeculativeConfig {
            drafter: true,
            num_speculative_tokens: chain.max(tree),
            parallel_drafting,
            per_batch_size: limits.vllm.unwrap_or_default().to_vec(),
            lengths: if limits.vllm.is_some() { Lengths::Released } else { Lengths::Own },
        }
    }

    /// An oracle's.
    pub fn of_oracle(oracle: &dyn OraclePolicy, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig {
        let num_speculative_tokens = oracle.limit().min(max_draft_len);
        SpeculativeConfig {
            drafter: true,
            num_speculative_tokens,
            parallel_drafting,
            per_batch_size: Vec::new(),
            lengths: Lengths::Free,
        }
    }
}
