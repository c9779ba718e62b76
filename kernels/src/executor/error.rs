//! Errors of runs on a device: [`CannotServe`] before the start, [`LiveError`] during a run.

use foretoken_sim::RequestId;

/// Why these models on this device cannot serve a run with these settings and this policy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CannotServe {
    /// A setting of the engine is not supported.
    #[error("engine.{key}: {why}")]
    Engine {
        /// The key of the setting that is not supported, in the table `[engine]`.
        key: &'static str,
        /// What is wrong with the setting's value, and which values are right.
        why: String,
    },
    /// The target and the draft have different vocabularies.
    #[error("the target has {target} tokens in its vocabulary and the draft {draft}: one cannot draft for the other")]
    Vocabulary {
        /// Number of tokens in the target's vocabulary.
        target: u32,
        /// Number of tokens in the draft's vocabulary.
        draft: u32,
    },
    /// The policy drafts, but no draft model is loaded.
    #[error("the policy drafts, but no draft model is loaded")]
    NoDraft,
    /// The models were loaded with too little memory for this run. A size of their memory (a field of
    /// [`Capacity`](super::Capacity)) is too small.
    #[error("the models were loaded with room for {has} {what}, but {needed} are needed")]
    Capacity {
        /// The name of the size that is too small (a field of [`Capacity`](super::Capacity)), in words.
        what: &'static str,
        /// The size with which the models were loaded.
        has: usize,
        needed: usize,
    },
    /// The policy drafts trees, and rejection sampling of trees is not supported.
    #[error("the policy drafts trees, and sampled trees are not verified: use greedy or declared acceptance")]
    SampledTrees,
    /// The temperature is not above 0 and finite.
    #[error("a temperature of {0} samples nothing: it must be above 0; greedy acceptance is temperature 0")]
    Temperature(f32),
    /// The acceptance source is prompt lookup. It proposes draft tokens without a draft model, which a device run does
    /// not support.
    #[error("prompt lookup proposes without a draft model, so no device can run it: declare another acceptance source")]
    PromptLookup,
    /// A prompt does not have the length that the workload states, has a token outside of the target's vocabulary, or
    /// breaks the rule that shared prefix blocks have equal tokens.
    #[error("request {request}: {why}")]
    Prompt {
        /// The request that has the wrong prompt.
        request: RequestId,
        /// What is wrong with the prompt.
        why: String,
    },
}

/// A failure during a run on a device.
#[derive(Debug, thiserror::Error)]
pub enum LiveError<E: std::error::Error + 'static> {
    #[error(transparent)]
    Device(#[from] E),
    /// A draft tree needs more scratch blocks (blocks of the draft model's KV for draft trees) than are free.
    #[error("a drafted tree needs {needed} blocks of the draft's KV where {free} are free: draft narrower trees")]
    TreeTooWide {
        /// Number of scratch blocks (blocks of the draft model's KV for draft trees) that the draft tree still needs.
        needed: usize,
        /// Number of free scratch blocks (KV of the draft model for draft trees).
        free: usize,
    },
    /// A draft tree asks for more children of a node than the vocabulary has tokens.
    #[error("a tree asks for {asked} guesses at a position, but there are only {vocab} tokens")]
    TooManyGuesses {
        /// Number of children of a node that the draft tree asks for.
        asked: u32,
        /// Number of tokens in the vocabulary, which is also the most children that a node can have.
        vocab: u32,
    },
}
