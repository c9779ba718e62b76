//! The ids of requests that come while the engine runs. If the engine forgets ended requests, later requests take the
//! ids of ended requests, so that no list by id grows with the number of ended requests.

use crate::workload::RequestId;
use std::collections::VecDeque;

/// The ids of the requests that came while the engine runs.
#[derive(Debug, Default)]
pub(super) struct Ids {
    /// Number of requests that have come since the engine started, forgotten requests included.
    count: RequestId,
    /// Number of different ids that requests have had so far, ids that are free now included.
    ids: RequestId,
    /// Whether the engine forgets ended requests.
    forgets: bool,
    /// Ended requests that no step in flight contains and whose end was reported to the drafter, in the order of their
    /// ends.
    settled: VecDeque<RequestId>,
    /// Ids of requests that have ended and that the engine has forgotten. New requests take these ids first.
    free: Vec<RequestId>,
}

impl Ids {
    /// From now on the engine forgets ended requests.
    pub(super) fn be_forgetful(&mut self) {
        self.forgets = true;
    }

    /// The id and the number of a new request. The id may have belonged to an earlier request that was forgotten.
    /// Numbers count all requests that came, and begin again after 2^32 requests.
    pub(super) fn take(&mut self) -> (RequestId, RequestId) {
        let number = self.count;
        self.count = self.count.wrapping_add(1);
        let id = self.free.pop().unwrap_or_else(|| {
            self.ids += 1;
            self.ids - 1
        });
        (id, number)
    }

    /// Notes that requests `ids` have ended, that no step in flight contains them, and that the drafter knows of their
    /// end.
    #[inline]
    pub(super) fn settle(&mut self, ids: &[RequestId]) {
        if self.forgets {
            self.note(ids);
        }
    }

    #[inline(never)]
    fn note(&mut self, ids: &[RequestId]) {
        self.settled.extend(ids);
    }

    /// Takes the oldest request out of the list of ended requests that no step in flight contains and whose end was
    /// reported to the drafter.
    pub(super) fn next_settled(&mut self) -> Option<RequestId> {
        self.settled.pop_front()
    }

    /// Lets a later request take the id of a request that the engine has forgotten.
    pub(super) fn free(&mut self, id: RequestId) {
        self.free.push(id);
    }
}
