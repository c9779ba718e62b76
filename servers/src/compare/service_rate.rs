//! The service rate: requests per second that closed loops sustain.

use foretoken_sim::{RequestRecords, Time};

/// A count, such as of finished requests, and the time over which it was counted, seconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct CountedOver {
    pub(crate) count: f64,
    pub(crate) seconds: f64,
}

impl CountedOver {
    /// A rate over several counts: the sum of all counts / the sum of all times. `None` if the summed time is not above
    /// 0.
    pub(crate) fn rate(counts: impl Iterator<Item = CountedOver>) -> Option<f64> {
        let add = |sum: CountedOver, one: CountedOver| CountedOver {
            count: sum.count + one.count,
            seconds: sum.seconds + one.seconds,
        };
        let sum = counts.fold(CountedOver::default(), add);
        (sum.seconds > 0.0).then(|| sum.count / sum.seconds)
    }
}

/// Requests per second that closed loops of `clients` clients sustain. Only the middle part of each loop counts. The
/// middle part starts when request number `clients` finishes, because every client can then have had an answer. It
/// ends when fewer than `clients` requests are left. `None` if no loop is long enough to have a middle part.
pub fn service_rate<'a>(runs: impl IntoIterator<Item = &'a RequestRecords>, clients: u32) -> Option<f64> {
    let clients = clients as usize;
    let middle = |r: &RequestRecords| {
        let mut finish: Vec<Time> = (0..r.len()).filter(|&i| r.finished(i)).map(|i| r.finish[i]).collect();
        finish.sort_unstable();
        let (first, last) = (clients.checked_sub(1)?, finish.len().checked_sub(clients)?);
        let seconds = finish.get(last)?.saturating_sub(*finish.get(first)?).as_s();
        (last > first).then(|| CountedOver { count: (last - first) as f64, seconds })
    };
    CountedOver::rate(runs.into_iter().filter_map(middle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Outcome;

    /// A closed loop of two clients in which one request a second finishes, but with a slow start and a slow end.
    fn closed_loop() -> RequestRecords {
        let mut r = RequestRecords::new(8);
        r.outcome = vec![Outcome::Finished; 8];
        r.finish = [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 20.0].map(Time::from_s).to_vec();
        r
    }

    #[test]
    fn a_closed_loop_is_measured_in_its_middle() {
        assert_eq!(service_rate([&closed_loop()], 2), Some(1.0));
    }

    #[test]
    fn a_loop_without_a_middle_has_no_rate() {
        assert_eq!(service_rate([&closed_loop()], 8), None);
        assert_eq!(service_rate([&RequestRecords::new(0)], 2), None);
        assert_eq!(service_rate([], 2), None);
    }

    /// Service rates (requests per second in closed loops) are pooled by time. One run has five finished requests in
    /// five seconds, another five in ten seconds. A third run has no middle part and does not count.
    #[test]
    fn loops_are_pooled_by_their_time() {
        let mut slow = closed_loop();
        slow.finish.iter_mut().for_each(|at| *at = Time(2 * at.0));
        assert_eq!(service_rate([&closed_loop(), &slow, &RequestRecords::new(3)], 2), Some(10.0 / 15.0));
    }
}
