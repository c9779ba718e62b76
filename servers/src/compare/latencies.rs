//! The latencies of a run's finished requests, and the distances between the latency distributions of two runs.

use foretoken_sim::RequestRecords;

/// Latencies of the finished requests of one or several runs, in seconds. The requests are in the order of their ids,
/// run after run. Requests with one output token have no TPOT.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Time to first token of each finished request, seconds.
    pub ttft: Vec<f64>,
    /// Time per output token after the first of each finished request with at least two output tokens, seconds.
    pub tpot: Vec<f64>,
    /// End-to-end latency of each finished request, seconds.
    pub e2e: Vec<f64>,
}

impl Latencies {
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a RequestRecords>) -> Latencies {
        let mut pooled = Latencies::default();
        for r in runs {
            let done = || (0..r.len()).filter(|&i| r.finished(i));
            pooled.ttft.extend(done().map(|i| r.ttft_s(i)));
            pooled.tpot.extend(done().filter_map(|i| r.tpot_s(i)));
            pooled.e2e.extend(done().map(|i| r.e2e_s(i)));
        }
        pooled
    }

    /// The lists of latencies in the order TTFT, TPOT, E2E.
    pub fn into_array(self) -> [Vec<f64>; 3] {
        [self.ttft, self.tpot, self.e2e]
    }

    /// For TTFT, TPOT and E2E: the largest distance between the distribution functions of the two runs, from 0 to 1.
    /// `None` if a run has no such latency.
    pub fn distances(&self, other: &Latencies) -> [Option<f64>; 3] {
        let distance = |a: &[f64], b: &[f64]| cdf_distance(&mut a.to_vec(), &mut b.to_vec());
        [distance(&self.ttft, &other.ttft), distance(&self.tpot, &other.tpot), distance(&self.e2e, &other.e2e)]
    }
}

/// The largest distance between the empirical distribution functions of two samples (Kolmogorov–Smirnov), from 0 to 1.
/// `None` if a sample is empty. Sorts both samples.
fn cdf_distance(a: &mut [f64], b: &mut [f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    a.sort_unstable_by(f64::total_cmp);
    b.sort_unstable_by(f64::total_cmp);
    let (mut i, mut j, mut most) = (0, 0, 0.0f64);
    while i < a.len() && j < b.len() {
        // A value that occurs in both samples is counted in both distribution functions before the functions are
        // compared.
        let value = a[i].min(b[j]);
        i += a[i..].iter().take_while(|&&x| x <= value).count();
        j += b[j..].iter().take_while(|&&x| x <= value).count();
        most = most.max((i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs());
    }
    Some(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_distributions_is_the_largest_gap() {
        assert_eq!(cdf_distance(&mut [1.0, 2.0, 3.0], &mut [3.0, 1.0, 2.0]), Some(0.0));
        assert_eq!(cdf_distance(&mut [1.0, 2.0], &mut [5.0, 6.0]), Some(1.0));
        // At the value 1 the two distribution functions are 1/4 apart, the largest distance: 1 of 4 values against 1 of
        // 2.
        assert_eq!(cdf_distance(&mut [1.0, 2.0, 3.0, 4.0], &mut [1.0, 3.5]), Some(0.25));
        assert_eq!(cdf_distance(&mut [2.0, 2.0, 2.0], &mut [2.0]), Some(0.0));
        assert_eq!(cdf_distance(&mut [], &mut [1.0]), None);
    }

    #[test]
    fn each_kind_of_latency_has_its_own_distance() {
        let one = Latencies { ttft: vec![1.0, 2.0], tpot: vec![1.0, 2.0], e2e: vec![] };
        let other = Latencies { ttft: vec![5.0, 6.0], tpot: vec![2.0, 3.0], e2e: vec![1.0] };
        assert_eq!(one.distances(&other), [Some(1.0), Some(0.5), None]);
    }
}
