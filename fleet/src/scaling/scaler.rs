//! Carries out the decisions of a scaling rule: orders, boots, drains and ends replicas.

use super::settings::Scaling;
use super::watched::{Decides, EngineLimits, Traffic, Watched};
use crate::pool::{Pool, Replicas};
use crate::report_board::Board;
use foretoken_sim::metrics::{ReplicaLife, Scaled, ScalingDecision};
use foretoken_sim::{Ending, Given, Load, Outcome, Replica, RequestId, RequestRecords, Reserved, Run, Time, Workload};
use std::collections::{BTreeMap, VecDeque};

/// What a fleet needs so that its number of replicas can change.
pub struct Growing<'a> {
    /// The settings of the scaling: the rule, the limits on the number of replicas, and the boot time.
    pub scaling: &'a Scaling,
    /// What a scaling rule knows of the replicas' engines: KV block size, limits of a step, and latency bounds.
    pub limits: EngineLimits,
    /// Makes the engine of a replica. The argument is the replica's number: the first replica of the run is 0, and each
    /// further one gets the next number.
    pub make: Box<dyn Fn(usize) -> Box<dyn Replica + 'a> + 'a>,
}

/// Changes the number of replicas of a fleet during its run.
pub(crate) struct Scaler<'a> {
    growing: Growing<'a>,
    /// The rule that decides the number of replicas; `None` for a rule that never decides.
    rule: Option<Box<dyn Decides>>,
    /// Collects the load reports of the serving replicas for the scaling rule.
    board: Board,
    /// When the scaling rule decides the number of replicas next; `Time::MAX` if it never does.
    next_decision: Time,
    /// Replicas that boot, as (time at which the replica begins to serve, number of the replica), in order of time.
    booting: VecDeque<(Time, usize)>,
    /// Replicas that drain (they get no more requests): for each its number of requests in flight, by the replica's
    /// number.
    draining: BTreeMap<usize, u32>,
    traffic: Traffic,
    lives: Vec<ReplicaLife>,
    decisions: Vec<ScalingDecision>,
    /// For each replica that the fleet ever had: the results of its run, once it has ended; `None` before.
    past: Vec<Option<Run>>,
}

impl<'a> Scaler<'a> {
    /// The scaling of a fleet that starts with `replicas` serving replicas.
    pub fn new(growing: Growing<'a>, replicas: usize) -> Scaler<'a> {
        let rule = growing.scaling.rule.build(growing.limits);
        let next_decision = if rule.is_some() { Time::from_s(growing.scaling.interval_s()) } else { Time::MAX };
        let alive = ReplicaLife { ordered: Time::ZERO, ready: Time::ZERO, drained: Time::MAX, ended: Time::MAX };
        Scaler {
            board: Board::new(growing.scaling.signals(), replicas),
            rule,
            next_decision,
            booting: VecDeque::new(),
            draining: BTreeMap::new(),
            traffic: Traffic::default(),
            lives: vec![alive; replicas],
            decisions: Vec::new(),
            past: (0..replicas).map(|_| None).collect(),
            growing,
        }
    }

    /// Does the scaling rule ever decide to change the number of replicas?
    pub fn acts(&self) -> bool {
        self.rule.is_some()
    }

    /// The time of the next scaling event: a replica has booted, replicas are queried for their loads, or the rule
    /// decides.
    pub fn next(&self) -> Time {
        let booted = self.booting.front().map_or(Time::MAX, |boot| boot.0);
        let asked = if self.acts() { self.board.next() } else { Time::MAX };
        booted.min(asked).min(self.next_decision)
    }

    /// Counts the request `id` and its prompt tokens as sent, for the scaling rule.
    pub fn note_sent(&mut self, workload: &Workload, id: RequestId) {
        self.traffic.sent += 1;
        self.traffic.prompt_tokens += u64::from(workload.prompt_len[id as usize]);
    }

    /// Counts the request `id` as ended for the scaling rule. It ended at `at` on `replica`, with `emitted` output
    /// tokens.
    pub fn note_end(&mut self, workload: &Workload, id: RequestId, replica: usize, emitted: u32, at: Time) {
        self.traffic.ended += 1;
        self.traffic.ended_prompt_tokens += u64::from(workload.prompt_len[id as usize]);
        self.traffic.output_tokens += u64::from(emitted);
        if let Some(in_flight) = self.draining.get_mut(&replica) {
            *in_flight -= 1;
            if *in_flight == 0 {
                self.lives[replica].ended = at;
            }
        }
    }

    /// Adds the replicas whose boot is over by `now` to the replicas behind the router.
    pub fn serve_booted(&mut self, now: Time, pool: &mut Pool, replicas: &mut Replicas<'a>) {
        while self.booting.front().is_some_and(|boot| boot.0 <= now) {
            let (_, number) = self.booting.pop_front().expect("there is one");
            replicas[number] = (self.growing.make)(number);
            replicas[number].be_forgetful();
            pool.join(number);
            self.board.join();
        }
    }

    /// Queries the loads of the serving replicas for the rule, if a query is due. The replicas must have run up to
    /// `now`.
    pub fn ask(&mut self, now: Time, pool: &Pool, replicas: &Replicas) {
        if self.acts() && self.board.next() <= now {
            self.board.ask(pool.members().iter().map(|&r| &*replicas[r]));
        }
    }

    /// Lets the rule decide, if a decision is due, and carries the decision out. All ends of requests up to `now` must
    /// have been noted.
    pub fn decide(&mut self, now: Time, pool: &mut Pool, replicas: &mut Replicas<'a>) {
        if self.next_decision > now {
            return;
        }
        let Some(rule) = &mut self.rule else { return };
        self.next_decision += Time::from_s(self.growing.scaling.interval_s());
        let serving = pool.members().len();
        let reports: Vec<_> = (0..serving).map(|member| self.board.newest(member, now)).collect();
        let scaling = self.growing.scaling;
        let watched = Watched {
            now,
            reports: &reports,
            numbers: pool.members(),
            booting: self.booting.len() as u32,
            min_replicas: scaling.min_replicas,
            traffic: self.traffic,
        };
        let Some(wish) = rule.decide(&watched) else { return };
        let (current, wished) = (watched.current(), wish.replicas.clamp(scaling.min_replicas, scaling.max_replicas));
        if wished == current {
            return;
        }
        let (serving, booting) = (serving as u32, watched.booting);
        self.decisions.push(ScalingDecision { at: now, serving, booting, wished, reason: wish.reason });
        (current..wished).for_each(|_| self.order(now, replicas));
        (wished..current).for_each(|_| self.remove(now, pool));
        self.serve_booted(now, pool, replicas);
    }

    fn order(&mut self, now: Time, replicas: &mut Replicas<'a>) {
        let ready = now + Time::from_s(self.growing.scaling.boot_s);
        self.booting.push_back((ready, self.lives.len()));
        self.lives.push(ReplicaLife { ordered: now, ready, drained: Time::MAX, ended: Time::MAX });
        self.past.push(None);
        replicas.push(Box::new(Absent));
    }

    /// Removes a replica in the order of Kubernetes (`controller_utils.go`, `ActivePodsWithRanks`): the youngest
    /// booting replica or, if none boots, the youngest serving replica. A serving replica drains before it ends.
    fn remove(&mut self, now: Time, pool: &mut Pool) {
        if let Some((_, number)) = self.booting.pop_back() {
            let life = &mut self.lives[number];
            (life.ready, life.drained, life.ended) = (Time::MAX, now, now);
            return;
        }
        let member = pool.members().len() - 1;
        let (number, in_flight) = pool.leave(member);
        self.board.leave(member);
        self.lives[number].drained = now;
        if in_flight == 0 {
            self.lives[number].ended = now;
        }
        self.draining.insert(number, in_flight);
    }

    /// Ends the draining replicas that have no requests in flight, and keeps their results.
    pub fn end_drained(&mut self, replicas: &mut Replicas<'a>) {
        let idle = |number: usize| replicas[number].next_step() == Time::MAX;
        let empty = self.draining.iter().filter(|(number, n)| **n == 0 && idle(**number)).map(|(&number, _)| number);
        let empty: Vec<usize> = empty.collect();
        for number in empty {
            self.draining.remove(&number);
            let replica = std::mem::replace(&mut replicas[number], Box::new(Absent));
            self.past[number] = Some(replica.finish(Ending::Done));
        }
    }

    /// Ends the run. Returns for each replica the results of its run (`None` if it never served), and the history of
    /// the scaling. The caller must set the history's `end`.
    pub fn finish(mut self, replicas: Replicas<'a>, ending: Ending) -> (Vec<Option<Run>>, Scaled) {
        let parts = (0..).zip(replicas).map(|(number, replica): (usize, _)| {
            let boots = self.booting.iter().any(|boot| boot.1 == number);
            match self.past[number].take() {
                Some(past) => Some(past),
                None if boots || self.lives[number].ready == Time::MAX => None,
                None => Some(replica.finish(ending)),
            }
        });
        let parts = parts.collect();
        (parts, Scaled { lives: self.lives, decisions: self.decisions, end: Time::ZERO })
    }
}

/// An empty engine, in place of a replica that still boots or has ended.
struct Absent;

impl Replica for Absent {
    fn be_forgetful(&mut self) {}

    fn give(&mut self, _: Given) -> RequestId {
        unreachable!("a replica that does not serve gets no request");
    }

    fn take_reserved(&mut self, _: &mut Vec<Reserved>) {}

    fn kv_arrived(&mut self, _: RequestId, _: Time, _: bool) {}

    fn computes_here(&mut self, _: RequestId, _: Time) {}

    fn release(&mut self, _: RequestId, _: Time) {}

    fn run_until(&mut self, _: Time, _: bool) {}

    fn now(&self) -> Time {
        Time::ZERO
    }

    fn next_step(&self) -> Time {
        Time::MAX
    }

    fn quiet_until(&self) -> Time {
        Time::MAX
    }

    fn take_ended(&mut self, _: &mut RequestRecords, _: &mut Vec<(RequestId, Time)>) {}

    fn first_token(&self, _: RequestId) -> (Time, Outcome) {
        unreachable!("a replica that does not serve has no request");
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn finish(self: Box<Self>, _: Ending) -> Run {
        unreachable!("a replica that does not serve has no results");
    }
}
