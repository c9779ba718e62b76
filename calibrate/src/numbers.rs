//! The numbers of a run that are compared, drawn in the same way from an observed run and from a predicted one.

use crate::spread::median;
use foretoken_sim::metrics::Quantiles;
use foretoken_sim::{RequestRecords, Run};
use serde::Serialize;

/// The numbers of a run. Seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Numbers {
    /// Output tokens of finished requests a second, from the first arrival to the last finish.
    pub throughput_tok_s: f64,
    /// Time to first token.
    pub ttft: Quantiles,
    /// Time per output token after the first.
    pub tpot: Quantiles,
    /// End-to-end latency.
    pub e2e: Quantiles,
    /// Drafted tokens accepted a round; `None` where nothing was drafted.
    pub accepted: Option<f64>,
}

/// A name, and how its number is drawn.
pub type Metric = (&'static str, fn(&Numbers) -> f64);

/// What is compared of them.
pub const COMPARED: [Metric; 13] = [
    ("throughput", |n| n.throughput_tok_s),
    ("ttft mean", |n| n.ttft.mean),
    ("ttft p50", |n| n.ttft.p50),
    ("ttft p90", |n| n.ttft.p90),
    ("ttft p99", |n| n.ttft.p99),
    ("tpot mean", |n| n.tpot.mean),
    ("tpot p50", |n| n.tpot.p50),
    ("tpot p90", |n| n.tpot.p90),
    ("tpot p99", |n| n.tpot.p99),
    ("e2e mean", |n| n.e2e.mean),
    ("e2e p50", |n| n.e2e.p50),
    ("e2e p90", |n| n.e2e.p90),
    ("e2e p99", |n| n.e2e.p99),
];

impl Numbers {
    /// Of a run; `None` where no request of more than one token finished.
    pub fn of(run: &Run) -> Option<Numbers> {
        let rounds = run.totals.rounds();
        let accepted = (rounds > 0).then(|| run.totals.accepted() as f64 / rounds as f64);
        Numbers::of_records(&run.records, accepted)
    }

    /// Of the requests of a run.
    pub fn of_records(r: &RequestRecords, accepted: Option<f64>) -> Option<Numbers> {
        let done: Vec<usize> = (0..r.len()).filter(|&i| r.finished(i)).collect();
        let of = |f: &dyn Fn(usize) -> Option<f64>| {
            Quantiles::of(&mut done.iter().filter_map(|&i| f(i)).collect::<Vec<_>>())
        };
        let first = r.arrival.iter().min()?.as_s();
        let last = done.iter().map(|&i| r.finish[i]).max()?.as_s();
        let tokens: u64 = done.iter().map(|&i| u64::from(r.emitted[i])).sum();
        Some(Numbers {
            throughput_tok_s: if last > first { tokens as f64 / (last - first) } else { 0.0 },
            ttft: of(&|i| Some(r.ttft_s(i)))?,
            tpot: of(&|i| r.tpot_s(i))?,
            e2e: of(&|i| Some(r.e2e_s(i)))?,
            accepted,
        })
    }

    /// The mean of several, number by number.
    pub fn mean(all: &[Numbers]) -> Option<Numbers> {
        Numbers::of_several(all, |values| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The median of several, number by number.
    pub fn median(all: &[Numbers]) -> Option<Numbers> {
        Numbers::of_several(all, median)
    }

    fn of_several(all: &[Numbers], middle: fn(Vec<f64>) -> f64) -> Option<Numbers> {
        let of = |f: &dyn Fn(&Numbers) -> f64| middle(all.iter().map(f).collect());
        let quantiles = |q: fn(&Numbers) -> Quantiles| Quantiles {
            mean: of(&|x| q(x).mean),
            p50: of(&|x| q(x).p50),
            p90: of(&|x| q(x).p90),
            p99: of(&|x| q(x).p99),
        };
        let accepted: Vec<f64> = all.iter().filter_map(|x| x.accepted).collect();
        (!all.is_empty()).then(|| Numbers {
            throughput_tok_s: of(&|x| x.throughput_tok_s),
            ttft: quantiles(|x| x.ttft),
            tpot: quantiles(|x| x.tpot),
            e2e: quantiles(|x| x.e2e),
            accepted: (!accepted.is_empty()).then(|| middle(accepted)),
        })
    }
}

/// Points at which the number of requests in flight is compared.
const POINTS: usize = 40;

/// How far apart the numbers of requests in flight are over time, relative to the observed mean: both at the same
/// instants after the first arrival.
pub fn in_flight_error(observed: &RequestRecords, predicted: &RequestRecords) -> Option<f64> {
    let (a, b) = (spans(observed), spans(predicted));
    let end = a.iter().map(|s| s.1).fold(0.0, f64::max);
    let at = |spans: &[(f64, f64)], t: f64| spans.iter().filter(|s| s.0 <= t && t < s.1).count() as f64;
    let instants: Vec<f64> = (0..POINTS).map(|i| end * (i as f64 + 0.5) / POINTS as f64).collect();
    let mean = instants.iter().map(|&t| at(&a, t)).sum::<f64>() / POINTS as f64;
    let apart = instants.iter().map(|&t| (at(&a, t) - at(&b, t)).abs()).sum::<f64>() / POINTS as f64;
    (mean > 0.0).then(|| apart / mean)
}

/// From when to when each finished request was in flight, seconds after the first arrival.
fn spans(r: &RequestRecords) -> Vec<(f64, f64)> {
    let first = r.arrival.iter().min().map_or(0.0, |t| t.as_s());
    let of = |i: usize| (r.arrival[i].as_s() - first, r.finish[i].as_s() - first);
    (0..r.len()).filter(|&i| r.finished(i)).map(of).collect()
}
