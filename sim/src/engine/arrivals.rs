//! Arrivals of requests. A request is sent in one of four ways. It is sent at its time in the workload. Or it is sent
//! when the last request of its client has ended (closed loop). Or it is sent when the turn before it in its session
//! has ended and the client has waited for a time (the gap). Or a router or a server gives it to the engine. The
//! scheduler sees a request after the delay of the frontend.

use super::request::Part;
use crate::time::Time;
use crate::workload::{Arrivals, RequestId, Workload};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What decides when the next request is sent to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Open loop: each request is sent at its arrival time in the workload.
    Open,
    /// Closed loop: a client sends its next request when its last one has ended.
    Closed,
    /// Sessions (conversations): the first turn is sent at its time in the workload. Each later turn is sent when the
    /// turn before it has ended and the client has waited for a time (the gap).
    Sessions,
    /// A router or a server gives requests to the engine while the engine runs.
    Fed,
}

/// A request that a router gives to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Id of the request that the router gives to the engine.
    pub id: RequestId,
    /// When the router sends the request to the engine.
    pub sent: Time,
    /// When the client sent the request. Latencies count from this time.
    pub since: Time,
    /// The part of the request that the engine serves: prompt and output, only the prompt, or only the output.
    pub part: Part,
}

impl Given {
    /// A whole request that the router sends to the engine as soon as the client sends it.
    pub fn whole(id: RequestId, sent: Time) -> Given {
        Given { id, sent, since: sent, part: Part::Whole }
    }
}

/// The requests that have not arrived yet.
pub struct ArrivalStream<'a> {
    /// The workload whose requests arrive; `None` if a router or clients give all requests.
    workload: Option<&'a Workload>,
    /// Arrival time of each request of the workload, by request id; empty without a workload.
    times: &'a [Time],
    mode: Mode,
    /// Delay of the frontend: the time from when a request is sent until the scheduler sees it.
    way: Time,
    next: usize,
    /// In a closed loop: for each client without a request in the system, the time from which the client may send its
    /// next request. The times are ascending.
    ready: VecDeque<Time>,
    /// With sessions (conversations): a heap of the turns whose sending time is known. Each entry has this time and the
    /// id of the turn's request.
    turns: BinaryHeap<Reverse<(Time, RequestId)>>,
    /// Requests from a router that the scheduler has not seen yet, in ascending order of `sent`.
    given: VecDeque<Given>,
    /// If a router gives the requests: the requests that have ended since the router last took this list, each with the
    /// time of its end.
    ended: Vec<(RequestId, Time)>,
    /// A time before which the scheduler will see no further request beside the requests that the router has given
    /// already.
    known_until: Time,
}

impl<'a> ArrivalStream<'a> {
    /// A stream that begins with the first request of `workload`. `workload` is `None` if a router or clients give all
    /// requests. `way` is the frontend's delay. In a closed loop only the number of requests is read, not the arrival
    /// times.
    pub fn new(workload: Option<&'a Workload>, mode: Arrivals, way: Time) -> ArrivalStream<'a> {
        let times: &[Time] = workload.map_or(&[], |workload| &workload.arrival);
        let (mut ready, mut turns) = (VecDeque::new(), BinaryHeap::new());
        let mode = match mode {
            Arrivals::Open => Mode::Open,
            Arrivals::Closed { clients } => {
                // If there are more clients than requests, the clients beyond the number of requests have nothing to
                // send.
                ready = vec![Time::ZERO; times.len().min(clients as usize)].into();
                Mode::Closed
            }
            Arrivals::Sessions => {
                let first = workload.map(Workload::first_turns).unwrap_or_default();
                turns = first.into_iter().map(|id| Reverse((times[id as usize], id))).collect();
                Mode::Sessions
            }
        };
        let (given, ended) = (VecDeque::new(), Vec::new());
        ArrivalStream { workload, times, mode, way, next: 0, ready, turns, given, ended, known_until: Time::MAX }
    }

    /// From now on all requests come from a router or a server, and none from the workload's arrival times.
    pub fn be_fed(&mut self) {
        self.mode = Mode::Fed;
    }

    /// Takes a request from the router. The router must give requests in ascending order of `sent`.
    pub fn give(&mut self, given: Given) {
        self.given.push_back(given);
    }

    /// Removes request `id`, which the router has given, if the scheduler has not seen it yet. Returns whether the
    /// request was removed.
    pub fn withdraw(&mut self, id: RequestId) -> bool {
        let at = self.given.iter().position(|given| given.id == id);
        at.is_some_and(|at| self.given.remove(at).is_some())
    }

    /// Says that every request that the router will give later becomes visible to the scheduler at `until` or later.
    pub fn know_until(&mut self, until: Time) {
        self.known_until = until;
    }

    /// When the scheduler sees the next request, of the requests whose sending time is known already. `Time::MAX` if no
    /// sending time is known.
    pub fn given_at(&self) -> Time {
        self.sent_at() + self.way
    }

    /// Whether a request has ended since the router last took the list of ended requests.
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The time at which entry `i` of the list of ended requests ended. The router has not taken this list yet. `None`
    /// if the list has no entry `i`.
    pub fn end(&self, i: usize) -> Option<Time> {
        self.ended.get(i).map(|ended| ended.1)
    }

    /// Takes the requests that ended since the last call of this method, each with the time of its end.
    pub fn take_ended(&mut self) -> std::vec::Drain<'_, (RequestId, Time)> {
        self.ended.drain(..)
    }

    /// When the next request is sent. `Time::MAX` if no request is left, or if the next request is sent only after
    /// another one ends.
    #[inline]
    fn sent_at(&self) -> Time {
        match (self.mode, self.times.get(self.next)) {
            (Mode::Fed, _) => self.given.front().map_or(Time::MAX, |given| given.sent),
            (Mode::Sessions, _) => self.turns.peek().map_or(Time::MAX, |&Reverse((sent, _))| sent),
            (_, None) => Time::MAX,
            (Mode::Open, Some(&at)) => at,
            (Mode::Closed, Some(_)) => self.ready.front().copied().unwrap_or(Time::MAX),
        }
    }

    /// When the scheduler may see the next request: a request whose sending time is known, or a request that the router
    /// may still give (see [`know_until`](Self::know_until)). `Time::MAX` if no request can come before a running one
    /// ends.
    #[inline]
    pub fn next_at(&self) -> Time {
        (self.sent_at() + self.way).min(self.known_until)
    }

    /// Takes the next request out of the stream if the scheduler sees this request at `now` or before; otherwise
    /// `None`.
    #[inline(always)]
    pub fn pop(&mut self, now: Time) -> Option<Given> {
        let at = self.sent_at();
        if at == Time::MAX || at + self.way > now {
            return None;
        }
        match self.mode {
            Mode::Fed => return self.given.pop_front(),
            Mode::Sessions => return self.turns.pop().map(|Reverse((sent, id))| Given::whole(id, sent)),
            Mode::Open | Mode::Closed => {}
        }
        self.ready.pop_front();
        self.next += 1;
        Some(Given::whole(self.next as RequestId - 1, at))
    }

    /// Notes that a request has ended. In a closed loop the request's client may send its next request at once. In a
    /// session the next turn is sent after a gap. If a router gives the requests, the end is stored until the router
    /// asks.
    pub fn ended(&mut self, id: RequestId, now: Time) {
        match self.mode {
            Mode::Open => {}
            Mode::Closed => self.ready.push_back(now),
            Mode::Sessions => {
                if let Some((next, gap)) = self.workload.and_then(|workload| workload.following(id)) {
                    self.turns.push(Reverse((now + gap, next)));
                }
            }
            Mode::Fed => self.ended.push((id, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Request;

    fn times(n: u64) -> Workload {
        (0..n).map(|i| Request::new(Time(100 * i), 1, 1)).collect()
    }

    fn given(id: RequestId, sent: u64) -> Option<Given> {
        Some(Given::whole(id, Time(sent)))
    }

    #[test]
    fn requests_are_seen_a_way_after_they_were_sent() {
        let w = times(2);
        let mut open = ArrivalStream::new(Some(&w), Arrivals::Open, Time(7));
        assert_eq!((open.next_at(), open.pop(Time(6)), open.pop(Time(7))), (Time(7), None, given(0, 0)));
        assert_eq!((open.pop(Time(106)), open.pop(Time(107)), open.next_at()), (None, given(1, 100), Time::MAX));
    }

    #[test]
    fn a_client_sends_when_its_last_request_has_ended() {
        let w = times(4);
        let mut closed = ArrivalStream::new(Some(&w), Arrivals::Closed { clients: 2 }, Time(7));
        assert_eq!((closed.pop(Time(7)), closed.pop(Time(7)), closed.pop(Time(900))), (given(0, 0), given(1, 0), None));
        assert_eq!(closed.next_at(), Time::MAX);
        closed.ended(0, Time(50));
        closed.ended(1, Time(60));
        assert_eq!((closed.next_at(), closed.pop(Time(56)), closed.pop(Time(57))), (Time(57), None, given(2, 50)));
        assert_eq!((closed.pop(Time(66)), closed.pop(Time(67)), closed.pop(Time(900))), (None, given(3, 60), None));
    }

    #[test]
    fn a_router_gives_requests_in_any_order_of_ids() {
        let w = times(3);
        let mut fed = ArrivalStream::new(Some(&w), Arrivals::Open, Time(7));
        fed.be_fed();
        fed.know_until(Time(40));
        assert_eq!((fed.pop(Time(900)), fed.next_at()), (None, Time(40)), "nothing comes before 40");
        fed.give(Given::whole(2, Time(10)));
        assert_eq!((fed.next_at(), fed.pop(Time(16)), fed.pop(Time(17))), (Time(17), None, given(2, 10)));
        fed.ended(2, Time(30));
        assert_eq!(fed.take_ended().collect::<Vec<_>>(), [(2, Time(30))]);
        assert!(!fed.has_ended());
    }

    /// A session's next turn is sent when its last turn has ended and the client has waited for a time (the gap). There
    /// are two sessions. Requests 0, 2 and 3 are the turns of the first session. Request 1 is the only turn of the
    /// second session.
    #[test]
    fn a_session_sends_its_next_turn_a_gap_after_the_last_one_ended() {
        let none = RequestId::MAX;
        let w = Workload { next_turn: vec![2, none, 3, none], gap: vec![Time(50); 4], ..times(4) };
        let mut sessions = ArrivalStream::new(Some(&w), Arrivals::Sessions, Time(7));
        assert_eq!((sessions.pop(Time(7)), sessions.next_at()), (given(0, 0), Time(107)));
        sessions.ended(0, Time(20));
        assert_eq!((sessions.next_at(), sessions.pop(Time(77))), (Time(77), given(2, 70)));
        assert_eq!(sessions.pop(Time(500)), given(1, 100));
        sessions.ended(1, Time(600));
        assert_eq!(sessions.next_at(), Time::MAX);
        sessions.ended(2, Time(900));
        assert_eq!((sessions.pop(Time(1000)), sessions.next_at()), (given(3, 950), Time::MAX));
    }
}
