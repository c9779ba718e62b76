//! What cannot be served, said before it is tried; and what fails on the way.

use foretoken_sim::RequestId;

/// A run that these models, settings or policy do not allow on a device.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CannotServe {
    /// A setting of the engine.
    #[error("engine.{key}: {why}")]
    Engine {
        /// The setting.
        key: &'static str,
        /// What is wrong and what would be right.
        why: String,
    },
    /// The pair speaks two languages.
    #[error("the target has {target} tokens in its vocabulary and the draft {draft}: one cannot draft for the other")]
    Vocabulary {
        /// The target's tokens.
        target: u32,
        /// The draft's.
        draft: u32,
    },
    /// A policy drafts and nothing is there to draft with.
    #[error("the policy drafts, but no draft model is loaded")]
    NoDraft,
    /// The models were loaded with too little room.
    #[error("the models were loaded with room for {has} {what}, but {needed} are needed")]
    Capacity {
        /// Of what.
        what: &'static str,
        /// How much there is.
        has: usize,
        /// How much is needed.
        needed: usize,
    },
    /// Rejection sampling of trees.
    #[error("the policy drafts trees, and sampled trees are not verified: use greedy or declared acceptance")]
    SampledTrees,
    /// A temperature that no softmax has.
    #[error("a temperature of {0} samples nothing: it must be above 0; greedy acceptance is temperature 0")]
    Temperature(f32),
    /// A source of proposals that is no draft model.
    #[error("prompt lookup proposes without a draft model, so no device can run it: declare another acceptance source")]
    PromptLookup,
    /// A prompt that the target cannot read.
    #[error("request {request}: {why}")]
    Prompt {
        /// Whose.
        request: RequestId,
        /// What is wrong with it.
        why: String,
    },
}

/// What can fail while a run goes on.
#[derive(Debug, thiserror::Error)]
pub enum LiveError<E: std::error::Error + 'static> {
    /// The device.
    #[error(transparent)]
    Device(#[from] E),
    /// A tree for which the draft has no room.
    #[error("a drafted tree needs {needed} blocks of the draft's KV where {free} are free: draft narrower trees")]
    TreeTooWide {
        /// Blocks it needs.
        needed: usize,
        /// Blocks there are.
        free: usize,
    },
    /// More children than there are tokens.
    #[error("a tree asks for {asked} guesses at a position, but there are only {vocab} tokens")]
    TooManyGuesses {
        /// Guesses asked for.
        asked: u32,
        /// Tokens in the vocabulary.
        vocab: u32,
    },
}
