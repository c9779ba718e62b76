//! The properties of a drafter that the scheduler must know.

use crate::config::BatchRange;

/// The properties of speculation that the scheduler must know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeculativeConfig {
    /// Whether there is a drafter (invariant 7 of INVARIANTS.md).
    pub drafter: bool,
    /// vLLM's `num_speculative_tokens`: the most drafts that a request may ever have in a step; 0 without speculation.
    pub num_speculative_tokens: u32,
    /// vLLM's `parallel_drafting`: whether one forward pass gives all draft tokens of a request.
    pub parallel_drafting: bool,
    /// vLLM's `num_speculative_tokens_per_batch_size`: draft lengths by batch size; empty for no table.
    pub per_batch_size: Vec<BatchRange>,
    /// What chooses the draft lengths.
    pub lengths: Lengths,
}

/// What chooses the draft lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lengths {
    /// vLLM's own settings: one draft length for all requests, or one length for each batch size.
    #[default]
    Released,
    /// A policy that vLLM does not have. The replica assumes that it is built into vLLM like the EAGLE drafter, and
    /// that it may make any number of draft passes.
    Own,
    /// An oracle. It is a bound, so no rule of the engine limits its lengths.
    Free,
}
