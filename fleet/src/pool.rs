//! Replicas behind one router, and what the router knows about them.

use crate::report_board::{Board, Signals};
use crate::router::{Asked, Ended, Needs, Router, Seen};
use foretoken_sim::{Given, Outcome, Replica, RequestId, RequestRecords, Run, Time, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Stands for "no replica" where a replica's index is stored: the request was never sent.
pub(crate) const NOWHERE: u16 = u16::MAX;

/// Stands for the index of a request that was not given to its replica.
const NOT_GIVEN: RequestId = RequestId::MAX;

/// The replicas of a fleet.
pub(crate) type Replicas<'a> = Vec<Box<dyn Replica + 'a>>;

/// Replicas behind one router. Outside the router, a replica's index is its index in the whole fleet. The router uses
/// indices from 0 that count only the replicas behind it.
pub(crate) struct Pool {
    /// For each replica behind this router, its index in the whole fleet, ascending.
    members: Vec<usize>,
    router: Box<dyn Router>,
    pub(crate) needs: Needs,
    pub(crate) board: Board,
    seen: Vec<Seen>,
    /// For each request, the index of the replica to which it was sent; [`NOWHERE`] until it is sent.
    pub(crate) routed: Vec<u16>,
    /// For each request that was given to its replica: its index in the records of the replica. [`NOT_GIVEN`] before.
    index: Vec<RequestId>,
    /// The records of the requests whose ends were [collected](Pool::collect). Others are empty.
    pub(crate) records: RequestRecords,
    /// Ended requests (time of the end, id) that were not yet reported to the router, earliest first.
    ends: BinaryHeap<Reverse<(Time, RequestId)>>,
    /// Requests that were sent and whose first token was not yet reported to the router.
    silent: Vec<RequestId>,
}

impl Pool {
    /// A pool of the fleet's replicas `members`. `needs`: what the router must know. `requests`: number of all
    /// requests.
    pub fn new(
        members: Vec<usize>,
        (router, needs): (Box<dyn Router>, Needs),
        signals: Signals,
        requests: usize,
    ) -> Pool {
        Pool {
            board: Board::new(signals, members.len()),
            seen: vec![Seen::default(); members.len()],
            members,
            router,
            needs,
            routed: vec![NOWHERE; requests],
            index: vec![NOT_GIVEN; requests],
            records: RequestRecords::new(requests),
            ends: BinaryHeap::new(),
            silent: Vec::new(),
        }
    }

    /// For each replica behind this router, its index in the whole fleet, ascending.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Index in the fleet of the replica to which a request was sent; `None` until it is sent.
    pub fn replica_of(&self, id: RequestId) -> Option<usize> {
        Some(self.routed[id as usize]).filter(|&to| to != NOWHERE).map(usize::from)
    }

    /// When the router next queries the replicas for their loads; `Time::MAX` if the router does not use loads.
    pub fn next_query(&self) -> Time {
        if self.needs.reports { self.board.next() } else { Time::MAX }
    }

    /// The index that the router uses for the fleet's replica `replica`. Panics if the replica is not behind this
    /// router.
    pub fn member(&self, replica: usize) -> usize {
        member(&self.members, replica)
    }

    /// Adds a replica to the replicas behind this router. The replica's index in the fleet must be larger than the
    /// indices of all replicas that are already behind this router.
    pub fn join(&mut self, replica: usize) {
        self.members.push(replica);
        self.seen.push(Seen::default());
        self.board.join();
        self.router.joined();
    }

    /// Removes a replica from the replicas behind this router; `member` is the index that the router uses for it.
    /// Returns the replica's index in the fleet, and its number of requests in flight. The router gets no further
    /// events of the requests on this replica.
    pub fn leave(&mut self, member: usize) -> (usize, u32) {
        self.board.leave(member);
        self.router.left(member);
        let replica = self.members.remove(member);
        self.silent.retain(|&id| usize::from(self.routed[id as usize]) != replica);
        (replica, self.seen.remove(member).in_flight)
    }

    /// Number of requests in flight on the replicas behind this router, as far as the router knows.
    pub fn in_flight(&self) -> u32 {
        self.seen.iter().map(|seen| seen.in_flight).sum()
    }

    /// Does the router use the replicas' load reports, and has none reached it yet? False if there is only one replica
    /// behind the router.
    pub fn never_heard(&self) -> bool {
        self.needs.reports && self.seen.len() > 1 && self.seen.iter().all(|seen| seen.report.is_none())
    }

    /// Queries the replicas behind this router for their loads. The replicas must have run up to the time of the query.
    pub fn ask(&mut self, replicas: &Replicas) {
        self.board.ask(self.members.iter().map(|&r| &*replicas[r]));
    }

    /// Gives a request to a replica.
    pub fn give(&mut self, replicas: &mut Replicas, replica: usize, given: Given) {
        self.index[given.id as usize] = replicas[replica].give(given);
    }

    /// The index of a request in the records of its replica, to which it was given.
    pub fn index(&self, id: RequestId) -> RequestId {
        self.index[id as usize]
    }

    /// Clears `ended`, and fills it with the requests that ended on a replica since the last call for this replica.
    /// Keeps their records.
    pub fn collect(&mut self, replica: &mut dyn Replica, ended: &mut Vec<(RequestId, Time)>) {
        ended.clear();
        replica.take_ended(&mut self.records, ended);
    }

    /// Has every request ended (finished or rejected), and has its end been collected?
    pub fn all_ended(&self) -> bool {
        self.records.outcome.iter().all(|&outcome| outcome != Outcome::InFlight)
    }

    /// At the end of the run: copies the records of the requests that have not ended. `run_of` gives the run of a
    /// replica, by its index in the fleet.
    pub fn close<'r>(&mut self, run_of: impl Fn(usize) -> &'r Run) {
        for (id, &index) in self.index.iter().enumerate().filter(|(_, index)| **index != NOT_GIVEN) {
            if self.records.outcome[id] == Outcome::InFlight {
                self.records.copy(id, &run_of(self.routed[id].into()).records, index as usize);
            }
        }
    }

    /// Notes that the request `id` ended at `at`, so that its end is reported to the router later.
    pub fn note_end(&mut self, id: RequestId, at: Time) {
        self.ends.push(Reverse((at, id)));
    }

    /// Lets the router choose a replica for a request, and counts the request as sent to this replica. Returns the
    /// replica's index. The caller must give the request to the replica, and must have reported all first tokens and
    /// ends up to `asked.now`.
    pub fn route(&mut self, asked: &Asked) -> usize {
        if self.needs.reports {
            self.board.deliver(asked.now, |member, report, count| {
                (self.seen[member].report, self.seen[member].reports) = (report, count);
            });
        }
        let to = self.router.route(asked, &self.seen);
        self.seen[to].in_flight += 1;
        self.seen[to].sent += 1;
        self.routed[asked.id as usize] = self.members[to] as u16;
        if self.needs.first_tokens {
            self.silent.push(asked.id);
        }
        self.members[to]
    }

    /// Reports to the router the first tokens that were emitted up to `now`. Removes these requests and the rejected
    /// requests from `silent`.
    pub fn tell_first_tokens(&mut self, now: Time, replicas: &Replicas) {
        let Pool { silent, routed, router, members, records, index, .. } = self;
        silent.retain(|&id| {
            let replica = routed[id as usize] as usize;
            if index[id as usize] == NOT_GIVEN {
                return true;
            }
            let (at, outcome) = match records.outcome[id as usize] {
                Outcome::InFlight => replicas[replica].first_token(index[id as usize]),
                outcome => (records.first_token[id as usize], outcome),
            };
            if at <= now {
                router.first_token(id, member(members, replica), at);
            }
            at > now && outcome != Outcome::Rejected
        });
    }

    /// Reports the requests that ended up to `now` to the router, in order of time, and no longer counts them as in
    /// flight. Also calls the function `told` for each of these requests, with the records, the request's id, and the
    /// replica's index in the fleet.
    pub fn tell_ends(&mut self, now: Time, mut told: impl FnMut(&RequestRecords, RequestId, usize)) {
        while let Some(&Reverse((at, id))) = self.ends.peek().filter(|end| end.0.0 <= now) {
            self.ends.pop();
            let (i, replica) = (id as usize, self.routed[id as usize] as usize);
            told(&self.records, id, replica);
            // A replica that left the fleet is unknown to the router, so the ends of its requests are not reported.
            let Ok(member) = self.members.binary_search(&replica) else { continue };
            self.seen[member].in_flight -= 1;
            // A piece is a step that emitted tokens, of which there are `emitted` − `accepted`. The router gets as many
            // pieces as tokens, as if no draft token had been accepted. The right number would move the results of
            // `verify-work`.
            let emitted = self.records.emitted[i];
            self.router.ended(id, member, Ended { at, emitted, pieces: emitted.max(1) });
        }
    }
}

/// The index that the router of the replicas `members` uses for the fleet's replica `replica`. Panics if `members` does
/// not contain the replica.
fn member(members: &[usize], replica: usize) -> usize {
    members.binary_search(&replica).expect("a request is sent to a member of the pool")
}

/// The view that a router gets of a request sent at `now`. `slo_tpot_s`: bound on time per output token, seconds, for
/// requests to which the workload gives none.
pub(crate) fn asked(workload: &Workload, id: RequestId, now: Time, slo_tpot_s: f64) -> Asked<'_> {
    let i = id as usize;
    Asked {
        id,
        now,
        prompt_len: workload.prompt_len[i],
        category: workload.category[i],
        prefix: workload.prefix(id),
        prefix_block: workload.prefix_block,
        tpot_s: workload.slo_tpot_s.get(i).copied().filter(|s| s.is_finite()).unwrap_or(slo_tpot_s),
    }
}
