//! Requests that come while the engine runs and are not known before. They may be aborted before their end.

use super::arrivals::Given;
use super::collector::Collector;
use super::drafter::Drafter;
use super::state::{Engine, Watch};
use crate::executor::Executor;
use crate::metrics::Totals;
use crate::workload::{Request, RequestId};

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// Gives the engine a request that it did not know, sent at its time of arrival. Returns its id. Requests are given
    /// in order of time.
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

    /// Ends a request before its end, between two steps (vLLM's `finish_requests`, as for a client that has left). Its
    /// tokens in a step in flight are dropped. Does nothing if it has ended.
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
