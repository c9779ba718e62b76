//! The chosen draft lengths by batch size, with their results: sums over steps in constant memory.
//!
//! Steps are counted separately by three values: the number of decode requests (exact below 32, from there in eight
//! buckets for each doubling), the mean draft length rounded to a whole token, and whether the step prefilled prompts.
//! Steps with prefill are separate, because prefill takes time that does not depend on the draft length.

use crate::config::MAX_SPEC_LEN;
use crate::metrics::StepRecord;
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Batch sizes (numbers of decode requests) below this number have a bucket of steps each.
const EXACT: u32 = 32;
/// Number of buckets of steps for each doubling of the batch size (number of decode requests) from [`EXACT`] on.
const AN_OCTAVE: u32 = 8;
/// Number of different draft lengths. A tree with more tokens counts as the longest length.
const LENGTHS: usize = MAX_SPEC_LEN as usize + 1;

/// Sums over the steps of one bucket: steps with about the same number of decode requests and the same mean draft
/// length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthSums {
    /// Number of steps in the bucket.
    pub steps: u64,
    /// Number of decode requests, summed over the steps of the bucket.
    pub request_steps: u64,
    /// Time inside the steps of the bucket, ps.
    pub busy: u64,
    /// Number of draft tokens drafted in the steps of the bucket.
    pub drafted: u64,
    /// Number of draft tokens accepted in the steps of the bucket.
    pub accepted: u64,
    /// Number of output tokens emitted in the steps of the bucket, including the first tokens of requests.
    pub emitted: u64,
}

/// The sums over the steps of one bucket: steps with about the same number of decode requests and the same draft
/// length. The bucket has at least one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthRow {
    /// Smallest decode batch size of the bucket.
    pub batch_size: u32,
    /// Largest decode batch size of the bucket.
    pub batch_size_to: u32,
    /// Draft length of the bucket: the mean draft length of each of its steps, rounded to a whole token.
    pub draft_len: u32,
    /// True if prompts were prefilled in the steps of the bucket, false if its steps had no prompts.
    pub prefilling: bool,
    /// The sums over the steps of the bucket.
    pub sums: LengthSums,
}

/// Sums over a run's steps, by number of decode requests and by draft length. Steps without a decode request are not
/// counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Sums over steps, by bucket of the number of decode requests, by mean draft length, and by whether prompts were
    /// prefilled.
    sums: Vec<[[LengthSums; 2]; LENGTHS]>,
}

impl Lengths {
    /// Adds a step to the sums of steps with about the same number of decode requests and the same mean draft length.
    /// Does nothing for a step without a decode request.
    #[inline]
    pub fn step(&mut self, s: &StepRecord) {
        if s.batch_size == 0 {
            return;
        }
        let length = if s.drafted == 0 { 0 } else { (s.drafted + s.batch_size / 2) / s.batch_size };
        let sums = self.sums_at(s.batch_size, length, s.chunks > 0);
        sums.steps += 1;
        sums.request_steps += u64::from(s.batch_size);
        sums.busy += (s.end - s.start).0;
        sums.drafted += u64::from(s.drafted);
        sums.accepted += u64::from(s.accepted);
        sums.emitted += u64::from(s.emitted);
    }

    /// Adds `steps` steps without draft tokens and without prompts, all with the same batch size. `busy` is their total
    /// time.
    pub fn plain_steps(&mut self, batch_size: u32, steps: u64, busy: Time) {
        let n = u64::from(batch_size) * steps;
        let sums = self.sums_at(batch_size, 0, false);
        sums.steps += steps;
        sums.request_steps += n;
        sums.busy += busy.0;
        sums.emitted += n;
    }

    #[inline]
    fn sums_at(&mut self, batch_size: u32, length: u32, prefilling: bool) -> &mut LengthSums {
        let bucket = bucket(batch_size) as usize;
        if bucket >= self.sums.len() {
            self.grow(bucket);
        }
        &mut self.sums[bucket][(length as usize).min(LENGTHS - 1)][usize::from(prefilling)]
    }

    #[cold]
    fn grow(&mut self, bucket: usize) {
        self.sums.resize(bucket + 1, [[LengthSums::default(); 2]; LENGTHS]);
    }

    /// Adds the sums over the steps of another run.
    pub fn merge(&mut self, other: &Lengths) {
        if other.sums.len() > self.sums.len() {
            self.grow(other.sums.len() - 1);
        }
        for (mine, theirs) in self.sums.iter_mut().flatten().flatten().zip(other.sums.iter().flatten().flatten()) {
            mine.steps += theirs.steps;
            mine.request_steps += theirs.request_steps;
            mine.busy += theirs.busy;
            mine.drafted += theirs.drafted;
            mine.accepted += theirs.accepted;
            mine.emitted += theirs.emitted;
        }
    }

    /// The buckets that have steps, sorted by batch size and then by draft length. With equal values the bucket of
    /// steps without prompts comes first.
    pub fn rows(&self) -> Vec<LengthRow> {
        let mut rows = Vec::new();
        for (bucket, lengths) in (0u32..).zip(&self.sums) {
            for (draft_len, kinds) in (0u32..).zip(lengths) {
                let row = |(prefilling, sums): (bool, &LengthSums)| LengthRow {
                    batch_size: least(bucket),
                    batch_size_to: least(bucket + 1) - 1,
                    draft_len,
                    prefilling,
                    sums: *sums,
                };
                rows.extend([false, true].into_iter().zip(kinds).filter(|k| k.1.steps > 0).map(row));
            }
        }
        rows
    }
}

/// The index of the bucket for steps with `batch_size` decode requests.
#[inline]
fn bucket(batch_size: u32) -> u32 {
    if batch_size < EXACT {
        return batch_size;
    }
    let octave = batch_size.ilog2() - EXACT.ilog2();
    let within = (batch_size - (EXACT << octave)) / ((EXACT / AN_OCTAVE) << octave);
    EXACT + octave * AN_OCTAVE + within
}

/// The smallest number of decode requests that belongs to a bucket.
fn least(bucket: u32) -> u32 {
    if bucket < EXACT {
        return bucket;
    }
    let (octave, within) = ((bucket - EXACT) / AN_OCTAVE, (bucket - EXACT) % AN_OCTAVE);
    (EXACT + within * (EXACT / AN_OCTAVE)) << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another_without_gaps() {
        for size in 1..5000 {
            let b = bucket(size);
            assert!(least(b) <= size && size < least(b + 1), "{size} in {b}");
        }
        assert_eq!((bucket(31), bucket(32), bucket(35), bucket(36), bucket(64)), (31, 32, 32, 33, 40));
    }

    #[test]
    fn steps_add_up_and_prompts_are_kept_apart() {
        let mut lengths = Lengths::default();
        let step = |batch_size, drafted, chunks| StepRecord {
            start: Time(10),
            end: Time(30),
            batch_size,
            drafted,
            chunks,
            accepted: drafted / 2,
            emitted: batch_size + drafted / 2,
            ..StepRecord::default()
        };
        [step(4, 10, 0), step(4, 11, 0), step(4, 10, 1), step(0, 0, 1)].iter().for_each(|s| lengths.step(s));
        lengths.plain_steps(2, 5, Time(70));
        let rows: Vec<_> =
            lengths.rows().iter().map(|r| (r.batch_size, r.draft_len, r.prefilling, r.sums.steps)).collect();
        // (Batch size, draft length, whether prompts were prefilled, number of steps). The steps with 4 requests have
        // 10 or 11 draft tokens: 10 / 4 and 11 / 4 both round to the draft length 3.
        assert_eq!(rows, [(2, 0, false, 5), (4, 3, false, 2), (4, 3, true, 1)]);
        let sums = lengths.rows()[1].sums;
        assert_eq!((sums.request_steps, sums.busy, sums.drafted, sums.accepted, sums.emitted), (8, 40, 21, 10, 18));
    }

    #[test]
    fn a_stretch_counts_as_its_steps() {
        let (mut one, mut other) = (Lengths::default(), Lengths::default());
        one.plain_steps(3, 2, Time(40));
        let step = StepRecord { start: Time(0), end: Time(20), batch_size: 3, emitted: 3, ..StepRecord::default() };
        (0..2).for_each(|_| other.step(&step));
        assert_eq!(one, other);
    }
}
