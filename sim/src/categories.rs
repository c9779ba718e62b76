//! The categories of requests, as scheduler and policies read them.

use crate::workload::RequestId;

/// The category of each request, as a label of the request says it (chat, code, documents).
///
/// It has the categories of a whole workload by request id. A policy reads what its own batch has
/// ([`BatchView::category`](crate::BatchView::category)), so it learns nothing of requests that have not arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Categories<'a> {
    by_id: &'a [u16],
}

impl<'a> Categories<'a> {
    /// Categories by request id; empty if requests have none.
    pub const fn by_id(by_id: &'a [u16]) -> Self {
        Categories { by_id }
    }

    /// The category of a request; `None` if requests have none.
    pub(crate) fn of(self, id: RequestId) -> Option<u16> {
        self.by_id.get(id as usize).copied()
    }
}
