//! How long a forward pass takes: the true latency models of an executor, and the linear belief that a policy may be
//! given.

use crate::time::Time;

mod linear;

pub use linear::Linear;

/// A forward pass as a latency model sees it: sums over everything in the pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PassShape {
    /// Requests with tokens in the pass; 0 if not known, as in files. Recurrent layers read a state for each request,
    /// and window layers at most a window of its context.
    #[serde(skip)]
    pub requests: u64,
    /// New tokens pushed through the model (docs/model.md 12 `batched`).
    pub batched: u64,
    /// Tokens of KV read, after [`ContextReads`] was applied (docs/model.md 12 `context`).
    pub context: u64,
    /// Query-key pairs that attention computes: for each new token, the number of KV tokens that it attends to, summed.
    pub pairs: u64,
}

/// How a verify pass reads a request's context: once, or once per verified position.
///
/// vLLM V1's variable-length attention reads it once; v0's batch expansion, and the AdaSpec paper's Eq. 4, once per
/// position. This decides whether longer context means longer or shorter speculation, so it is stated everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContextReads {
    /// Once a pass.
    #[default]
    Once,
    /// Once for each of the v + 1 positions.
    PerPosition,
}

/// How a draft makes its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Drafting {
    /// One pass for each token (or level of a tree).
    #[default]
    Autoregressive,
    /// One pass for all tokens of a round: heads on one hidden state (Medusa), block drafters (DFlash), text copied
    /// from the prompt. All tokens of a request count as batched tokens of this pass.
    Parallel,
}

/// Where the draft runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftDevice {
    /// On the target's device, one pass behind the other.
    #[default]
    Shared,
    /// On a device of its own, beside the target's passes: of the draft passes of a round only what the last target
    /// pass does not cover takes time, so that a round lasts as long as the longer of the two. The draft's weights and
    /// KV take no memory of the target. The draft must guess what the pass beside it will accept
    /// (`engine.outcomes_guessed`).
    Own,
}

/// The true time of a forward pass.
pub trait LatencyModel: Send + Sync {
    /// Time of one pass. It is called once or a few times a step and must not allocate.
    fn pass(&self, shape: PassShape) -> Time;
}

/// α, γ, δ of `T = α·context + γ·batched + δ`, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// Seconds per token of context read.
    pub alpha_s: f64,
    /// Seconds per batched token.
    pub gamma_s: f64,
    /// Seconds per pass.
    pub delta_s: f64,
}

impl Coefficients {
    /// Coefficients of a model that costs nothing.
    pub const FREE: Coefficients = Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 0.0 };

    /// Time of a pass in seconds.
    pub fn pass_s(&self, context: f64, batched: f64) -> f64 {
        self.alpha_s * context + self.gamma_s * batched + self.delta_s
    }
}
