//! Decides when a run may end early, because the verdict is certain: whether enough requests meet their latency bounds.
//! The verdict is certain when too many of the counted requests have missed their bounds, or when all counted requests
//! have ended.

use crate::metrics::{Outcome, RequestRecords, Slo};
use crate::workload::RequestId;
use std::ops::Range;

/// Finds out whether enough requests meet their latency bounds. Has the bounds, the ids of the requests that count, and
/// how many of these have met or missed their bounds so far.
#[derive(Clone, Debug)]
pub struct Patience {
    counted: Range<RequestId>,
    slo: Slo,
    /// Each request's own TPOT bound, seconds; empty if no request has one.
    own_tpot_s: Vec<f64>,
    may_miss: u32,
    to_the_end: bool,
    kept: u32,
    missed: u32,
}

impl Patience {
    /// Asks whether at most `may_miss` of the requests with ids in `counted` miss their latency bounds `slo`. A
    /// request's own TPOT bound takes precedence over the bound in `slo`.
    pub fn new(counted: Range<RequestId>, slo: Slo, own_tpot_s: &[f64], may_miss: u32) -> Patience {
        let own_tpot_s = own_tpot_s.to_vec();
        Patience { counted, slo, own_tpot_s, may_miss, to_the_end: false, kept: 0, missed: 0 }
    }

    /// Makes the verdict (whether enough requests meet their latency bounds) certain only when all requests that count
    /// have ended, even if too many have missed their bounds before.
    pub fn to_the_end(self) -> Patience {
        Patience { to_the_end: true, ..self }
    }

    /// Counts the ended (finished or rejected) request `id` as one that has met or missed its latency bounds, if it is
    /// among the requests that count. A rejected request has missed its bounds.
    pub fn ended(&mut self, records: &RequestRecords, id: RequestId) {
        if !self.counted.contains(&id) {
            return;
        }
        let i = id as usize;
        let own = self.own_tpot_s.get(i).copied();
        match records.outcome[i] == Outcome::Finished && self.slo.met_by(records, i, own) {
            true => self.kept += 1,
            false => self.missed += 1,
        }
    }

    /// Whether the verdict is certain: enough requests meet their latency bounds, or too few do. That enough do is
    /// certain only when all requests that count have ended, because only then it is known whether the queue has grown.
    pub fn certain(&self) -> bool {
        self.complete() || (self.missed > self.may_miss && !self.to_the_end)
    }

    /// Whether all requests that count for the verdict on the latency bounds have ended.
    pub fn complete(&self) -> bool {
        self.kept + self.missed == self.counted.len() as u32
    }

    /// Whether enough requests have met their latency bounds so far: of all requests that count, all but at most
    /// `may_miss` have ended and met their bounds.
    pub fn carried(&self) -> bool {
        self.kept + self.may_miss >= self.counted.len() as u32
    }

    /// Counts over the requests that have ended and that count for the verdict: how many have met their latency bounds,
    /// and how many have missed them.
    pub fn seen(&self) -> (u32, u32) {
        (self.kept, self.missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

    fn patience(may_miss: u32) -> (Patience, RequestRecords) {
        let slo = Slo { ttft_s: Some(1.0), ..Slo::default() };
        let mut records = RequestRecords::new(6);
        for i in 0..6 {
            records.outcome[i] = Outcome::Finished;
            records.emitted[i] = 1;
            // Every second request has its first token at 2 s, later than its TTFT bound of 1 s.
            let at = Time::from_s(if i % 2 == 0 { 0.5 } else { 2.0 });
            (records.first_token[i], records.finish[i]) = (at, at);
        }
        (Patience::new(1..5, slo, &[], may_miss), records)
    }

    #[test]
    fn only_counted_requests_count_and_too_many_misses_are_certain() {
        let (mut p, records) = patience(1);
        for (id, certain) in [(0, false), (1, false), (5, false), (2, false), (3, true)] {
            p.ended(&records, id);
            assert_eq!(p.certain(), certain, "{id}");
        }
        assert!(!p.carried());
        assert_eq!(p.seen(), (1, 2));
    }

    #[test]
    fn success_is_certain_once_the_last_counted_request_has_ended() {
        let (mut p, records) = patience(2);
        for (id, certain) in [(2, false), (4, false), (1, false), (3, true)] {
            p.ended(&records, id);
            assert_eq!(p.certain(), certain, "{id}");
        }
        assert!(p.carried());
    }

    /// One of four requests must meet its bounds, and one has.
    #[test]
    fn enough_requests_are_all_but_those_that_may_miss() {
        let (mut p, records) = patience(3);
        assert!(!p.carried());
        p.ended(&records, 2);
        assert!(p.carried() && !p.certain());
    }

    #[test]
    fn a_run_to_the_end_does_not_stop_at_too_many_misses() {
        let (mut p, records) = patience(0);
        p = p.to_the_end();
        for (id, certain) in [(1, false), (3, false), (2, false), (4, true)] {
            p.ended(&records, id);
            assert_eq!(p.certain(), certain, "{id}");
        }
        assert_eq!((p.carried(), p.seen()), (false, (2, 2)));
    }

    #[test]
    fn a_rejected_request_misses() {
        let (mut p, mut records) = patience(0);
        records.outcome[2] = Outcome::Rejected;
        p.ended(&records, 2);
        assert!(p.certain() && !p.carried());
    }
}
