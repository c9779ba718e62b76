//! A replica of a fleet: an engine on the event clock to which a router gives requests while the engine runs.

use crate::barrier::Barrier;
use crate::engine::{Drafter, Ending, Engine, Given, Load, Reserved};
use crate::event_clock::EventClock;
use crate::metrics::{Outcome, RequestRecords};
use crate::prompt_balance::Runnable;
use crate::serving::Run;
use crate::time::Time;
use crate::workload::{RequestId, Workload};
use std::rc::Weak;

/// An engine that its caller runs from one point in time to the next. Request ids are the ids of the fleet's workload,
/// so that a request has the same random draws on every replica.
pub trait Replica {
    /// From now on the replica forgets requests whose ends were [taken](Replica::take_ended), if its policy allows
    /// this, so that its memory does not grow with them. Call this before the first request. A replica that shares
    /// requests with another one ([`Part`](crate::Part)) may not forget them.
    fn be_forgetful(&mut self);

    /// Gives the replica a request. The router must give requests in ascending order of `sent`. Returns the index of
    /// the request in the replica's own records until its end is taken.
    fn give(&mut self, given: Given) -> RequestId;

    /// Appends to `into` each request whose KV comes from another replica ([`Part::Output`](crate::Part)) and whose
    /// blocks were allocated since the last call.
    fn take_reserved(&mut self, into: &mut Vec<Reserved>);

    /// Tells the replica that all KV of a request's prompt arrived from another replica at `at`, including the draft
    /// model's KV if `draft_kv` is true. `index` is the request's index from [`give`](Replica::give).
    fn kv_arrived(&mut self, index: RequestId, at: Time, draft_kv: bool);

    /// Tells the replica at `at` that the KV of a request's prompt will not come. The replica must compute the prompt.
    /// `index` is the request's index from [`give`](Replica::give).
    fn computes_here(&mut self, index: RequestId, at: Time);

    /// Frees at time `at` the blocks of a request of which this replica computed only the prompt
    /// ([`Part::Prompt`](crate::Part)). `index` is the request's index from [`give`](Replica::give).
    fn release(&mut self, index: RequestId, at: Time);

    /// Runs steps as long as they begin before `until`; the last step may end later. With `to_the_next_end` the replica
    /// stops earlier: after the step in which a request ends, is rejected, or gets blocks for KV that comes from
    /// another replica. The caller may not later give a request that is sent before `until`.
    fn run_until(&mut self, until: Time, to_the_next_end: bool);

    /// The replica's clock. While the replica works, this is the end of its last step.
    fn now(&self) -> Time;

    /// When the next step begins, if no further request is given; `Time::MAX` if no step follows.
    fn next_step(&self) -> Time;

    /// A time before which no request ends or emits its first token, if no further request is given; `Time::MAX` if
    /// none will. Not before the replica's [`next_step`](Replica::next_step).
    fn quiet_until(&self) -> Time;

    /// Appends to `into` each request that has ended since the last call, with the time of its end, and writes its
    /// record into `records`, the records of all requests of the workload.
    fn take_ended(&mut self, records: &mut RequestRecords, into: &mut Vec<(RequestId, Time)>);

    /// When a request emitted its first token (`Time::MAX` before), and its outcome so far. The time may be later than
    /// the time up to which the replica was asked to run. `index` is the request's index from [`give`](Replica::give).
    fn first_token(&self, index: RequestId) -> (Time, Outcome);

    /// The replica's load at the time [`now`](Replica::now): its running and waiting requests, and its KV blocks in
    /// use.
    fn load(&self) -> Load;

    /// Ends the run and returns its results, with the complete records of the replica's own requests. `ending` says
    /// how the run of the whole fleet ended.
    fn finish(self: Box<Self>, ending: Ending) -> Run;
}

/// An engine to which a router gives requests.
pub(crate) struct RoutedEngine<'a, D> {
    engine: Engine<'a, EventClock<'a>, D>,
    /// The requests of the whole fleet.
    workload: &'a Workload,
    /// Warnings for the user that follow from the engine's settings.
    notes: Vec<String>,
}

impl<'a, D: Drafter<EventClock<'a>>> RoutedEngine<'a, D> {
    pub(crate) fn new(
        mut engine: Engine<'a, EventClock<'a>, D>,
        workload: &'a Workload,
        notes: Vec<String>,
    ) -> RoutedEngine<'a, D> {
        engine.be_fed();
        RoutedEngine { engine, workload, notes }
    }
}

impl<'a, D: Drafter<EventClock<'a>>> Replica for RoutedEngine<'a, D> {
    fn be_forgetful(&mut self) {
        self.engine.be_forgetful();
    }

    fn give(&mut self, given: Given) -> RequestId {
        self.engine.give_one_of(self.workload, given)
    }

    fn take_reserved(&mut self, into: &mut Vec<Reserved>) {
        let from = into.len();
        into.extend(self.engine.take_reserved());
        into[from..].iter_mut().for_each(|reserved| reserved.id = self.engine.number(reserved.id));
    }

    fn kv_arrived(&mut self, index: RequestId, at: Time, draft_kv: bool) {
        self.engine.kv_arrived(index, at, draft_kv);
    }

    fn computes_here(&mut self, index: RequestId, at: Time) {
        self.engine.computes_here(index, at);
    }

    fn release(&mut self, index: RequestId, at: Time) {
        self.engine.release(index, at);
    }

    fn run_until(&mut self, until: Time, to_the_next_end: bool) {
        let Ok(()) = self.engine.run_until(until, to_the_next_end);
    }

    fn now(&self) -> Time {
        self.engine.now()
    }

    fn next_step(&self) -> Time {
        self.engine.next_step()
    }

    fn quiet_until(&self) -> Time {
        self.engine.quiet_until()
    }

    fn take_ended(&mut self, records: &mut RequestRecords, into: &mut Vec<(RequestId, Time)>) {
        self.engine.each_ended(|id, at, own, index| {
            records.copy(id as usize, own, index);
            into.push((id, at));
        });
        self.engine.forget_ended(|_, _, _, _| ());
    }

    fn first_token(&self, index: RequestId) -> (Time, Outcome) {
        let (records, i) = (self.engine.records(), index as usize);
        (records.first_token[i], records.outcome[i])
    }

    fn load(&self) -> Load {
        self.engine.load()
    }

    fn finish(self: Box<Self>, ending: Ending) -> Run {
        let mut run = Run::of(self.engine.finish(), ending).0;
        run.warnings.extend(self.notes);
        run
    }
}

/// An engine that is a rank.
pub(crate) trait Rank<'a>: Replica {
    /// Makes the engine rank `rank`, whose target passes meet at `barrier`.
    fn join(&mut self, rank: usize, barrier: Weak<dyn Barrier + 'a>);

    /// Takes the requests that have arrived by the rank's clock, if every later one comes at `until` or later. Returns
    /// whether the rank has work.
    fn receive(&mut self, until: Time) -> bool;

    /// Whether the rank has work, without the requests that it has not received.
    fn has_work(&self) -> bool;

    /// What the rank's next step could run.
    fn runnable(&self) -> Runnable;

    /// Whether the rank's steps have no prompts from now on.
    fn hold_prompts(&mut self, held: bool);

    /// Makes one turn of the engine's loop.
    fn turn(&mut self);

    fn wait_until(&mut self, at: Time);

    /// Whether a request has ended since the ends were last taken.
    fn has_ended(&self) -> bool;
}

impl<'a, D: Drafter<EventClock<'a>>> Rank<'a> for RoutedEngine<'a, D> {
    fn join(&mut self, rank: usize, barrier: Weak<dyn Barrier + 'a>) {
        self.engine.be_step_by_step().be_rank(rank, barrier);
    }

    fn receive(&mut self, until: Time) -> bool {
        self.engine.receive(until)
    }

    fn has_work(&self) -> bool {
        self.engine.is_busy()
    }

    fn runnable(&self) -> Runnable {
        self.engine.runnable()
    }

    fn hold_prompts(&mut self, held: bool) {
        self.engine.hold_prompts(held);
    }

    fn turn(&mut self) {
        let Ok(()) = self.engine.one_turn();
    }

    fn wait_until(&mut self, at: Time) {
        self.engine.wait_until(at);
    }

    fn has_ended(&self) -> bool {
        self.engine.has_ended()
    }
}
