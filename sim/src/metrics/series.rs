//! Load and draft length over time, in a limited number of bins. When no more bins are allowed, neighbouring bins merge
//! and the bin width doubles. Memory is therefore constant for any length of the run, and the result depends only on
//! the steps.

use crate::metrics::StepRecord;
use crate::time::Time;

/// Largest number of bins of time in a series.
const MAX_BINS: usize = 1024;

/// Sums over the steps that ended in one bin of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Bin {
    /// Time inside the steps that ended in the bin, ps.
    pub busy: u64,
    /// Sum over the bin's steps: number of decode requests times duration of the step, ps.
    pub batch_time: u128,
    /// Number of decode requests, summed over the bin's steps.
    pub request_steps: u64,
    /// Number of draft tokens drafted in the bin's steps.
    pub drafted: u64,
    /// Number of draft tokens accepted in the bin's steps.
    pub accepted: u64,
    /// Number of output tokens emitted in the bin's steps.
    pub emitted: u64,
}

impl Bin {
    /// Mean decode batch size, weighted by step time; 0 in an idle bin.
    pub fn batch_size(&self) -> f64 {
        if self.busy == 0 { 0.0 } else { self.batch_time as f64 / self.busy as f64 }
    }

    /// Mean number of drafted tokens over the bin's request-steps (one request in one step); `None` if no request
    /// decoded.
    pub fn draft_len(&self) -> Option<f64> {
        (self.request_steps > 0).then(|| self.drafted as f64 / self.request_steps as f64)
    }

    fn merge(&mut self, other: &Bin) {
        self.busy += other.busy;
        self.batch_time += other.batch_time;
        self.request_steps += other.request_steps;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
        self.emitted += other.emitted;
    }
}

/// Load and draft length of a run over time, in bins of equal width.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Series {
    /// Width of a bin of time.
    pub width: Time,
    /// Sums over the steps of each bin of time, from time zero.
    pub bins: Vec<Bin>,
    /// Time at which the last bin ends. It is stored so that adding a step to its bin needs no division.
    last_end: Time,
}

impl Default for Series {
    fn default() -> Self {
        Series { width: Time::from_s(0.5), bins: Vec::new(), last_end: Time::ZERO }
    }
}

impl Series {
    /// A series of bins with this width, from time zero.
    pub fn of(width: Time, bins: Vec<Bin>) -> Series {
        let last_end = width * bins.len() as u64;
        Series { width, bins, last_end }
    }

    /// Adds the bins of another series on the same clock, such as the series of another replica. The result has the
    /// wider of the two bin widths.
    pub fn merge(&mut self, mut other: Series) {
        while self.width < other.width {
            self.halve();
        }
        while other.width < self.width {
            other.halve();
        }
        self.bins.resize(self.bins.len().max(other.bins.len()), Bin::default());
        self.bins.iter_mut().zip(&other.bins).for_each(|(mine, theirs)| mine.merge(theirs));
        self.last_end = self.width * self.bins.len() as u64;
    }

    /// Adds a step to the bin in which it ends.
    #[inline]
    pub fn step(&mut self, s: &StepRecord) {
        let span = (s.end - s.start).0;
        let bin = self.bin(s.end);
        bin.busy += span;
        bin.batch_time += u128::from(s.batch_size) * u128::from(span);
        bin.request_steps += u64::from(s.batch_size);
        bin.drafted += u64::from(s.drafted);
        bin.accepted += u64::from(s.accepted);
        bin.emitted += u64::from(s.emitted);
    }

    /// The bin that contains the time `end`. Calls must be in ascending order of `end`.
    #[inline]
    fn bin(&mut self, end: Time) -> &mut Bin {
        if end >= self.last_end {
            self.reach(end);
        }
        self.bins.last_mut().expect("reach opened a bin")
    }

    /// Time at which the last bin ends. Several steps that end before this time may be added in one call of
    /// [`lump`](Series::lump).
    #[inline]
    pub fn last_end(&self) -> Time {
        self.last_end
    }

    /// Adds `steps` steps without draft tokens and without prompts, all with the same batch size. `busy` is their total
    /// time. All these steps must end in the bin that contains `end`.
    pub fn lump(&mut self, end: Time, batch_size: u32, steps: u64, busy: Time) {
        let n = u64::from(batch_size) * steps;
        let bin = self.bin(end);
        bin.busy += busy.0;
        bin.batch_time += u128::from(batch_size) * u128::from(busy.0);
        bin.request_steps += n;
        bin.emitted += n;
    }

    /// Opens bins up to the bin that contains `at`. If there would be more than [`MAX_BINS`], merges neighbouring bins
    /// first.
    #[cold]
    fn reach(&mut self, at: Time) {
        while (at.0 / self.width.0) as usize >= MAX_BINS {
            self.halve();
        }
        let bins = (at.0 / self.width.0) as usize + 1;
        self.bins.resize(bins.max(self.bins.len()), Bin::default());
        self.last_end = self.width * self.bins.len() as u64;
    }

    fn halve(&mut self) {
        self.width = self.width * 2;
        let merged = self.bins.chunks(2).map(|pair| {
            let mut first = pair[0];
            pair.get(1).inspect(|second| first.merge(second));
            first
        });
        self.bins = merged.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_every_sum() {
        let mut s = Series::default();
        let step = |i: u64| StepRecord {
            start: Time::from_s(i as f64 * 0.9),
            end: Time::from_s(i as f64 * 0.9 + 0.4),
            batch_size: 3,
            drafted: 6,
            emitted: 5,
            ..StepRecord::default()
        };
        (0..5000).for_each(|i| s.step(&step(i)));
        assert!(s.bins.len() <= MAX_BINS && s.width > Time::from_s(0.5));
        assert_eq!(s.bins.iter().map(|b| b.emitted).sum::<u64>(), 25_000);
        assert_eq!(s.bins[0].batch_size(), 3.0);
        assert_eq!(s.bins[0].draft_len(), Some(2.0));
    }
}
