//! Reads from a run's results the metrics that a paper's claims can name, such as mean E2E.

use crate::spec::paper::Metric;
use foretoken_report::Cell;
use foretoken_sim::Summary;
use foretoken_sim::metrics::Quantiles;

/// The value of a metric, such as mean E2E, in the results of one run; `None` if the run does not have the metric.
pub fn of(metric: Metric, cell: &Cell) -> Option<f64> {
    let s: &Summary = &cell.summary;
    let mean = |q: Option<Quantiles>| q.map(|q| q.mean);
    match metric {
        Metric::Speedup => cell.speedup,
        Metric::E2eMeanS => mean(s.e2e),
        Metric::TokenGoodput => Some(s.token_goodput_tok_s),
        Metric::MakespanS => Some(s.duration_s),
        Metric::TtftMeanS => mean(s.ttft),
        Metric::TtftP99S => s.ttft.map(|q| q.p99),
        Metric::TpotMeanS => mean(s.tpot),
        Metric::TpotP99S => s.tpot.map(|q| q.p99),
        Metric::ItlP50S => s.itl.map(|q| q.p50),
        Metric::ItlP99S => s.itl.map(|q| q.p99),
        Metric::SloAttainment => s.slo_attainment,
        Metric::DraftLength => Some(s.drafted_per_step),
        Metric::VerifyLength => Some(s.verified_per_step),
        Metric::AcceptedLength => Some(s.accepted_per_step),
        Metric::AcceptanceLength => s.mean_acceptance_length,
        Metric::DraftedAcceptance => s.acceptance_rate,
        Metric::VerifiedAcceptance => (s.verified > 0).then(|| s.accepted as f64 / s.verified as f64),
        Metric::BatchSize => Some(s.mean_batch_size),
        Metric::BatchedPerRequest => Some(s.verified_per_step + 1.0),
    }
}
