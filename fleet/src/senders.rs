//! Clients, which decide when each request is sent. In closed loops and sessions a client sends a request only after an
//! earlier request has ended.

use foretoken_sim::{Arrivals, RequestId, Time, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The clients of a workload, with the times at which they send their next requests.
pub(crate) enum Senders<'a> {
    /// An open loop: each request is sent at its arrival time, whether earlier requests have ended or not.
    Open {
        /// The arrival time of each request.
        times: &'a [Time],
        /// The request that is sent next.
        next: RequestId,
    },
    /// Clients of a closed loop. A client sends the workload's next request as soon as its own request has ended.
    Loop {
        /// For each client without a request in flight, the time from which it may send the next request.
        ready: BinaryHeap<Reverse<Time>>,
        /// The request that the next client sends.
        next: RequestId,
    },
    /// Sessions, which send their next turn a gap after the answer to the turn before.
    Sessions {
        /// The turns whose sending time is known, as (time, id of the turn's request), the earliest first.
        turns: BinaryHeap<Reverse<(Time, RequestId)>>,
        /// The workload, which has the turns of each session and the gaps between them.
        workload: &'a Workload,
    },
}

impl<'a> Senders<'a> {
    /// The clients of `workload`, which send its requests as `arrivals` says.
    pub fn of(workload: &'a Workload, arrivals: Arrivals) -> Senders<'a> {
        match arrivals {
            Arrivals::Open => Senders::Open { times: &workload.arrival, next: 0 },
            Arrivals::Closed { clients } => Senders::closed_loop(workload, clients),
            Arrivals::Sessions => Senders::sessions(workload),
        }
    }

    /// A closed loop of `clients` clients, or of one client per request if there are fewer requests. All may send at
    /// time 0.
    pub fn closed_loop(workload: &Workload, clients: u32) -> Senders<'a> {
        let clients = workload.len().min(clients as usize);
        let ready = (0..clients).map(|_| Reverse(Time::ZERO)).collect();
        Senders::Loop { ready, next: 0 }
    }

    /// The sessions of a workload; at first, only their first turns have a sending time.
    pub fn sessions(workload: &'a Workload) -> Senders<'a> {
        let first = workload.first_turns().into_iter();
        let turns = first.map(|id| Reverse((workload.arrival[id as usize], id))).collect();
        Senders::Sessions { turns, workload }
    }

    /// When the next request is sent; `Time::MAX` if none is sent before a request ends.
    pub fn next_at(&self) -> Time {
        let next = match self {
            Senders::Open { times, next } => times.get(*next as usize).copied(),
            Senders::Loop { ready, .. } => ready.peek().map(|at| at.0),
            Senders::Sessions { turns, .. } => turns.peek().map(|turn| turn.0.0),
        };
        next.unwrap_or(Time::MAX)
    }

    /// Takes the id of the next request; `None` if none is sent before a request ends. In a closed loop the ids go on
    /// beyond the workload's last request, so the caller must count the requests.
    pub fn pop(&mut self) -> Option<RequestId> {
        match self {
            Senders::Open { times, next } => {
                times.get(*next as usize)?;
                *next += 1;
                Some(*next - 1)
            }
            Senders::Loop { ready, next } => {
                ready.pop()?;
                *next += 1;
                Some(*next - 1)
            }
            Senders::Sessions { turns, .. } => turns.pop().map(|Reverse((_, id))| id),
        }
    }

    /// Reports to the clients or sessions that the request `id` ended at `at`, so that the next request may be sent.
    pub fn ended(&mut self, id: RequestId, at: Time) {
        match self {
            Senders::Open { .. } => {}
            Senders::Loop { ready, .. } => ready.push(Reverse(at)),
            Senders::Sessions { turns, workload } => {
                turns.extend(workload.following(id).map(|(next, gap)| Reverse((at + gap, next))));
            }
        }
    }
}
