//! Arrivals: requests are sent at the workload's times, or when a client's last request has ended. The scheduler sees
//! them some time later.

use crate::time::Time;
use crate::workload::{Arrivals, RequestId, Workload};
use std::collections::VecDeque;

/// The requests that have not arrived yet.
pub struct ArrivalStream<'a> {
    workload: &'a Workload,
    mode: Arrivals,
    /// Time from sending a request until the scheduler has it.
    way: Time,
    next: usize,
    /// Closed loop: for each client that may send, the time since when; ascending.
    ready: VecDeque<Time>,
}

impl<'a> ArrivalStream<'a> {
    /// Begins with the first request of `workload`.
    pub fn new(workload: &'a Workload, mode: Arrivals, way: Time) -> ArrivalStream<'a> {
        let ready = match mode {
            Arrivals::Open => VecDeque::new(),
            // Clients beyond the number of requests have nothing to send.
            Arrivals::Closed { clients } => vec![Time::ZERO; workload.len().min(clients as usize)].into(),
        };
        ArrivalStream { workload, mode, way, next: 0, ready }
    }

    /// When the next request is sent; `Time::MAX` if none is sent before a request ends.
    #[inline]
    fn sent_at(&self) -> Time {
        match (self.mode, self.workload.arrival.get(self.next)) {
            (_, None) => Time::MAX,
            (Arrivals::Open, Some(&at)) => at,
            (Arrivals::Closed { .. }, Some(_)) => self.ready.front().copied().unwrap_or(Time::MAX),
        }
    }

    /// When the scheduler sees the next request; `Time::MAX` if none comes before a request ends.
    #[inline]
    pub fn next_at(&self) -> Time {
        self.sent_at() + self.way
    }

    /// Takes the next request if the scheduler sees it by `now`. Returns its id and the time at which it was sent.
    pub fn pop(&mut self, now: Time) -> Option<(RequestId, Time)> {
        let at = self.sent_at();
        if at == Time::MAX || at + self.way > now {
            return None;
        }
        self.ready.pop_front();
        self.next += 1;
        Some((self.next as RequestId - 1, at))
    }

    /// Notes that a request has ended: in a closed loop its client sends the next one at once.
    pub fn ended(&mut self, now: Time) {
        if matches!(self.mode, Arrivals::Closed { .. }) {
            self.ready.push_back(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Request;

    fn workload(n: u64) -> Workload {
        (0..n).map(|i| Request::new(Time(100 * i), 1, 1)).collect()
    }

    #[test]
    fn requests_are_seen_a_way_after_they_were_sent() {
        let w = workload(2);
        let mut open = ArrivalStream::new(&w, Arrivals::Open, Time(7));
        assert_eq!((open.next_at(), open.pop(Time(6)), open.pop(Time(7))), (Time(7), None, Some((0, Time(0)))));
        assert_eq!((open.pop(Time(106)), open.pop(Time(107)), open.next_at()), (None, Some((1, Time(100))), Time::MAX));
    }

    #[test]
    fn a_client_sends_when_its_last_request_has_ended() {
        let w = workload(4);
        let mut closed = ArrivalStream::new(&w, Arrivals::Closed { clients: 2 }, Time(7));
        assert_eq!(
            (closed.pop(Time(7)), closed.pop(Time(7)), closed.pop(Time(900))),
            (Some((0, Time(0))), Some((1, Time(0))), None)
        );
        assert_eq!(closed.next_at(), Time::MAX);
        closed.ended(Time(50));
        closed.ended(Time(60));
        assert_eq!(
            (closed.next_at(), closed.pop(Time(56)), closed.pop(Time(57))),
            (Time(57), None, Some((2, Time(50))))
        );
        assert_eq!(
            (closed.pop(Time(66)), closed.pop(Time(67)), closed.pop(Time(900))),
            (None, Some((3, Time(60))), None)
        );
    }
}
