//! The draft tokens that requests hold between two steps, until a later step verifies them. In that later step the
//! requests may be in another order, and some may be absent.

use super::next_batch::NextBatch;
use crate::drafts::Drafts;
use crate::policy::{BatchView, DraftPlan};
use crate::time::Time;
use crate::workload::RequestId;

/// Marks a row of the table of held draft tokens as empty, in place of a request id: the row's draft tokens were taken
/// out or will not be verified.
const GONE: RequestId = RequestId::MAX;

/// The draft tokens that were made at the end of a step and that a later step verifies: a table with one row for each
/// request.
#[derive(Debug, Default)]
pub struct HeldDrafts {
    /// Id of the request in each row of this table of held draft tokens.
    ids: Vec<RequestId>,
    /// Whether the draft tokens form chains (one guess for each position) or trees, and the draft length that the
    /// policy planned for each request.
    pub plan: DraftPlan,
    /// The draft tokens of each request, in the order of `ids`.
    pub drafts: Drafts,
    /// Whether the drafter decided which of the draft tokens are verified. If false, all draft tokens are verified.
    pub trimmed: bool,
    /// How long the device took to make the draft tokens.
    pub time: Time,
    /// For each request, by id: its row in this table of held draft tokens. An entry is valid only if `ids` has the
    /// request in that row.
    row: Vec<u32>,
}

impl HeldDrafts {
    /// Empties the table of held draft tokens, and begins a row for each request of batch `next`, with at most
    /// `max_draft_len` draft tokens. `requests` is the number of requests of the workload.
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

    /// Drops the draft tokens of a request, because it was preempted or has ended.
    pub fn forget(&mut self, id: RequestId) {
        if let Some(row) = self.row_of(id) {
            self.ids[row] = GONE;
        }
    }

    /// Moves the held draft tokens of the requests in `batch` to `drafts`, in the order of `batch`. Drops draft tokens
    /// beyond each request's limit.
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

    /// Moves rows from `before`, the table of draft tokens that an earlier step made, to this table. Only requests
    /// without a row in this table are moved: the newest step made no draft tokens for them. Empties `before`.
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
