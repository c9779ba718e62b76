//! Requests that clients send while the engine runs, and that the engine does not know before. Clients may abort them.

use super::arrivals::Given;
use super::collector::Collector;
use super::drafter::Drafter;
use super::state::{Engine, Watch};
use crate::executor::Executor;
use crate::metrics::Totals;
use crate::workload::{Request, RequestId};

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// Gives the engine a new request, which is sent at the request's `arrival` time. Returns the request's id.
    /// Requests must be given in ascending order of their arrival times.
    pub fn give_new(&mut self, request: Request) -> RequestId {
        let sent = request.arrival;
        let id = self.scheduler.extend_workload(request);
        let requests = id as usize + 1;
        self.out.make_room(requests);
        self.pipeline.ahead.make_room(requests);
        self.give(Given::whole(id, sent));
        id
    }

    /// The watcher and the results collected so far.
    pub fn parts(&mut self) -> (&mut W, &mut Collector) {
        (&mut self.watch, &mut self.out)
    }

    /// Sums over all steps so far.
    pub fn totals(&self) -> &Totals {
        &self.out.totals
    }

    /// Aborts a request between two steps (vLLM's `finish_requests`, as for a client that has left). The tokens that a
    /// step in flight computes for the request are dropped. Does nothing if the request has ended.
    pub fn abort(&mut self, id: RequestId) {
        if self.arrivals.withdraw(id) {
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
