//! The state between the end of a step, where drafts are made, and the step that verifies them: the drafts that wait,
//! and the tokens that the device has sampled and the host has not seen yet.

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
    /// Buffer for the drafts that are being made.
    pub(super) fresh: Box<HeldDrafts>,
    /// The requests to draft for.
    pub(super) next: NextBatch,
    /// The token counts on the device of the requests that run or are drafted for.
    pub(super) device: DeviceBatch,
    /// Number of output tokens of each request that the device has sampled.
    pub(super) sampled: Vec<u32>,
}

/// How the drafts that a step verifies were made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verifies {
    /// How long the device took to make the drafts.
    pub drafting: Time,
    /// Whether the drafter selected which drafts are verified.
    pub trimmed: bool,
    /// Whether the target pass runs over all scheduled tokens of each request, drafts or padding.
    pub padded: bool,
}

impl Ahead {
    pub(super) fn new(requests: usize) -> Ahead {
        Ahead { sampled: vec![0; requests], ..Ahead::default() }
    }

    /// Makes room for a workload of `requests` requests, which has grown.
    pub(super) fn make_room(&mut self, requests: usize) {
        self.sampled.resize(requests, 0);
    }

    /// Moves the drafts of a batch's requests to `drafts`, and notes the requests' token counts on the device.
    pub(super) fn take(&mut self, batch: &BatchView, workload: &Workload, drafts: &mut Drafts) -> Verifies {
        self.held.take(batch, drafts);
        self.device.fill(batch.ids, &workload.prompt_len, &self.sampled);
        let (drafting, trimmed) = (self.held.time, self.held.trimmed);
        // A drafter that selects gives back the slots of drafts that are not verified, so nothing is padded.
        Verifies { drafting, trimmed, padded: !trimmed }
    }

    /// Counts the tokens that a target pass samples: for each request of `ids` its accepted drafts and one more, and
    /// one for each prompt that ends.
    pub(super) fn sample(&mut self, ids: &[RequestId], accepted: &[u32], chunks: &[Chunk]) {
        for (&id, &accepted) in ids.iter().zip(accepted) {
            self.sampled[id as usize] += 1 + accepted;
        }
        for chunk in chunks.iter().filter(|chunk| chunk.last) {
            self.sampled[chunk.request as usize] += 1;
        }
    }
}
