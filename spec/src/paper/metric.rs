//! The numbers of a run that a claim of a paper may refer to.

use serde::{Deserialize, Serialize};

/// A number of one policy's run on one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Mean end-to-end latency of autoregressive over the policy's.
    Speedup,
    /// Mean end-to-end latency, seconds.
    E2eMeanS,
    /// Output tokens a second, from first arrival to last finish.
    TokenGoodput,
    /// Share of requests that met every bound.
    SloAttainment,
    /// Draft tokens drafted a request-step.
    DraftLength,
    /// Draft tokens verified a request-step.
    VerifyLength,
    /// Draft tokens accepted a request-step.
    AcceptedLength,
    /// Accepted / drafted.
    DraftedAcceptance,
    /// Accepted / verified.
    VerifiedAcceptance,
    /// Decode batch size, weighted by time.
    BatchSize,
    /// Tokens that a decode request brings into a verify pass, its newest one included.
    BatchedPerRequest,
}

impl Metric {
    /// Is a lower value better?
    pub fn less_is_better(self) -> bool {
        matches!(self, Metric::E2eMeanS)
    }
}
