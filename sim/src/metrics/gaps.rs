//! Inter-token gaps of a whole run in constant memory: a histogram with three significant digits, and the exact sum.

use crate::Time;
use hdrhistogram::Histogram;

/// Pooled gaps between the emissions of requests.
#[derive(Clone, Debug)]
pub struct Gaps {
    histogram: Histogram<u64>,
    /// Sum of all gaps, ps.
    sum: u128,
    /// Gaps of one bucket in a row, not yet in the histogram: neighbouring steps take nearly the same time.
    pending: u64,
    /// That bucket's lowest and highest value.
    bucket: (u64, u64),
}

impl Default for Gaps {
    fn default() -> Self {
        // Up to 12 days between two tokens of one request.
        let histogram = Histogram::new_with_bounds(1, 1 << 60, 3).expect("constant bounds are valid");
        Gaps { histogram, sum: 0, pending: 0, bucket: (1, 0) }
    }
}

impl Gaps {
    /// Adds `count` equal gaps.
    #[inline]
    pub fn record(&mut self, gap: Time, count: u32) {
        if gap.0 < self.bucket.0 || gap.0 > self.bucket.1 {
            self.change_bucket(gap.0);
        }
        self.pending += u64::from(count);
        self.sum += u128::from(gap.0) * u128::from(count);
    }

    #[inline(never)]
    fn change_bucket(&mut self, gap: u64) {
        self.flush();
        self.bucket = (self.histogram.lowest_equivalent(gap), self.histogram.highest_equivalent(gap));
    }

    /// Puts the pending gaps into the histogram. The engine calls it at the end of a run.
    pub fn flush(&mut self) {
        self.histogram.saturating_record_n(self.bucket.0, std::mem::take(&mut self.pending));
    }

    /// Gaps recorded and flushed.
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// No gap?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their mean, seconds, exact.
    pub fn mean_s(&self) -> f64 {
        self.sum as f64 / crate::time::PS_PER_S / self.len() as f64
    }

    /// A quantile, seconds, to three significant digits.
    pub fn quantile_s(&self, q: f64) -> f64 {
        Time(self.histogram.value_at_quantile(q)).as_s()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thousandth_and_the_mean_is_exact() {
        let mut gaps = Gaps::default();
        let values: Vec<u64> = (0..10_000u64).map(|i| 11_000_000_000 + i * 300_000 + (i % 7) * 1_000_000_000).collect();
        values.iter().for_each(|&v| gaps.record(Time(v), 2));
        gaps.flush();
        assert_eq!(gaps.len(), 20_000);
        let mut sorted = values.clone();
        sorted.sort_unstable();
        for q in [0.5, 0.9, 0.99] {
            let exact = sorted[(q * 10_000.0) as usize - 1] as f64 / 1e12;
            assert!((gaps.quantile_s(q) / exact - 1.0).abs() < 1e-3, "{q}");
        }
        let mean = values.iter().sum::<u64>() as f64 / 10_000.0 / 1e12;
        assert!((gaps.mean_s() / mean - 1.0).abs() < 1e-12);
    }
}
