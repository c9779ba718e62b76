//! The state between two steps if draft tokens are made at the end of a step: the draft tokens that the next step will
//! verify, and the tokens that the device has sampled but that the host has not read yet.

use super::held::HeldDrafts;
use super::next_batch::{DeviceBatch, NextBatch};
use crate::drafts::Drafts;
use crate::executor::Chunk;
use crate::policy::BatchView;
use crate::time::Time;
use crate::workload::{RequestId, Workload};

/// The data that is kept between two steps if draft tokens are made at the end of a step: the draft tokens that the
/// next step will verify, and the numbers of tokens that the device has sampled.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The draft tokens that were made at the end of a step, and that the next step of their requests will verify.
    pub(super) held: Box<HeldDrafts>,
    /// Buffer for the draft tokens that the draft passes at the end of the current step make.
    pub(super) fresh: Box<HeldDrafts>,
    /// The requests for which the drafter makes draft tokens at the end of the step.
    pub(super) next: NextBatch,
    /// The token counts, as the device has them, of the requests that run or for which draft tokens are made.
    pub(super) device: DeviceBatch,
    /// Number of output tokens that the device has sampled for each request, by request id.
    pub(super) sampled: Vec<u32>,
}

/// How the draft tokens that a step verifies were made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verifies {
    /// How long the device took to make the draft tokens that the step verifies.
    pub drafting: Time,
    /// Whether the drafter decided which of the draft tokens are verified. If false, all draft tokens are verified.
    pub trimmed: bool,
    /// Whether the target pass has a place for every scheduled token of each request. A request that has fewer draft
    /// tokens than were scheduled then gets padding in their place.
    pub padded: bool,
}

impl Ahead {
    pub(super) fn new(requests: usize) -> Ahead {
        Ahead { sampled: vec![0; requests], ..Ahead::default() }
    }

    /// Makes room for the token counts of `requests` requests, because the workload has grown.
    pub(super) fn make_room(&mut self, requests: usize) {
        self.sampled.resize(requests, 0);
    }

    /// Sets the number of output tokens that the device has sampled for an ended request back to 0, so that another
    /// request can take its id.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.sampled[id as usize] = 0;
    }

    /// Forgets what the device has sampled for a request beyond its first `read` output tokens.
    pub(super) fn drop_unread(&mut self, id: RequestId, read: u32) {
        if let Some(sampled) = self.sampled.get_mut(id as usize) {
            *sampled = read;
        }
    }

    /// Moves the held draft tokens of the batch's requests to `drafts`, and stores the token counts of these requests
    /// as the device has them.
    pub(super) fn take(&mut self, batch: &BatchView, workload: &Workload, drafts: &mut Drafts) -> Verifies {
        self.held.take(batch, drafts);
        self.device.fill(batch.ids, &workload.prompt_len, &self.sampled);
        let (drafting, trimmed) = (self.held.time, self.held.trimmed);
        // If the drafter decided which draft tokens are verified, the dropped draft tokens take no place in the target
        // pass, so nothing is padded.
        Verifies { drafting, trimmed, padded: !trimmed }
    }

    /// Counts the tokens that a target pass samples. Each request of `ids` gets its accepted draft tokens and one more
    /// token. Each prompt that ends gets one token.
    pub(super) fn sample(&mut self, ids: &[RequestId], accepted: &[u32], chunks: &[Chunk]) {
        for (&id, &accepted) in ids.iter().zip(accepted) {
            self.sampled[id as usize] += 1 + accepted;
        }
        for chunk in chunks.iter().filter(|chunk| chunk.last) {
            self.sampled[chunk.request as usize] += 1;
        }
    }
}
