//! A replica of a fleet: an engine on the event clock to which a router gives requests while the engine runs.

use crate::engine::{Drafter, Ending, Engine, Given, Load, Reserved};
use crate::event_clock::EventClock;
use crate::metrics::RequestRecords;
use crate::serving::Run;
use crate::time::Time;
use crate::workload::RequestId;

/// An engine that its caller runs from one point in time to the next. Request ids are the ids of the fleet's workload,
/// so that a request has the same random draws on every replica.
pub trait Replica {
    /// Gives the replica a request. The router must give requests in ascending order of `sent`.
    fn give(&mut self, given: Given);

    /// Appends to `into` each request whose KV comes from another replica ([`Part::Output`](crate::Part)) and whose
    /// blocks were allocated since the last call.
    fn take_reserved(&mut self, into: &mut Vec<Reserved>);

    /// Tells the replica that all KV of a request's prompt arrived from another replica at `at`, including the draft
    /// model's KV if `draft_kv` is true.
    fn kv_arrived(&mut self, id: RequestId, at: Time, draft_kv: bool);

    /// Tells the replica at `at` that the KV of a request's prompt will not come. The replica must compute the prompt.
    fn computes_here(&mut self, id: RequestId, at: Time);

    /// Frees at time `at` the blocks of a request of which this replica computed only the prompt
    /// ([`Part::Prompt`](crate::Part)).
    fn release(&mut self, id: RequestId, at: Time);

    /// Runs steps as long as they begin before `until`; the last step may end later. With `to_the_next_end` the replica
    /// stops earlier: after the step in which a request ends, is rejected, or gets blocks for KV that comes from
    /// another replica. The caller may not later give a request that is sent before `until`.
    fn run_until(&mut self, until: Time, to_the_next_end: bool);

    /// The replica's clock. While the replica works, this is the end of its last step.
    fn now(&self) -> Time;

    /// When the next step begins, if no further request is given; `Time::MAX` if no step follows.
    fn next_step(&self) -> Time;

    /// Appends to `into` each request that has ended since the last call, with the time of its end.
    fn take_ended(&mut self, into: &mut Vec<(RequestId, Time)>);

    /// The records of all requests of the workload so far. The numbers of draft tokens, and of steps with draft tokens
    /// (rounds), are not filled in. Records of requests on other replicas are empty. Times may be later than the time
    /// up to which the replica was asked to run.
    fn records(&self) -> &RequestRecords;

    /// The replica's load at the time [`now`](Replica::now): its running and waiting requests, and its KV blocks in
    /// use.
    fn load(&self) -> Load;

    /// Ends the run and returns its results. `ending` says how the run of the whole fleet ended.
    fn finish(self: Box<Self>, ending: Ending) -> Run;
}

/// An engine to which a router gives requests.
pub(crate) struct RoutedEngine<'a, D> {
    engine: Engine<'a, EventClock<'a>, D>,
    /// Warnings for the user that follow from the engine's settings.
    notes: Vec<String>,
}

impl<'a, D: Drafter<EventClock<'a>>> RoutedEngine<'a, D> {
    pub(crate) fn new(mut engine: Engine<'a, EventClock<'a>, D>, notes: Vec<String>) -> RoutedEngine<'a, D> {
        engine.be_fed();
        RoutedEngine { engine, notes }
    }
}

impl<'a, D: Drafter<EventClock<'a>>> Replica for RoutedEngine<'a, D> {
    fn give(&mut self, given: Given) {
        self.engine.give(given);
    }

    fn take_reserved(&mut self, into: &mut Vec<Reserved>) {
        into.extend(self.engine.take_reserved());
    }

    fn kv_arrived(&mut self, id: RequestId, at: Time, draft_kv: bool) {
        self.engine.kv_arrived(id, at, draft_kv);
    }

    fn computes_here(&mut self, id: RequestId, at: Time) {
        self.engine.computes_here(id, at);
    }

    fn release(&mut self, id: RequestId, at: Time) {
        self.engine.release(id, at);
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

    fn take_ended(&mut self, into: &mut Vec<(RequestId, Time)>) {
        into.extend(self.engine.take_ended());
    }

    fn records(&self) -> &RequestRecords {
        self.engine.records()
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
