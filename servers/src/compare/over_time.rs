//! Compares two runs by their curves over time: batch size, draft length and requests in flight.

use foretoken_sim::{RequestRecords, StepRecord, Time};

/// Number of bins into which a run is divided over time. Also the number of instants at which the requests in flight
/// are counted.
const BINS: usize = 40;

/// Decode batch size and draft length over time, in bins of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    /// Mean number of decode requests in a step, in each bin of time. Idle time counts with size 0.
    pub batch_size: Vec<f64>,
    /// Mean number of draft tokens per decode request and step, in each bin of time; 0 if no request decodes.
    pub draft_len: Vec<f64>,
}

impl Curves {
    /// The curves over time of several runs, averaged, in bins from 0 to `end`. A step counts in the bin in which it
    /// ends.
    pub fn of(runs: &[&[StepRecord]], end: Time) -> Curves {
        #[derive(Clone, Default)]
        struct Bin {
            batch_size: f64,
            drafted: f64,
            request_steps: f64,
        }
        let width = (end.0 / BINS as u64).max(1);
        let mut bins = vec![Bin::default(); BINS];
        for s in runs.iter().copied().flatten() {
            let bin = &mut bins[((s.end.0 / width) as usize).min(BINS - 1)];
            bin.batch_size += f64::from(s.batch_size) * (s.end - s.start).as_s() / Time(width).as_s();
            bin.drafted += f64::from(s.drafted);
            bin.request_steps += f64::from(s.batch_size);
        }
        let n = runs.len().max(1) as f64;
        let draft_len = |b: &Bin| if b.request_steps > 0.0 { b.drafted / b.request_steps } else { 0.0 };
        Curves {
            batch_size: bins.iter().map(|b| b.batch_size / n).collect(),
            draft_len: bins.iter().map(draft_len).collect(),
        }
    }

    /// The errors of the curves over time of (batch size, draft length): the mean absolute difference from the curve of
    /// `other`, relative to the mean of that curve.
    pub fn error(&self, other: &Curves) -> [Option<f64>; 2] {
        [curve_error(&self.batch_size, &other.batch_size), curve_error(&self.draft_len, &other.draft_len)]
    }
}

/// The error of the curve `a` against the curve `b`, both values by bin of time: mean over bins of |a − b| / mean of b.
/// A missing bin counts as 0. `None` if there is no bin or b is 0 throughout.
fn curve_error(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len().max(b.len());
    let value = |s: &[f64], i: usize| s.get(i).copied().unwrap_or(0.0);
    let apart: f64 = (0..n).map(|i| (value(a, i) - value(b, i)).abs()).sum();
    let size: f64 = b.iter().sum();
    (n > 0 && size > 0.0).then(|| apart / size)
}

/// Mean absolute difference between the numbers of requests in flight in the two runs, relative to the mean number in
/// the observed run. Only requests that finish count. Both runs are read at the same times after their first arrivals.
/// `None` if no observed request finished.
pub fn in_flight_error(observed: &RequestRecords, predicted: &RequestRecords) -> Option<f64> {
    let (a, b) = (in_flight(observed), in_flight(predicted));
    let end = a.iter().map(|s| s.to_s).fold(0.0, f64::max);
    let count = |spans: &[Span], t: f64| spans.iter().filter(|s| s.from_s <= t && t < s.to_s).count() as f64;
    let instants: Vec<f64> = (0..BINS).map(|i| end * (i as f64 + 0.5) / BINS as f64).collect();
    let mean = instants.iter().map(|&t| count(&a, t)).sum::<f64>() / BINS as f64;
    let apart = instants.iter().map(|&t| (count(&a, t) - count(&b, t)).abs()).sum::<f64>() / BINS as f64;
    (mean > 0.0).then(|| apart / mean)
}

/// The time from a request's arrival to its finish, in seconds after the run's first arrival.
struct Span {
    from_s: f64,
    to_s: f64,
}

/// The times in flight of a run's finished requests.
fn in_flight(r: &RequestRecords) -> Vec<Span> {
    let first = r.arrival.iter().min().map_or(0.0, |t| t.as_s());
    let span = |i: usize| Span { from_s: r.arrival[i].as_s() - first, to_s: r.finish[i].as_s() - first };
    (0..r.len()).filter(|&i| r.finished(i)).map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Vec<StepRecord> {
        let step = |start: f64, end: f64, batch_size| StepRecord {
            start: Time::from_s(start),
            end: Time::from_s(end),
            batch_size,
            drafted: 3 * batch_size,
            ..StepRecord::default()
        };
        vec![step(0.0, 1.0, 2), step(1.0, 4.0, 4)]
    }

    #[test]
    fn curves_of_different_length_differ_where_one_has_ended() {
        assert_eq!(curve_error(&[1.0, 2.0], &[1.0, 2.0]), Some(0.0));
        assert_eq!(curve_error(&[1.0], &[1.0, 1.0]), Some(0.5));
        assert_eq!(curve_error(&[2.0, 2.0], &[1.0, 1.0]), Some(1.0));
        assert_eq!(curve_error(&[], &[]), None);
    }

    #[test]
    fn idle_time_counts_in_the_batch_curve() {
        let curves = Curves::of(&[&steps()], Time::from_s(8.0));
        assert!((curves.batch_size.iter().sum::<f64>() / BINS as f64 - 14.0 / 8.0).abs() < 1e-9);
        assert_eq!(curves.error(&curves), [Some(0.0), Some(0.0)]);
    }

    #[test]
    fn the_mean_of_two_equal_runs_is_the_run() {
        let (one, end) = (steps(), Time::from_s(8.0));
        assert_eq!(Curves::of(&[&one], end), Curves::of(&[&one, &one], end));
    }
}
