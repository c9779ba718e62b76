//! Gaps between a request's emissions, over a whole run, in constant memory: the number of gaps by length, to three
//! significant digits, and the exact sum of all gaps.

use crate::time::Time;
use hdrhistogram::Histogram;

/// Number of leading bits of a gap that decide its bucket. With 11 bits two gaps in the same bucket differ by less than
/// a thousandth, as in a [`Histogram`] with three significant digits.
const BITS: u32 = 11;
const HALF: usize = 1 << (BITS - 1);

/// Gaps between the emissions of each request, pooled over all requests.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// Number of gaps in each [`bucket`]. The list is used in place of a `Histogram`, because a bucket is found faster.
    /// The list grows up to the bucket of the longest gap.
    counts: Vec<u64>,
    /// Sum of the gaps between emissions of all requests, ps.
    sum: u128,
}

impl Default for Gaps {
    fn default() -> Self {
        // The list has room for gaps of up to about a second (2^40 ps). It grows only for longer gaps.
        Gaps { counts: vec![0; bucket(1 << 40)], sum: 0 }
    }
}

/// The bucket of a gap between a request's emissions, in picoseconds. Gaps with the same leading bits have the same
/// bucket.
#[inline]
fn bucket(gap: u64) -> usize {
    // `| 1` defines the logarithm of a gap of 0 and changes no other result.
    let shift = (gap | 1).ilog2().saturating_sub(BITS - 1);
    shift as usize * HALF + (gap >> shift) as usize
}

/// The smallest gap, in picoseconds, of a bucket.
fn least(bucket: usize) -> u64 {
    let shift = (bucket / HALF).saturating_sub(1);
    ((bucket - shift * HALF) as u64) << shift
}

impl Gaps {
    /// Adds `count` gaps of length `gap` between a request's emissions.
    #[inline]
    pub fn record(&mut self, gap: Time, count: u32) {
        self.count(gap, count);
        self.add(gap, count);
    }

    /// Counts `count` gaps of length `gap` between a request's emissions, but does not add them to the sum of all gaps.
    #[inline]
    pub fn count(&mut self, gap: Time, count: u32) {
        let bucket = bucket(gap.0);
        match self.counts.get_mut(bucket) {
            Some(gaps) => *gaps += u64::from(count),
            None => self.count_longest(bucket, count),
        }
    }

    /// Adds `count` times `gap` to the sum of all gaps between emissions, for gaps that were [counted](Gaps::count).
    #[inline]
    pub fn add(&mut self, gap: Time, count: u32) {
        self.sum += u128::from(gap.0) * u128::from(count);
    }

    /// Adds the gap of one request, the time since its last emission. Called for a request that emitted no token in the
    /// previous step, so its gap differs from the gap of the other requests.
    #[cold]
    #[inline(never)]
    pub fn record_one(&mut self, gap: Time) {
        self.record(gap, 1);
    }

    /// Adds `count` gaps to a bucket beyond the end of `counts`, which grows.
    #[cold]
    #[inline(never)]
    fn count_longest(&mut self, bucket: usize, count: u32) {
        self.counts.resize((bucket + 1).next_multiple_of(HALF), 0);
        self.counts[bucket] += u64::from(count);
    }

    /// Adds the gaps between emissions of another run.
    pub fn merge(&mut self, other: &Gaps) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.sum += other.sum;
    }

    /// Number of recorded gaps between emissions.
    pub fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Whether no gap between emissions was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The exact mean of the gaps between a request's emissions, over all requests, seconds; NaN without gaps.
    pub fn mean_s(&self) -> f64 {
        self.sum as f64 / crate::time::PS_PER_S / self.len() as f64
    }

    /// Quantiles of the gaps between a request's emissions, over all requests, seconds, to three significant digits.
    pub fn quantiles_s<const N: usize>(&self, at: [f64; N]) -> [f64; N] {
        let mut histogram = Histogram::<u64>::new(3).expect("three digits are a valid precision");
        histogram.auto(true);
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            histogram.record_n(least(bucket), count).expect("the histogram resizes itself");
        }
        at.map(|q| Time(histogram.value_at_quantile(q)).as_s())
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
        assert_eq!(gaps.len(), 20_000);
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let at = [0.5, 0.9, 0.99];
        for (q, quantile) in at.into_iter().zip(gaps.quantiles_s(at)) {
            let exact = sorted[(q * 10_000.0) as usize - 1] as f64 / 1e12;
            assert!((quantile / exact - 1.0).abs() < 1e-3, "{q}");
        }
        let mean = values.iter().sum::<u64>() as f64 / 10_000.0 / 1e12;
        assert!((gaps.mean_s() / mean - 1.0).abs() < 1e-12);
    }

    #[test]
    fn buckets_equal_those_of_a_histogram_with_three_digits() {
        let histogram = Histogram::<u64>::new_with_bounds(1, u64::MAX / 2, 3).expect("these bounds are valid");
        let gaps = (0..62)
            .flat_map(|bit| [-1i64, 0, 1, 77].map(|more| (1u64 << bit).wrapping_add_signed(more) & (u64::MAX >> 2)));
        for gap in gaps.chain(0..5000) {
            assert_eq!(least(bucket(gap)), histogram.lowest_equivalent(gap), "{gap}");
        }
    }

    #[test]
    fn a_gap_of_days_finds_a_bucket() {
        let mut gaps = Gaps::default();
        gaps.record(Time(1 << 60), 3);
        gaps.record(Time(5), 1);
        let [low, high] = gaps.quantiles_s([0.2, 0.9]);
        assert!((low, gaps.len()) == (5e-12, 4) && (high / 1.152_921_5e6 - 1.0).abs() < 1e-3, "{low} {high}");
    }
}
