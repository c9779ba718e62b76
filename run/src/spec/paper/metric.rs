//! The numbers of a run that a paper's claim may refer to, such as the speedup.

use serde::{Deserialize, Serialize};

/// A number that is computed from one policy's run with one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Mean end-to-end latency of the autoregressive run divided by the policy's. Above 1 the policy is faster.
    Speedup,
    /// Mean end-to-end latency, seconds.
    E2eMeanS,
    /// Output tokens of finished requests a second, from the first arrival to the last finish.
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
    /// Share of the finished and rejected requests that kept every bound of `[slo]`, [0, 1].
    SloAttainment,
    /// Mean number of tokens that are drafted for a decode request in a step.
    DraftLength,
    /// Mean number of draft tokens of a decode request that the target verifies in a step.
    VerifyLength,
    /// Mean number of draft tokens of a decode request that are accepted in a step.
    AcceptedLength,
    /// Mean number of output tokens of a request in a step that verified draft tokens of this request: 1 + its accepted
    /// draft tokens.
    AcceptanceLength,
    /// Number of accepted draft tokens divided by the number of drafted tokens.
    DraftedAcceptance,
    /// Number of accepted draft tokens divided by the number of verified draft tokens.
    VerifiedAcceptance,
    /// Mean number of decode requests in a step, weighted by the step's time.
    BatchSize,
    /// Mean number of tokens that a decode request has in a verify pass: its verified draft tokens and its newest
    /// token.
    BatchedPerRequest,
}

impl Metric {
    /// True if a lower value of the metric is better.
    pub fn less_is_better(self) -> bool {
        use Metric::{E2eMeanS, ItlP50S, ItlP99S, MakespanS, TpotMeanS, TpotP99S, TtftMeanS, TtftP99S};
        matches!(self, E2eMeanS | ItlP50S | ItlP99S | MakespanS | TpotMeanS | TpotP99S | TtftMeanS | TtftP99S)
    }
}
