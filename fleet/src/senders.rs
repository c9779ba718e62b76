//! Clients that send a request when another one has ended: closed loops and sessions.

use foretoken_sim::{RequestId, Time, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The requests that wait to be sent, and who sends the next one.
pub(crate) enum Senders<'a> {
    /// Clients that send the workload's next request at once.
    Loop {
        /// Since when each client may send.
        ready: BinaryHeap<Reverse<Time>>,
        /// The workload's next request.
        next: RequestId,
    },
    /// Sessions that send their next turn after a gap.
    Sessions {
        /// The turns that are known, and when each is sent.
        turns: BinaryHeap<Reverse<(Time, RequestId)>>,
        /// The turns and their gaps.
        workload: &'a Workload,
    },
}

impl<'a> Senders<'a> {
    /// A closed loop of `clients` clients.
    pub fn closed_loop(workload: &Workload, clients: u32) -> Senders<'a> {
        let clients = workload.len().min(clients as usize);
        let ready = (0..clients).map(|_| Reverse(Time::ZERO)).collect();
        Senders::Loop { ready, next: 0 }
    }

    /// The sessions of a workload.
    pub fn sessions(workload: &'a Workload) -> Senders<'a> {
        let first = workload.first_turns().into_iter();
        let turns = first.map(|id| Reverse((workload.arrival[id as usize], id))).collect();
        Senders::Sessions { turns, workload }
    }

    /// When the next request is sent; `Time::MAX` if none is sent before a request ends.
    pub fn next_at(&self) -> Time {
        let next = match self {
            Senders::Loop { ready, .. } => ready.peek().map(|at| at.0),
            Senders::Sessions { turns, .. } => turns.peek().map(|turn| turn.0.0),
        };
        next.unwrap_or(Time::MAX)
    }

    /// Takes the next request; `None` if none is sent before a request ends. Clients of a closed loop do not know when
    /// the workload's requests are used up: the caller counts.
    pub fn pop(&mut self) -> Option<RequestId> {
        match self {
            Senders::Loop { ready, next } => {
                ready.pop()?;
                *next += 1;
                Some(*next - 1)
            }
            Senders::Sessions { turns, .. } => turns.pop().map(|Reverse((_, id))| id),
        }
    }

    /// Notes that a request ended at `at`.
    pub fn ended(&mut self, id: RequestId, at: Time) {
        match self {
            Senders::Loop { ready, .. } => ready.push(Reverse(at)),
            Senders::Sessions { turns, workload } => {
                turns.extend(workload.following(id).map(|(next, gap)| Reverse((at + gap, next))));
            }
        }
    }
}
