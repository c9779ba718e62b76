//! The event loop of a fleet.
//!
//! There are two kinds of events: a request arrives, and the router queries the replicas' loads. A fleet whose size
//! changes has a third kind, scaling events: a replica has booted, the scaling rule queries the replicas' loads, or the
//! rule decides. Between two events the replicas run independently. In a closed loop and in sessions a request arrives
//! only after another request has ended. There the loop always runs the replica whose next step is earliest, until one
//! of its requests ends or another replica's next step is earlier.

use crate::merged::{merged, merged_scaled};
use crate::pool::{Pool, Replicas, asked};
use crate::report_board::Signals;
use crate::router::{Needs, Router};
use crate::scaling::Growing;
use crate::scaling::scaler::Scaler;
use crate::senders::Senders;
use foretoken_sim::{Arrivals, Ending, Given, Patience, Replica, RequestId, Run, Time, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Replicas, a router, and the requests for them.
pub struct Fleet<'a> {
    workload: &'a Workload,
    replicas: Replicas<'a>,
    pool: Pool,
    /// When each replica must run next.
    due: Due,
    /// Bound on time per output token, seconds, for requests to which the workload gives none.
    slo_tpot_s: f64,
    /// Buffer for the requests that ended on one replica, as (id, time of the end); `collect` fills it. The fleet owns
    /// it to save allocations.
    ended: Vec<(RequestId, Time)>,
    patience: Option<Patience>,
    /// Lets replicas boot and drain; `None` for a fleet of a fixed size.
    scaler: Option<Scaler<'a>>,
    /// Whether to run one replica is to run all, because they are data-parallel ranks of one server.
    lock_step: bool,
}

/// The results of a fleet's run.
pub struct FleetRun {
    /// The runs of the replicas, merged into one.
    pub run: Run,
    /// Whether enough requests met their latency bounds (SLOs); `None` if no [`Patience`] could end the run early.
    pub patience: Option<Patience>,
}

/// After the last request is sent, the fleet advances its replicas by this number of simulated seconds, then checks
/// whether enough requests meet their latency bounds, and so on. Used if the check may end the run early.
const STRIDE_S: f64 = 1.0;
/// After the last request is sent, the fleet advances its replicas by this number of simulated seconds at a time. Used
/// if the requests' latency bounds cannot end the run early.
const LONG_STRIDE_S: f64 = 60.0;

/// The warning about a run of two or more replicas whose router needs load reports but never got one.
pub(crate) const NEVER_HEARD: &str =
    "no replica's load reached the router in the whole run, so it chose without them: lower fleet.signals.delay_s";

impl<'a> Fleet<'a> {
    /// A fleet to which no request was sent yet. `router`: the router, with the information that it uses. `slo_tpot_s`:
    /// the run's bound on time per output token, seconds; infinity for none.
    ///
    /// # Panics
    /// There is no replica.
    pub fn new(
        workload: &'a Workload,
        mut replicas: Vec<Box<dyn Replica + 'a>>,
        router: (Box<dyn Router>, Needs),
        signals: Signals,
        slo_tpot_s: f64,
    ) -> Fleet<'a> {
        assert!(!replicas.is_empty(), "a fleet has a replica");
        replicas.iter_mut().for_each(|replica| replica.be_forgetful());
        Fleet {
            workload,
            pool: Pool::new((0..replicas.len()).collect(), router, signals, workload.len()),
            due: Due::default(),
            replicas,
            slo_tpot_s,
            ended: Vec::new(),
            patience: None,
            scaler: None,
            lock_step: false,
        }
    }

    /// Lets a scaling rule change the number of replicas during the run. `growing` has the rule and its settings. The
    /// replicas that the fleet already has serve from the start of the run.
    pub fn grow(&mut self, growing: Growing<'a>) {
        self.scaler = Some(Scaler::new(growing, self.replicas.len()));
    }

    /// Says that the replicas are the data-parallel ranks of one server ([`foretoken_sim::in_lock_step`]).
    pub fn be_in_lock_step(&mut self) {
        self.lock_step = true;
    }

    /// Lets the run end early: as soon as it is certain whether enough requests meet their latency bounds. `patience`
    /// has the bounds and the requests that count.
    pub fn be_patient(&mut self, patience: Patience) {
        self.patience = Some(patience);
    }

    /// Runs until every request has ended. Ends earlier if `interrupt` is set, if it is certain whether enough requests
    /// meet their latency bounds ([`be_patient`](Fleet::be_patient)), or if the simulated clock reaches its greatest
    /// time.
    pub fn run(mut self, arrivals: Arrivals, interrupt: &AtomicBool) -> FleetRun {
        let stopped = match arrivals {
            Arrivals::Open => self.open(interrupt),
            Arrivals::Closed { clients } => self.after_ends(Senders::closed_loop(self.workload, clients), interrupt),
            Arrivals::Sessions => self.after_ends(Senders::sessions(self.workload), interrupt),
        };
        let stopped = stopped.or_else(|| self.drain(interrupt));
        self.collect_all();
        let ending = stopped.unwrap_or_else(|| match self.pool.all_ended() {
            true => Ending::Done,
            false => Ending::OutOfTime,
        });
        let never_heard = self.pool.never_heard();
        let mut run = match self.scaler {
            None => {
                let runs = self.replicas.into_iter().map(|replica| replica.finish(ending)).collect();
                merged(runs, self.pool, None, self.workload)
            }
            Some(scaler) => {
                let (parts, scaled) = scaler.finish(self.replicas, ending);
                Run { ending, ..merged_scaled(parts, self.pool, scaled, self.workload) }
            }
        };
        if never_heard {
            run.warnings.push(NEVER_HEARD.to_owned());
        }
        FleetRun { run, patience: self.patience }
    }

    /// Sends each request at its arrival time (open loop). Returns `None` once all requests are sent. If the run ends
    /// earlier, returns the reason.
    fn open(&mut self, interrupt: &AtomicBool) -> Option<Ending> {
        for id in 0..self.workload.len() as RequestId {
            let at = self.workload.arrival[id as usize];
            while self.next_event() <= at {
                let query = self.pool.next_query();
                self.advance(self.next_event());
                self.handle_event();
                if query < self.pool.next_query() && self.first().is_none() {
                    // All replicas are idle, so their loads do not change before the next request arrives at `at`. Of
                    // the load queries that are due until `at`, only the last one is made. If a scaling event comes
                    // before `at`, only the queries before this event are skipped.
                    self.pool.board.skip_to(at.min(self.next_scaling()));
                }
            }
            if self.follows() {
                self.advance_due(at);
            }
            let to = self.send(id, at);
            // The chosen replica must run up to the arrival. The other replicas may run later, except that the run may
            // use the times at which requests end.
            self.run_one(to, at);
            self.give(to, Given::whole(id, at));
            if self.follows() {
                self.due.set(to, self.replicas[to].next_step());
            }
            if let Some(ending) = self.stops(interrupt) {
                self.advance(at);
                return Some(ending);
            }
        }
        None
    }

    /// Sends each request after the end of the request before it: of the same client (closed loop) or of the same
    /// session. Returns `None` once all requests are sent, or if no further request can be sent. If the run ends
    /// earlier, returns the reason.
    fn after_ends(&mut self, mut senders: Senders<'a>, interrupt: &AtomicBool) -> Option<Ending> {
        let mut unsent = self.workload.len();
        while unsent > 0 {
            let first = self.first();
            let least = first.map_or(Time::MAX, |(_, at)| at);
            let sent = senders.next_at();
            if sent == Time::MAX && first.is_none() {
                return None;
            }
            if self.next_event() <= sent.min(least) {
                self.handle_event();
            } else if sent <= least && sent < Time::MAX {
                let next = senders.pop().expect("one is sent now");
                let to = self.send(next, sent);
                self.give(to, Given::whole(next, sent));
                unsent -= 1;
            } else {
                let (replica, least) = first?;
                let others = self.clocks().filter(|&(r, _)| r != replica).map(|(_, at)| at).min();
                let until = others.unwrap_or(Time::MAX).min(sent).max(least + Time(1));
                let until = until.min(self.next_event().max(least + Time(1)));
                self.replicas[replica].run_until(until, true);
                let ran = if self.lock_step { 0..self.replicas.len() } else { replica..replica + 1 };
                for replica in ran {
                    self.collect(replica);
                    self.ended.iter().for_each(|&(id, at)| senders.ended(id, at));
                }
            }
            if let Some(ending) = self.stops(interrupt) {
                return Some(ending);
            }
        }
        None
    }

    /// Runs all replicas until their requests have ended. Reports the ended requests to the router, to the scaling
    /// rule, and to `patience`, which checks whether enough requests meet their latency bounds. If the run ends
    /// earlier, returns the reason, else `None`.
    fn drain(&mut self, interrupt: &AtomicBool) -> Option<Ending> {
        let stride = Time::from_s(if self.patience.is_some() { STRIDE_S } else { LONG_STRIDE_S });
        while let Some((_, least)) = self.first() {
            let scaling = self.next_scaling();
            if scaling <= least {
                self.handle_scaling(scaling);
                continue;
            }
            self.advance((least + stride).min(scaling));
            // Reports no end that is later than the next scaling event, because a scaling rule that decides then could
            // not know of this end.
            self.tell_ends(if scaling < Time::MAX { scaling.min(least + stride) } else { Time::MAX });
            if let Some(ending) = self.stops(interrupt) {
                return Some(ending);
            }
        }
        self.tell_ends(Time::MAX);
        None
    }

    /// The time of the next scaling event: a new replica has booted, a replica reports its load to the scaling rule, or
    /// the rule decides how many replicas there are. `Time::MAX` for a fleet of a fixed size.
    fn next_scaling(&self) -> Time {
        self.scaler.as_ref().map_or(Time::MAX, Scaler::next)
    }

    /// The time of the next event that is not a request: a router's query of the loads, or a scaling event.
    fn next_event(&self) -> Time {
        self.pool.next_query().min(self.next_scaling())
    }

    /// Handles the next event that is not a request. The replicas must have run up to the event's time. If several
    /// events have the same time, booted replicas join first, then the router queries the loads, then the scaling rule
    /// acts.
    fn handle_event(&mut self) {
        let now = self.next_event();
        if let Some(scaler) = &mut self.scaler {
            scaler.serve_booted(now, &mut self.pool, &mut self.replicas);
        }
        if self.pool.next_query() <= now {
            self.pool.ask(&self.replicas);
        }
        if self.next_scaling() <= now {
            self.handle_scaling(now);
        }
    }

    /// Handles the scaling events at `now`: booted replicas start to serve, the scaling rule reads the loads and
    /// decides, and replicas that have drained end. The replicas must have run up to `now`.
    fn handle_scaling(&mut self, now: Time) {
        self.pool.tell_first_tokens(now, &self.replicas);
        self.tell_ends(now);
        let Fleet { pool, replicas, scaler, .. } = self;
        if let Some(scaler) = scaler {
            scaler.serve_booted(now, pool, replicas);
            scaler.ask(now, pool, replicas);
            scaler.decide(now, pool, replicas);
            scaler.end_drained(replicas);
        }
    }

    /// Does the run use the times at which requests end? True if the router needs ends or first tokens, if the run may
    /// end early by its latency bounds, or if a scaling rule may change the number of replicas.
    fn follows(&self) -> bool {
        let grows = self.scaler.as_ref().is_some_and(Scaler::acts);
        self.pool.needs.ends || self.pool.needs.first_tokens || self.patience.is_some() || grows
    }

    fn stops(&self, interrupt: &AtomicBool) -> Option<Ending> {
        if interrupt.load(Ordering::Relaxed) {
            return Some(Ending::Interrupted);
        }
        self.patience.as_ref().is_some_and(Patience::certain).then_some(Ending::Certain)
    }

    /// The index of each replica and the time of its next step; `Time::MAX` for an idle replica.
    fn clocks(&self) -> impl Iterator<Item = (usize, Time)> + '_ {
        self.replicas.iter().enumerate().map(|(r, replica)| (r, replica.next_step()))
    }

    /// The index of the replica whose next step is earliest, and the time of this step; `None` if all replicas are
    /// idle.
    fn first(&self) -> Option<(usize, Time)> {
        self.clocks().filter(|(_, at)| *at < Time::MAX).min_by_key(|(_, at)| *at)
    }

    /// Runs all replicas up to the time `until`, and collects the requests that ended meanwhile.
    fn advance(&mut self, until: Time) {
        (0..self.replicas.len()).for_each(|replica| self.run_one(replica, until));
    }

    /// Like [`advance`](Fleet::advance), but leaves out the replicas on which no request ends or emits its first token
    /// up to `until`. Such a replica runs later.
    fn advance_due(&mut self, until: Time) {
        while let Some(replica) = self.due.take(until) {
            self.run_one(replica, until);
            self.due.set(replica, self.replicas[replica].quiet_until());
        }
    }

    fn run_one(&mut self, replica: usize, until: Time) {
        self.replicas[replica].run_until(until, false);
        self.collect(replica);
    }

    fn collect_all(&mut self) {
        (0..self.replicas.len()).for_each(|replica| self.collect(replica));
    }

    /// Clears `ended`, and fills it with the requests that ended on the replica since the last call for this replica.
    /// Queues them for the router, if the run [uses the times at which requests end](Fleet::follows).
    fn collect(&mut self, replica: usize) {
        self.pool.collect(&mut *self.replicas[replica], &mut self.ended);
        if self.follows() {
            self.ended.iter().for_each(|&(id, at)| self.pool.note_end(id, at));
        }
    }

    fn give(&mut self, to: usize, given: Given) {
        self.pool.give(&mut self.replicas, to, given);
    }

    /// Lets the router choose a replica for the request `id`, which is sent at `now`, and counts the request there.
    /// Before that, the router gets the first tokens, ends and loads up to `now`, if it needs them. Returns the
    /// replica's index. The caller gives the request to the replica. Replicas whose state the router sees must have run
    /// up to `now`.
    fn send(&mut self, id: RequestId, now: Time) -> usize {
        if self.follows() {
            self.pool.tell_first_tokens(now, &self.replicas);
            self.tell_ends(now);
        }
        if let Some(scaler) = &mut self.scaler {
            scaler.note_sent(self.workload, id);
        }
        self.pool.route(&asked(self.workload, id, now, self.slo_tpot_s))
    }

    /// Reports the requests that ended up to `now`, the earliest end first: to the router, to the scaling rule, and to
    /// `patience`, which checks whether enough requests meet their latency bounds. Each report lowers the router's
    /// count of requests in flight on the replica by one.
    fn tell_ends(&mut self, now: Time) {
        let Fleet { pool, patience, scaler, workload, .. } = self;
        pool.tell_ends(now, |records, id, replica| {
            if let Some(patience) = patience {
                patience.ended(records, id);
            }
            if let Some(scaler) = scaler {
                let (emitted, at) = (records.emitted[id as usize], records.finish[id as usize]);
                scaler.note_end(workload, id, replica, emitted, at);
            }
        });
    }
}

/// For each replica that has a request, the time at which it must run next.
#[derive(Default)]
pub(crate) struct Due {
    /// The valid time of each replica; `Time::MAX` for none.
    at: Vec<Time>,
    /// (Time, replica), the earliest first. An entry with another time than the replica's valid one is void.
    queue: BinaryHeap<Reverse<(Time, usize)>>,
}

impl Due {
    /// Sets the time at which a replica must run next; `Time::MAX` if it need not run.
    pub fn set(&mut self, replica: usize, at: Time) {
        if self.at.len() <= replica {
            self.at.resize(replica + 1, Time::MAX);
        }
        if at != self.at[replica] && at < Time::MAX {
            self.queue.push(Reverse((at, replica)));
        }
        self.at[replica] = at;
    }

    /// Takes the replica that must run next, if it must run by `until`.
    pub fn take(&mut self, until: Time) -> Option<usize> {
        while let Some(&Reverse((at, replica))) = self.queue.peek().filter(|entry| entry.0.0 <= until) {
            self.queue.pop();
            if self.at[replica] == at {
                self.at[replica] = Time::MAX;
                return Some(replica);
            }
        }
        None
    }
}
