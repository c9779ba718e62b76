//! How long a forward pass takes: the true latency models of an executor, and the linear model that a policy may get as
//! its estimate of the pass times (its belief).

use crate::time::Time;

mod linear;

pub use linear::Linear;

/// A forward pass as a latency model sees it: sums over all requests of the pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PassShape {
    /// Number of requests with tokens in the pass; 0 if not known: files do not store this number. Two kinds of layers
    /// need it: recurrent layers read a state for each request, and window layers read at most a window of each
    /// request's context.
    #[serde(skip)]
    pub requests: u64,
    /// Number of new tokens that the model processes (docs/model.md 12 `batched`).
    pub batched: u64,
    /// Tokens of KV read, after [`ContextReads`] was applied (docs/model.md 12 `context`).
    pub context: u64,
    /// Query-key pairs that attention computes: the sum over the new tokens of the number of KV tokens to which each
    /// attends.
    pub pairs: u64,
}

/// How a verify pass reads a request's context: once, or once per verified position.
///
/// The variable-length attention of vLLM V1 reads the context once. The batch expansion of vLLM v0, and the AdaSpec
/// paper's Eq. 4, read the context once per position. This decides whether longer contexts favour more or fewer draft
/// tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContextReads {
    /// The context is read once in a pass.
    #[default]
    Once,
    /// The context is read v + 1 times, where v is the number of verified draft tokens.
    PerPosition,
}

/// How a drafter makes the tokens of a round (a request's draft tokens of one step).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Drafting {
    /// The drafter runs one pass for each token (or level of a tree).
    #[default]
    Autoregressive,
    /// One pass for all tokens of a round: several heads on one hidden state (Medusa), block drafters (DFlash), or text
    /// copied from the prompt. All draft tokens of a request count as batched tokens of this pass.
    Parallel,
}

/// The device of the draft model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftDevice {
    /// The target's device: draft passes and target passes run one after the other.
    #[default]
    Shared,
    /// Another device: drafting runs at the same time as the target's passes, so drafting and verifying together last
    /// as long as the longer of the two. The draft model's weights and KV take no memory of the target's device. The
    /// draft model must guess what the running target pass will accept (`engine.outcomes_guessed`).
    Own,
}

/// The true time of a forward pass.
pub trait LatencyModel: Send + Sync {
    /// Time of one pass. The engine calls this once or a few times in each step, so it must not allocate.
    fn pass(&self, shape: PassShape) -> Time;

    /// Time of the pass of one of several data-parallel ranks, whose passes together have `all` new tokens. The tokens
    /// of all ranks go through the experts, which are spread over the GPUs of all ranks. By default, as
    /// [`pass`](LatencyModel::pass): the model knows nothing of other ranks.
    fn pass_beside(&self, shape: PassShape, _all: u64) -> Time {
        self.pass(shape)
    }

    /// A time below that of every pass with at least one token; zero if the model knows none, which is the default. A
    /// fleet uses it to let its replicas run one after the other for longer ([`Replica::quiet_until`]).
    ///
    /// [`Replica::quiet_until`]: crate::Replica::quiet_until
    fn least(&self) -> Time {
        Time::ZERO
    }

    /// Time of a pass that only writes the keys and values of its tokens, as the first pass of a block drafter does. It
    /// has no attention, no feed-forward block and no output head. By default, the pass takes what its tokens add to a
    /// pass without tokens: a round of a block drafter has the constant part of a pass once.
    fn context_pass(&self, shape: PassShape) -> Time {
        let tokens = PassShape { context: 0, pairs: 0, ..shape };
        self.pass(tokens).saturating_sub(self.pass(PassShape::default()))
    }
}

/// The coefficients of a linear pass time `T = α·context + γ·batched + δ`, each ≥ 0. `context` is the tokens of context
/// that the pass reads, `batched` the tokens that it runs over.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// α: seconds for each token of context that a pass reads.
    pub alpha_s: f64,
    /// γ: seconds for each token that a pass runs over.
    pub gamma_s: f64,
    /// δ: constant seconds of a pass.
    pub delta_s: f64,
}

impl Coefficients {
    /// Coefficients of passes that take no time.
    pub const FREE: Coefficients = Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 0.0 };

    /// Seconds of a pass that reads `context` tokens of context and processes `batched` tokens.
    pub fn pass_s(&self, context: f64, batched: f64) -> f64 {
        self.alpha_s * context + self.gamma_s * batched + self.delta_s
    }
}
