//! The properties of a drafter that the scheduler must know.

use crate::config::BatchRange;
use crate::oracle::OraclePolicy;
use crate::policy::SpecPolicy;
use crate::tree::MAX_TREE_TOKENS;

/// The properties of speculation that the scheduler must know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeculativeConfig {
    /// Whether there is a drafter (invariant 7).
    pub drafter: bool,
    /// `num_speculative_tokens`: the most drafts that a request may ever have in a step; 0 for no speculation.
    pub num_speculative_tokens: u32,
    /// `parallel_drafting`: whether one forward gives all draft tokens.
    pub parallel_drafting: bool,
    /// `num_speculative_tokens_per_batch_size`; empty for none.
    pub per_batch_size: Vec<BatchRange>,
    /// What chooses the draft lengths.
    pub lengths: Lengths,
}

/// What chooses the draft lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lengths {
    /// vLLM's settings: one length for all requests, or one by batch size.
    #[default]
    Released,
    /// A policy that vLLM does not have. It is assumed to be built into vLLM like the EAGLE drafter, with as many
    /// passes as it wants.
    Own,
    /// An oracle: a bound, which no rule of the engine limits.
    Free,
}

impl SpeculativeConfig {
    /// The properties of a policy with chains of at most `max_draft_len` tokens. Trees, which vLLM does not have, count
    /// by their tokens.
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

    /// The properties of an oracle.
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
