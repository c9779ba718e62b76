//! The numbers of a cell that claims may be about.

use foretoken_report::Cell;
use foretoken_sim::Summary;
use foretoken_sim::metrics::Quantiles;
use serde::{Deserialize, Serialize};

/// A number of one policy's run on one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Mean end-to-end latency of autoregressive / that of the policy.
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
    /// Tokens a decode request brings into a verify pass, its own newest one included.
    BatchedPerRequest,
}

impl Metric {
    /// Its value in a cell; absent where it means nothing.
    pub fn of(self, cell: &Cell) -> Option<f64> {
        let s: &Summary = &cell.summary;
        let mean = |q: Option<Quantiles>| q.map(|q| q.mean);
        match self {
            Metric::Speedup => cell.speedup,
            Metric::E2eMeanS => mean(s.e2e),
            Metric::TokenGoodput => Some(s.token_goodput_tok_s),
            Metric::SloAttainment => s.slo_attainment,
            Metric::DraftLength => Some(s.drafted_per_step),
            Metric::VerifyLength => Some(s.verified_per_step),
            Metric::AcceptedLength => Some(s.accepted_per_step),
            Metric::DraftedAcceptance => s.acceptance_rate,
            Metric::VerifiedAcceptance => (s.verified > 0).then(|| s.accepted as f64 / s.verified as f64),
            Metric::BatchSize => Some(s.mean_batch_size),
            Metric::BatchedPerRequest => Some(s.verified_per_step + 1.0),
        }
    }

    /// Is less of it better?
    pub fn less_is_better(self) -> bool {
        matches!(self, Metric::E2eMeanS)
    }
}
