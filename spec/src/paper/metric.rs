//! The numbers of a run that a claim may refer to.

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
    /// Time from the first arrival to the last finish, seconds.
    MakespanS,
    /// Mean time to first token, seconds.
    TtftMeanS,
    /// 99th percentile of the time to first token, seconds.
    TtftP99S,
    /// Mean time per output token after the first, seconds.
    TpotMeanS,
    /// 99th percentile of the time per output token after the first, seconds.
    TpotP99S,
    /// Median gap between the emissions of a request, seconds. An emission may hold several tokens.
    ItlP50S,
    /// 99th percentile of the gaps between the emissions of a request, seconds.
    ItlP99S,
    /// Share of requests that met every bound.
    SloAttainment,
    /// Draft tokens drafted a request-step.
    DraftLength,
    /// Draft tokens verified a request-step.
    VerifyLength,
    /// Draft tokens accepted a request-step.
    AcceptedLength,
    /// Tokens emitted a round that verified drafts: 1 + accepted drafts.
    AcceptanceLength,
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
        use Metric::{E2eMeanS, ItlP50S, ItlP99S, MakespanS, TpotMeanS, TpotP99S, TtftMeanS, TtftP99S};
        matches!(self, E2eMeanS | ItlP50S | ItlP99S | MakespanS | TpotMeanS | TpotP99S | TtftMeanS | TtftP99S)
    }
}
