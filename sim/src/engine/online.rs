//! Requests that come while the engine runs and that are in no workload. Clients may abort them. The engine may forget
//! requests that have ended, so that its memory does not grow with the number of ended requests.

use super::arrivals::Given;
use super::collector::Collector;
use super::drafter::Drafter;
use super::state::{Engine, Watch};
use crate::executor::Executor;
use crate::metrics::{RequestRecords, Totals};
use crate::workload::{Request, RequestId, Workload};

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// From now on ended requests can be [forgotten](Engine::forget_ended). Call this before the first request. If the
    /// drafter does not allow that later requests take the ids of ended requests ([`Drafter::ids_may_return`]), does
    /// nothing and returns false.
    pub fn be_forgetful(&mut self) -> bool {
        let may = self.drafter.ids_may_return();
        if may {
            self.ids.be_forgetful();
        }
        may
    }

    /// Gives the engine a new request, which is sent at the request's `arrival` time. Returns the request's id, which
    /// may be the id of a forgotten request. Requests must be given in ascending order of their arrival times.
    pub fn give_new(&mut self, request: Request) -> RequestId {
        let sent = request.arrival;
        let (id, number) = self.ids.take();
        self.scheduler.put(id, number, request, false);
        self.make_room();
        self.give(Given::whole(id, sent));
        id
    }

    /// Gives the engine a request of `workload`, which other engines serve too. Returns the request's id in this
    /// engine. So an engine needs memory only for its own requests. If the drafter's decisions depend on the ids
    /// themselves, the request keeps its id.
    pub fn give_one_of(&mut self, workload: &Workload, given: Given) -> RequestId {
        let id = if self.drafter.ids_may_return() { self.ids.take().0 } else { given.id };
        self.scheduler.put(id, given.id, workload.get(given.id), workload.goes_on(given.id));
        self.make_room();
        self.give(Given { id, ..given });
        id
    }

    fn make_room(&mut self) {
        let requests = self.scheduler.workload().len();
        self.out.make_room(requests);
        self.pipeline.ahead.make_room(requests);
    }

    /// Forgets the requests that have ended and that no step in flight contains, if the engine is
    /// [forgetful](Engine::be_forgetful). Before it forgets a request, calls `each` with the request's id, its
    /// [number](crate::Workload::number), the watcher, and the records of all requests. The record of this request is
    /// then complete.
    pub fn forget_ended(&mut self, mut each: impl FnMut(RequestId, RequestId, &mut W, &RequestRecords)) {
        while let Some(id) = self.ids.next_settled() {
            self.out.close(id);
            each(id, self.scheduler.workload().number(id), &mut self.watch, &self.out.records);
            self.out.forget(id);
            self.pipeline.ahead.forget(id);
            self.ids.free(id);
        }
    }

    /// The watcher of the scheduler's calls, and the results of the run that were collected so far.
    pub fn parts(&mut self) -> (&mut W, &mut Collector) {
        (&mut self.watch, &mut self.out)
    }

    /// Counters of the run, summed over all its steps so far: times, passes, and drafted, verified and accepted tokens.
    pub fn totals(&self) -> &Totals {
        &self.out.totals
    }

    /// The number of the request with this id: how many requests came before it, modulo 2^32. The number differs from
    /// the id if the request took the id of an ended request.
    pub fn number(&self, id: RequestId) -> RequestId {
        self.scheduler.workload().number(id)
    }

    /// Aborts a request between two steps (vLLM's `finish_requests`, as for a client that has left). The tokens that a
    /// step in flight computes for the request are dropped. Does nothing if the request has ended.
    pub fn abort(&mut self, id: RequestId) {
        if self.arrivals.withdraw(id) {
            self.ids.settle(&[id]);
            return;
        }
        let Some(emitted) = self.scheduler.abort(id) else { return };
        self.out.abort(id, emitted);
        self.executor.end(id);
        self.pipeline.ended(id);
        self.pipeline.untold_ends.push(id);
        if self.pipeline.queue.is_empty() {
            self.tell_ended(self.pipeline.untold_ends.len());
        }
    }
}
