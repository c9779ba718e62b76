//! The distribution of a latency, stored as at most 512 points. So a figure over a million requests stays small, and
//! the request records need not stay in memory.

use foretoken_sim::RequestRecords;
use foretoken_sim::metrics::{Pieces, quantile_sorted};
use serde::{Deserialize, Serialize};

/// The most values that a [`Cdf`], the distribution of a latency, holds.
const POINTS: usize = 512;

/// The distribution of a latency: values with equal weights, ascending. With at most 512 samples the values are the
/// samples. With more, they are 512 quantiles, each at the middle of one of 512 equal shares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cdf {
    /// The latencies of the distribution (all samples, or 512 quantiles of them), seconds, ascending.
    pub values: Vec<f64>,
    /// Number of requests whose latencies the values summarize.
    pub samples: u64,
}

impl Cdf {
    /// The distribution of the latencies `samples`, given in seconds and in any order.
    pub fn of(mut samples: Vec<f64>) -> Cdf {
        samples.sort_unstable_by(f64::total_cmp);
        let n = samples.len();
        let values = if n <= POINTS {
            samples
        } else {
            (0..POINTS).map(|i| quantile_sorted(&samples, (i as f64 + 0.5) / POINTS as f64)).collect()
        };
        Cdf { values, samples: n as u64 }
    }

    /// The distribution of the end-to-end latencies of finished requests.
    pub fn e2e(records: &dyn Pieces) -> Cdf {
        Cdf::of_finished(records, |r, i| Some(r.e2e_s(i)))
    }

    /// The distribution of the times to first token of finished requests.
    pub fn ttft(records: &dyn Pieces) -> Cdf {
        Cdf::of_finished(records, |r, i| Some(r.ttft_s(i)))
    }

    /// The distribution of the times per output token of finished requests. Requests with one output token are left
    /// out.
    pub fn tpot(records: &dyn Pieces) -> Cdf {
        Cdf::of_finished(records, RequestRecords::tpot_s)
    }

    fn of_finished(records: &dyn Pieces, latency: fn(&RequestRecords, usize) -> Option<f64>) -> Cdf {
        let mut finished = 0;
        records.each(&mut |piece| finished += (0..piece.len()).filter(|&i| piece.finished(i)).count());
        let mut samples = Vec::with_capacity(finished);
        let mut add = |piece: &RequestRecords| {
            samples.extend((0..piece.len()).filter(|&i| piece.finished(i)).filter_map(|i| latency(piece, i)));
        };
        records.each(&mut add);
        Cdf::of(samples)
    }

    /// Pools several distributions into one cumulative curve, in which each sample has the same weight. Returns points
    /// (value in seconds, share of samples at or below the value), ascending; the last share is 1. Empty if there are
    /// no samples.
    pub fn mixture(parts: &[&Cdf]) -> Vec<(f64, f64)> {
        let total: f64 = parts.iter().map(|c| c.samples as f64).sum();
        let weigh = |c: &Cdf| {
            let weight = c.samples as f64 / c.values.len() as f64 / total;
            c.values.iter().map(|&v| (v, weight)).collect::<Vec<_>>()
        };
        let mut steps: Vec<(f64, f64)> = parts.iter().flat_map(|c| weigh(c)).collect();
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut below = 0.0;
        for step in &mut steps {
            below += step.1;
            step.1 = below;
        }
        // Rounding may give a last share other than 1, so it is set to 1.
        if let Some(last) = steps.last_mut() {
            last.1 = 1.0;
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_are_kept_and_many_become_quantiles() {
        assert_eq!(Cdf::of(vec![3.0, 1.0, 2.0]).values, [1.0, 2.0, 3.0]);
        let many = Cdf::of((0..=100_000).rev().map(f64::from).collect());
        assert_eq!((many.values.len(), many.samples), (POINTS, 100_001));
        for (i, v) in many.values.iter().enumerate() {
            assert!((v - (i as f64 + 0.5) / POINTS as f64 * 1e5).abs() < 1e-6);
        }
    }

    #[test]
    fn a_mixture_weighs_samples() {
        let (a, b) = (Cdf::of(vec![1.0, 3.0, 5.0]), Cdf::of(vec![2.0]));
        assert_eq!(Cdf::mixture(&[&a, &b]), [(1.0, 0.25), (2.0, 0.5), (3.0, 0.75), (5.0, 1.0)]);
        assert!(Cdf::mixture(&[&Cdf::default()]).is_empty());
    }
}
