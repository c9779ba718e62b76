//! Detects overload: more requests arrive than the engine can serve. Latencies then depend on the length of the run,
//! and not on the engine.

use super::{Pieces, RequestRecords};
use crate::time::Time;
use crate::workload::arrival_rate;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The arrival rate, the completion rate and the numbers of waiting requests of an overloaded run: its queue grew
/// because more requests arrived than were completed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// Requests per second that arrived, over the time from the first to the last arrival.
    pub offered_req_s: f64,
    /// Requests per second that finished before the last arrival.
    pub completed_req_s: f64,
    /// Numbers of waiting requests at three times: at a half, at three quarters and at the end of the time in which
    /// requests arrive.
    pub waiting: [u64; 3],
}

/// Fewest waiting requests that can count as overload.
const LEAST_WAITING: u64 = 8;

/// Like [`overload`], for a real run that was observed only until `seen`. Also returns `None` if not all requests had
/// arrived by `seen`.
pub fn overload_of(records: &RequestRecords, seen: Time) -> Option<Overload> {
    records.arrival.iter().max().filter(|last| **last <= seen).and_then(|_| overload(records))
}

/// Checks a run with open arrivals for overload. A run is overloaded if three conditions hold:
/// - At the last arrival at least 8 requests, or 5 % of all requests if that is more, are waiting.
/// - At three quarters of the time in which requests arrive, at least half as many were waiting as at the last arrival.
/// - In the time in which requests arrive, fewer requests per second completed than arrived.
///
/// Returns `None` if a condition fails, for fewer than 8 requests, and if all requests arrive at once. The time after
/// the last arrival, when the queue empties, does not count. Two cases are not overload: a burst at the end, before
/// which there was no queue, and a busy time whose queue was worked off. Do not call this for a closed loop, which
/// cannot be overloaded.
pub fn overload(records: &dyn Pieces) -> Option<Overload> {
    overload_in(records, 0..usize::MAX)
}

/// Like [`overload`], for the requests `ids` of a run alone, over the time in which these requests arrive.
pub fn overload_among(records: &RequestRecords, ids: Range<usize>) -> Option<Overload> {
    overload_in(records, ids)
}

/// Like [`overload_among`]. Ids beyond the end of the records are ignored.
fn overload_in(records: &dyn Pieces, ids: Range<usize>) -> Option<Overload> {
    let each = |f: &mut dyn FnMut(&RequestRecords, usize)| {
        let mut before = 0;
        records.each(&mut |piece| {
            (0..piece.len()).filter(|i| ids.contains(&(before + i))).for_each(|i| f(piece, i));
            before += piece.len();
        });
    };
    let (mut count, mut first, mut last) = (0, None, Time::ZERO);
    each(&mut |r, i| {
        count += 1;
        first.get_or_insert(r.arrival[i]);
        last = r.arrival[i];
    });
    let first = first?;
    // Overload needs at least 8 requests that did not all arrive at once.
    if count < 8 || last <= first {
        return None;
    }
    let span = (last - first).as_s();
    let time_of = |share: f64| first + Time::from_s(share * span);
    let times = [0.5, 0.75, 1.0].map(time_of);
    let (mut waiting, mut completed) = ([0; 3], 0);
    each(&mut |r, i| {
        completed += usize::from(r.finished(i) && r.finish[i] <= last);
        waiting.iter_mut().zip(times).for_each(|(waiting, at)| *waiting += u64::from(waits(r, i, at)));
    });
    let offered_req_s = arrival_rate(count, span)?;
    let found = Overload { offered_req_s, completed_req_s: completed as f64 / span, waiting };
    let least = LEAST_WAITING.max(count as u64 / 20);
    let no_burst = 2 * waiting[1] >= waiting[2];
    (waiting[2] >= least && no_burst && found.completed_req_s < found.offered_req_s).then_some(found)
}

/// Whether a request had arrived by `at`, and was neither scheduled nor rejected by then.
fn waits(r: &RequestRecords, i: usize, at: Time) -> bool {
    r.arrival[i] <= at && r.first_scheduled[i].min(r.finish[i]) > at
}

impl std::fmt::Display for Overload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [half, three_quarters, end] = self.waiting;
        write!(
            f,
            "overloaded: {:.2} requests/s came and {:.2} were completed while they came; {half}, {three_quarters} and {end} \
             were waiting at a half, three quarters and the end of the arrivals. Latencies grow with the length of such a run",
            self.offered_req_s, self.completed_req_s
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Outcome;

    /// A queue with one server. The server takes `service` seconds for each request, and one request arrives each
    /// second.
    fn queue(n: usize, service: f64) -> RequestRecords {
        let mut r = RequestRecords::new(n);
        let mut free = 0.0f64;
        for i in 0..n {
            let start = free.max(i as f64);
            free = start + service;
            r.arrival[i] = Time::from_s(i as f64);
            r.first_scheduled[i] = Time::from_s(start);
            r.finish[i] = Time::from_s(free);
            r.outcome[i] = Outcome::Finished;
        }
        r
    }

    #[test]
    fn a_queue_that_grows_to_the_end_is_overload() {
        assert_eq!(overload(&queue(200, 0.8)), None);
        let found = overload(&queue(200, 1.25)).unwrap();
        assert!((found.completed_req_s - 0.8).abs() < 0.01, "{found:?}");
        assert!((39..=40).contains(&found.waiting[2]), "{found:?}");
        let words = found.to_string();
        assert!(words.starts_with("overloaded: 1.00 requests/s came and 0.8"), "{words}");
    }

    /// A queue that varies between 0 and 2, and then a burst in the last tenth of the run. The queue is longer at three
    /// quarters of the run than at half of it, and longest at the end, but the run is not overloaded.
    #[test]
    fn a_burst_at_the_end_is_not_overload() {
        let mut r = queue(200, 0.8);
        let wait = |r: &mut RequestRecords, i: usize, s: f64| {
            r.first_scheduled[i] = r.arrival[i] + Time::from_s(s);
            r.finish[i] = r.first_scheduled[i] + Time::from_s(0.8);
        };
        (145..150).for_each(|i| wait(&mut r, i, 8.0));
        (180..200).for_each(|i| wait(&mut r, i, 60.0));
        assert_eq!(overload(&r), None);
        // Now the queue begins to grow before half of the requests have arrived, and becomes longer. This is overload.
        (90..200).for_each(|i| wait(&mut r, i, (i - 90) as f64 * 0.35));
        assert!(overload(&r).is_some());
    }

    /// The arrival rate rises and falls so that the queue never empties. This is overload, although the queue is
    /// shorter at the end than at three quarters.
    #[test]
    fn a_queue_that_is_never_worked_off_is_overload() {
        let mut r = queue(200, 0.5);
        let wait = |i: usize| if i < 140 { i as f64 * 0.3 } else { 42.0 - (i - 140) as f64 * 0.4 };
        (0..200).for_each(|i| r.first_scheduled[i] = r.arrival[i] + Time::from_s(wait(i)));
        (0..200).for_each(|i| r.finish[i] = r.first_scheduled[i] + Time::from_s(0.5));
        let [_, three_quarters, end] = overload(&r).unwrap().waiting;
        assert!(three_quarters > end && end > 10, "{three_quarters} {end}");
    }

    /// In the busy first half a queue grows. In the second half it is worked off.
    #[test]
    fn a_peak_that_is_worked_off_is_not_overload() {
        let mut r = queue(200, 0.5);
        (0..100).for_each(|i| r.first_scheduled[i] = r.arrival[i] + Time::from_s(0.4 * i as f64));
        assert_eq!(overload(&r), None);
    }

    /// The middle of a run is overloaded if it is judged alone; the beginning and the end of the run are not.
    #[test]
    fn a_part_of_a_run_is_judged_by_itself() {
        let mut r = queue(600, 0.8);
        (200..400).for_each(|i| r.first_scheduled[i] = r.arrival[i] + Time::from_s(0.25 * (i - 200) as f64));
        (200..400).for_each(|i| r.finish[i] = r.first_scheduled[i] + Time::from_s(0.8));
        assert!(overload_among(&r, 200..400).is_some());
        assert_eq!((overload_among(&r, 0..200), overload_among(&r, 400..600)), (None, None));
    }

    #[test]
    fn a_short_run_or_a_single_burst_is_not_overload() {
        assert_eq!(overload(&queue(4, 9.0)), None);
        let (slow, last) = (queue(200, 1.25), Time::from_s(199.0));
        assert!(
            overload_of(&slow, last).is_some() && overload_of(&slow, last - Time(1)).is_none(),
            "cut before its end"
        );
        assert_eq!(overload(&RequestRecords::new(0)), None);
        // All requests arrive at once, as in a closed loop, so there is no arrival rate.
        let mut r = queue(50, 1.0);
        r.arrival.fill(Time::ZERO);
        assert_eq!(overload(&r), None);
    }
}
