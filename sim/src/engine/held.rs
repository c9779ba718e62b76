//! The drafts that requests hold between two steps, until a step verifies them. In that step the requests may be in
//! another order, and some may be absent.

use super::next_batch::NextBatch;
use crate::drafts::Drafts;
use crate::policy::{BatchView, DraftPlan};
use crate::time::Time;
use crate::workload::RequestId;

/// The id in a row whose drafts were taken out or will not be verified.
const GONE: RequestId = RequestId::MAX;

/// The drafts that were made at the end of a step, a row for each request.
#[derive(Debug, Default)]
pub struct HeldDrafts {
    /// The request of each row.
    ids: Vec<RequestId>,
    /// The planned shape and lengths of the drafts.
    pub plan: DraftPlan,
    /// The drafts.
    pub drafts: Drafts,
    /// Whether the drafter selected which drafts are verified.
    pub trimmed: bool,
    /// How long the device took to make the drafts.
    pub time: Time,
    /// The row of each request, by id. An entry is valid only if `ids` has the request in that row.
    row: Vec<u32>,
}

impl HeldDrafts {
    /// Empties the rows, and begins new ones for the requests of batch `next` with at most `max_draft_len` drafts each.
    /// `requests` is the number of requests of the workload.
    pub fn begin(&mut self, next: &NextBatch, requests: usize, max_draft_len: u32) {
        self.ids.clear();
        self.ids.extend_from_slice(next.ids());
        self.row.resize(requests, 0);
        for (row, &id) in self.ids.iter().enumerate() {
            self.row[id as usize] = row as u32;
        }
        self.plan.reset(next.ids().len());
        self.drafts.reset(next.ids().len(), max_draft_len);
        self.drafts.want(crate::drafts::Wants::default());
        (self.time, self.trimmed) = (Time::ZERO, false);
    }

    fn row_of(&self, id: RequestId) -> Option<usize> {
        let row = *self.row.get(id as usize)? as usize;
        (self.ids.get(row) == Some(&id)).then_some(row)
    }

    /// Drops the drafts of a request, because it was preempted or has ended.
    pub fn forget(&mut self, id: RequestId) {
        if let Some(row) = self.row_of(id) {
            self.ids[row] = GONE;
        }
    }

    /// Moves the drafts of the requests of a batch to `drafts`, in the order of the batch. Drops drafts beyond each
    /// request's limit.
    pub fn take(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        if self.ids == batch.ids {
            std::mem::swap(&mut self.drafts, drafts);
            self.drafts.reset(0, drafts.max_draft_len());
            self.ids.clear();
        } else {
            drafts.begin_copy(&self.drafts, batch.len());
            for (i, &id) in batch.ids.iter().enumerate() {
                if let Some(row) = self.row_of(id) {
                    drafts.copy_row(i, &mut self.drafts, row);
                    self.ids[row] = GONE;
                }
            }
        }
        drafts.begin_verification(batch.limit);
    }

    /// Takes over the drafts in `before` of requests that have no drafts here, because the step left these requests
    /// out. Empties `before`.
    pub fn keep(&mut self, before: &mut HeldDrafts) {
        for row in 0..before.ids.len() {
            let id = before.ids[row];
            if id != GONE && self.row_of(id).is_none() {
                self.row[id as usize] = self.ids.len() as u32;
                self.drafts.push_row(&mut before.drafts, row);
                self.ids.push(id);
            }
        }
        before.ids.clear();
    }
}
