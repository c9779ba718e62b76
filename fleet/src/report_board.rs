//! The replicas' load reports, as a router gets them: at an interval, and with a delay.
//!
//! A replica answers a query between two steps, as engines do. A query in the middle of a step is answered at the
//! step's end, with the load at that time. So a report is the same whether the simulator runs every step or skips
//! steps.

use foretoken_sim::{Load, Replica, Time};
use std::collections::VecDeque;

/// How often replicas report their load to the router, and how late the reports arrive.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Signals {
    /// Seconds between two queries of the router to a replica, at least 0.0001.
    pub interval_s: f64,
    /// Seconds from a replica's report until the router has it, ≥ 0.
    #[serde(default)]
    pub delay_s: f64,
}

impl Default for Signals {
    fn default() -> Signals {
        Signals { interval_s: 0.1, delay_s: 0.0 }
    }
}

/// The shortest allowed time between two queries, seconds. Every step takes longer, so a shorter time would give no
/// more reports.
const SHORTEST_S: f64 = 1e-4;

impl Signals {
    /// Checks that the interval and the delay are within their ranges.
    ///
    /// # Errors
    /// A time is outside its range. The error is its key, and what is wrong.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !(self.interval_s >= SHORTEST_S && self.interval_s.is_finite()) {
            return Err(("interval_s", format!("{} is not a time of at least {SHORTEST_S} s", self.interval_s)));
        }
        if !(self.delay_s >= 0.0 && self.delay_s.is_finite()) {
            return Err(("delay_s", format!("{} is not a time of at least 0 s", self.delay_s)));
        }
        Ok(())
    }
}

/// A replica's report of its load to the router.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// When the replica answered.
    pub at: Time,
    /// The replica's load when it answered.
    pub load: Load,
    /// Output tokens per second that the replica emitted since its previous report; 0 in the first report.
    pub tok_s: f64,
}

/// Queries the replicas of a fleet and delivers their reports.
pub(crate) struct Board {
    interval: Time,
    delay: Time,
    next: Time,
    /// No report reaches the router before this time; `Time::MAX` if none is on the way.
    arrives: Time,
    reports: Vec<Reports>,
}

/// The load reports of one replica: the reports on the way, and the newest that has reached the router.
#[derive(Default)]
struct Reports {
    /// The last report that the replica made.
    made: Option<Report>,
    /// The last report that has reached the router.
    arrived: Option<Report>,
    /// Number of the replica's load reports that have reached the router so far.
    count: u64,
    /// Load reports that were made and have not reached the router, with their arrival times.
    on_the_way: VecDeque<(Time, Report)>,
}

impl Board {
    pub fn new(signals: Signals, replicas: usize) -> Board {
        let reports = (0..replicas).map(|_| Reports::default()).collect();
        let (interval, delay) = (Time::from_s(signals.interval_s), Time::from_s(signals.delay_s));
        Board { interval, delay, next: Time::ZERO, arrives: Time::MAX, reports }
    }

    /// Adds a replica without load reports. Its index is larger than all others.
    pub fn join(&mut self) {
        self.reports.push(Reports::default());
    }

    /// Removes the load reports of the replica with this index. All larger indices of replicas fall by one.
    pub fn leave(&mut self, replica: usize) {
        self.reports.remove(replica);
    }

    /// The time at which the replicas are next queried for their loads.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Queries the loads of all replicas, which must have run up to the time [`next`](Board::next). Then moves `next`
    /// on by one interval.
    pub fn ask<'a>(&mut self, replicas: impl Iterator<Item = &'a (dyn Replica + 'a)>) {
        for (reports, replica) in self.reports.iter_mut().zip(replicas) {
            reports.make(self.next.max(replica.now()), replica.load(), self.delay);
            self.arrives = self.arrives.min(reports.next_arrival());
        }
        self.next += self.interval;
    }

    /// Skips all queries for the replicas' loads that are due by `at`, except the last of them.
    pub fn skip_to(&mut self, at: Time) {
        let whole = at.saturating_sub(self.next).0 / self.interval.0;
        self.next += self.interval * whole;
    }

    /// The newest report of `replica` that has reached the router by `now`; `None` before the first.
    pub fn newest(&mut self, replica: usize, now: Time) -> Option<Report> {
        self.reports[replica].newest(now).0
    }

    /// If a report has reached the router by `now`, calls `deliver` for each replica: with its index, its newest report
    /// that has reached the router, and the number of these reports.
    pub fn deliver(&mut self, now: Time, mut deliver: impl FnMut(usize, Option<Report>, u64)) {
        if now < self.arrives {
            return;
        }
        self.arrives = Time::MAX;
        for (replica, reports) in self.reports.iter_mut().enumerate() {
            let (newest, count) = reports.newest(now);
            deliver(replica, newest, count);
            self.arrives = self.arrives.min(reports.next_arrival());
        }
    }
}

impl Reports {
    /// When the next report reaches the router; `Time::MAX` if none is on the way.
    fn next_arrival(&self) -> Time {
        self.on_the_way.front().map_or(Time::MAX, |report| report.0)
    }

    /// The newest report that has reached the router by `now` (`None` before the first), and the number of reports that
    /// have reached the router.
    fn newest(&mut self, now: Time) -> (Option<Report>, u64) {
        while self.on_the_way.front().is_some_and(|(arrives, _)| *arrives <= now) {
            self.arrived = self.on_the_way.pop_front().map(|(_, report)| report);
            self.count += 1;
        }
        (self.arrived, self.count)
    }

    fn make(&mut self, at: Time, load: Load, delay: Time) {
        let tok_s = match self.made {
            // The replica is still in the same step as at the previous query. It answered that query for the end of
            // this step, so this query adds no report.
            Some(last) if last.at >= at => return,
            Some(last) => (load.emitted - last.load.emitted) as f64 / (at - last.at).as_s(),
            None => 0.0,
        };
        let report = Report { at, load, tok_s };
        self.made = Some(report);
        self.on_the_way.push_back((at + delay, report));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_arrives_late_and_tells_the_rate_since_the_last() {
        let mut board = Board::new(Signals { interval_s: 1.0, delay_s: 0.5 }, 1);
        let load = |emitted| Load { emitted, ..Load::default() };
        let s = Time::from_s;
        board.reports[0].make(s(1.0), load(10), board.delay);
        board.reports[0].make(s(1.0), load(10), board.delay);
        board.reports[0].make(s(2.0), load(40), board.delay);
        assert_eq!(board.reports[0].newest(s(1.4)), (None, 0));
        let (report, count) = board.reports[0].newest(s(1.5));
        assert_eq!((report.unwrap().load.emitted, count), (10, 1), "one answer to two questions");
        let (report, count) = board.reports[0].newest(s(9.0));
        assert_eq!((report.unwrap().load.emitted, report.unwrap().tok_s, count), (40, 30.0, 2));
    }

    #[test]
    fn questions_are_left_out_up_to_the_last_one_that_is_due() {
        let mut board = Board::new(Signals { interval_s: 1.0, delay_s: 0.0 }, 1);
        board.skip_to(Time::from_s(3.5));
        assert_eq!(board.next(), Time::from_s(3.0));
        board.skip_to(Time::from_s(1.0));
        assert_eq!(board.next(), Time::from_s(3.0));
    }

    #[test]
    fn times_that_are_no_times_are_refused() {
        assert!(Signals { interval_s: 0.0, delay_s: 0.0 }.check().is_err());
        assert!(Signals { interval_s: f64::INFINITY, delay_s: 0.0 }.check().is_err());
        assert!(Signals { interval_s: 1.0, delay_s: -1.0 }.check().is_err());
        assert!(Signals::default().check().is_ok());
    }
}
