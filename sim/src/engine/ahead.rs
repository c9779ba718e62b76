//! The state between two steps if drafts are made at the end of a step: the drafts that the next step will verify, and
//! the tokens that the device has sampled but that the host has not read yet.

use super::held::HeldDrafts;
use super::next_batch::{DeviceBatch, NextBatch};
use crate::drafts::Drafts;
use crate::executor::Chunk;
use crate::policy::BatchView;
use crate::time::Time;
use crate::workload::{RequestId, Workload};

/// The drafts between two steps, and the tokens that the device has sampled.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The drafts to verify next.
    pub(super) held: Box<HeldDrafts>,
    /// Buffer for drafts while they are made.
    pub(super) fresh: Box<HeldDrafts>,
    /// The requests for which the drafter drafts at the end of the step.
    pub(super) next: NextBatch,
    /// The token counts, as the device has them, of the requests that run or for which drafts are made.
    pub(super) device: DeviceBatch,
    /// Number of output tokens that the device has sampled for each request, by request id.
    pub(super) sampled: Vec<u32>,
}

/// How the drafts that a step verifies were made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verifies {
    /// How long the device took to make the drafts.
    pub drafting: Time,
    /// Whether the drafter selected which drafts are verified.
    pub trimmed: bool,
    /// Whether the target pass has all scheduled tokens of each request: its drafts, or padding in place of missing
    /// drafts.
    pub padded: bool,
}

impl Ahead {
    pub(super) fn new(requests: usize) -> Ahead {
        Ahead { sampled: vec![0; requests], ..Ahead::default() }
    }

    /// Makes room for `requests` requests, because the workload has grown.
    pub(super) fn make_room(&mut self, requests: usize) {
        self.sampled.resize(requests, 0);
    }

    /// Moves the drafts of a batch's requests to `drafts`, and stores how many tokens of each request the device has.
    pub(super) fn take(&mut self, batch: &BatchView, workload: &Workload, drafts: &mut Drafts) -> Verifies {
        self.held.take(batch, drafts);
        self.device.fill(batch.ids, &workload.prompt_len, &self.sampled);
        let (drafting, trimmed) = (self.held.time, self.held.trimmed);
        // If the drafter selects, the slots of drafts that are not verified are given back, so nothing is padded.
        Verifies { drafting, trimmed, padded: !trimmed }
    }

    /// Counts the tokens that a target pass samples. Each request of `ids` gets its accepted drafts and one more token.
    /// Each prompt that ends gets one token.
    pub(super) fn sample(&mut self, ids: &[RequestId], accepted: &[u32], chunks: &[Chunk]) {
        for (&id, &accepted) in ids.iter().zip(accepted) {
            self.sampled[id as usize] += 1 + accepted;
        }
        for chunk in chunks.iter().filter(|chunk| chunk.last) {
            self.sampled[chunk.request as usize] += 1;
        }
    }
}
