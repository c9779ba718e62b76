//! When the next request comes in: at the workload's instants, or when a client's last request has ended.

use crate::time::Time;
use crate::workload::{Arrivals, RequestId, Workload};

/// The stream of requests that have not arrived yet.
pub struct ArrivalStream<'a> {
    workload: &'a Workload,
    mode: Arrivals,
    next: usize,
    /// Closed loop: clients that are ready to send, and since when.
    ready: u32,
    ready_since: Time,
}

impl<'a> ArrivalStream<'a> {
    /// From the first request on.
    pub fn new(workload: &'a Workload, mode: Arrivals) -> ArrivalStream<'a> {
        let ready = match mode {
            Arrivals::Open => 0,
            Arrivals::Closed { clients } => clients,
        };
        ArrivalStream { workload, mode, next: 0, ready, ready_since: Time::ZERO }
    }

    /// When the next request arrives; `Time::MAX` when none will until one ends.
    #[inline]
    pub fn next_at(&self) -> Time {
        match (self.mode, self.workload.arrival.get(self.next)) {
            (_, None) => Time::MAX,
            (Arrivals::Open, Some(&at)) => at,
            (Arrivals::Closed { .. }, Some(_)) if self.ready > 0 => self.ready_since,
            (Arrivals::Closed { .. }, Some(_)) => Time::MAX,
        }
    }

    /// Takes the next request if it has arrived by `now`, with the instant of its arrival.
    pub fn pop(&mut self, now: Time) -> Option<(RequestId, Time)> {
        let at = self.next_at();
        if at > now || at == Time::MAX {
            return None;
        }
        self.ready = self.ready.saturating_sub(1);
        self.next += 1;
        Some((self.next as RequestId - 1, at))
    }

    /// A request has ended: in a closed loop its client sends the next one at once.
    pub fn ended(&mut self, now: Time) {
        if matches!(self.mode, Arrivals::Closed { .. }) {
            self.ready += 1;
            self.ready_since = now;
        }
    }
}
