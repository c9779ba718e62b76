//! A run whose requests are taken one at a time, and whose ended requests are forgotten. The run's memory is bounded by
//! the number of requests in the system. Times and tokens are the same as if [`Engine::run`] had all requests from the
//! start.

use super::Ending;
use super::drafter::Drafter;
use super::state::{Engine, Watch};
use crate::executor::Executor;
use crate::metrics::InOrder;
use crate::time::Time;
use crate::workload::{Arrivals, Request};
use std::sync::atomic::{AtomicBool, Ordering};

/// The requests of a run that takes them one at a time, in the order of their arrivals, and the way in which they
/// arrive.
pub struct Source<'s> {
    /// The requests that the run has not taken yet, in order of arrival.
    pub requests: &'s mut dyn Iterator<Item = Request>,
    /// Whether the requests arrive at their own times (open), or when a client's last request has ended (closed loop).
    pub arrivals: Arrivals,
}

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// Like [`run`](Engine::run), with the requests of `source`. Gives the record of each ended request to `records`,
    /// and ends the run early if no further records are wanted. Panics if the drafter does not allow that later
    /// requests take the ids of ended requests, or if the requests come in sessions.
    ///
    /// # Errors
    /// A pass failed; the executor's error.
    pub fn run_streamed(
        &mut self,
        source: &mut Source,
        records: &mut InOrder,
        interrupt: &AtomicBool,
    ) -> Result<Ending, E::Error> {
        self.be_fed();
        assert!(self.be_forgetful(), "the drafter uses ids of ended requests");
        let first = match source.arrivals {
            Arrivals::Open => 1,
            Arrivals::Closed { clients } => clients,
            Arrivals::Sessions => panic!("the turns of a session are not known in the order of their arrival"),
        };
        (0..first).for_each(|_| self.take_next(source, Time::ZERO));
        loop {
            if interrupt.load(Ordering::Relaxed) || !records.wanted() {
                return Ok(Ending::Interrupted);
            }
            self.executor.begin_iteration();
            if self.executor.now() == Time::MAX {
                return Ok(Ending::OutOfTime);
            }
            self.add_from(source);
            self.forget_ended(|id, number, _, all| records.add(number as usize, all, id as usize));
            if self.has_work() {
                self.turn()?;
            } else {
                self.scheduler.idle();
                match self.arrivals.next_at() {
                    Time::MAX => return Ok(Ending::Done),
                    at => self.executor.wait_until(at),
                }
            }
        }
    }

    /// Takes the next request from `source`, if one is left, and gives it to the engine. In a closed loop the request
    /// is sent at `free`, the time at which its client became free.
    fn take_next(&mut self, source: &mut Source, free: Time) {
        let Some(request) = source.requests.next() else { return };
        let arrival = if source.arrivals == Arrivals::Open { request.arrival } else { free };
        self.give_new(Request { arrival, ..request });
    }

    /// In a closed loop, sends the next requests of clients whose requests have ended. Passes the requests that have
    /// arrived to the scheduler, if it looks for them. In an open loop a request is taken from `source` when the
    /// request before it has arrived.
    fn add_from(&mut self, source: &mut Source) {
        self.answer_ends(source);
        if !self.looks() {
            return;
        }
        loop {
            self.take_arrived();
            if source.arrivals == Arrivals::Open && self.arrivals.given_at() == Time::MAX {
                self.take_next(source, Time::ZERO);
            }
            self.answer_ends(source);
            if self.arrivals.given_at() > self.executor.now() {
                return;
            }
        }
    }

    /// In a closed loop, lets the clients of ended requests send their next requests.
    fn answer_ends(&mut self, source: &mut Source) {
        if !self.arrivals.has_ended() {
            return;
        }
        if let Arrivals::Closed { .. } = source.arrivals {
            let mut i = 0;
            while let Some(at) = self.arrivals.end(i) {
                self.take_next(source, at);
                i += 1;
            }
        }
        self.arrivals.take_ended().for_each(drop);
    }
}
