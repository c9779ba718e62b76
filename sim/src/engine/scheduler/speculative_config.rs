//! The drafter's properties that the scheduler must know: its longest draft length, and what chooses the draft lengths.

use crate::config::BatchRange;

/// The drafter's properties that the scheduler must know, such as its longest draft length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeculativeConfig {
    /// Whether there is a drafter (invariant 7 of INVARIANTS.md).
    pub drafter: bool,
    /// vLLM's `num_speculative_tokens`: the most draft tokens that a request may ever have in a step; 0 without
    /// speculation.
    pub num_speculative_tokens: u32,
    /// vLLM's `parallel_drafting`: whether one forward pass gives all draft tokens of a request.
    pub parallel_drafting: bool,
    /// vLLM's `num_speculative_tokens_per_batch_size`: draft lengths by batch size; empty for no table.
    pub per_batch_size: Vec<BatchRange>,
    /// The kind of rule that chooses the draft lengths: vLLM's settings, a policy, or an oracle.
    pub lengths: Lengths,
}

/// The kind of rule that chooses the draft lengths: vLLM's settings, a policy, or an oracle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lengths {
    /// vLLM's own settings: one draft length for all requests, or one length for each batch size.
    #[default]
    Released,
    /// A policy that vLLM does not have. The rules of vLLM's scheduler apply to its draft tokens. But the drafter makes
    /// only the draft passes that the chosen draft lengths need, even where vLLM always makes all passes.
    Own,
    /// An oracle, a bound that sees which draft tokens are right. It shows the best that is possible, so no rule of the
    /// engine limits its draft lengths.
    Free,
}
