//! The categories of requests, for the scheduler and for policies.

use crate::workload::RequestId;

/// The category of each request (chat, code, documents), as the request's own label says.
///
/// The table has the categories of a whole workload, by request id. A policy reads only the categories of the requests
/// in its batch ([`BatchView::category`](crate::BatchView::category)), so it learns nothing of requests that have not
/// arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Categories<'a> {
    by_id: &'a [u16],
}

impl<'a> Categories<'a> {
    /// Makes the table from `by_id`, which has the category of each request at the index of the request's id. `by_id`
    /// is empty if the workload has no categories.
    pub const fn by_id(by_id: &'a [u16]) -> Self {
        Categories { by_id }
    }

    /// The category of a request: an index into the workload's list of categories. `None` if the workload has no
    /// categories.
    pub(crate) fn of(self, id: RequestId) -> Option<u16> {
        self.by_id.get(id as usize).copied()
    }
}
