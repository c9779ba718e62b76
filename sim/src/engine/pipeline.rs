//! Steps in flight: what was queued and whose output has not been taken, and the drafts that wait to be verified.

use super::held::HeldDrafts;
use super::next_batch::{DeviceBatch, NextBatch};
use super::scheduler::{Order, Rules};
use super::scheduler_output::SchedulerOutput;
use super::spec_decode::SpecDecode;
use crate::metrics::StepRecord;
use crate::time::Time;
use crate::workload::RequestId;
use std::collections::VecDeque;

/// A step that was queued and whose output has not been taken.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    pub(super) output: Box<SchedulerOutput>,
    pub(super) spec: SpecDecode,
    pub(super) record: StepRecord,
    /// When its tokens are there.
    pub(super) ready: Time,
    /// What the device took for the drafts that it verifies.
    pub(super) drafting: Time,
    /// Does it run anything?
    pub(super) runs: bool,
    /// Did the drafter select what is verified?
    pub(super) trimmed: bool,
}

/// What lasts from step to step.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    /// Steps in flight, oldest first.
    pub(super) queue: VecDeque<Box<InFlight>>,
    /// Buffers to use again.
    #[allow(clippy::vec_box, reason = "boxes go to the queue and come back")]
    pub(super) spare: Vec<Box<InFlight>>,
    /// The steps that may be queued.
    pub(super) room: usize,
    /// Drafts to be verified, and buffers for those after them.
    pub(super) held: Box<HeldDrafts>,
    pub(super) fresh: Box<HeldDrafts>,
    pub(super) next: NextBatch,
    /// Where the requests of the batch that is run or drafted for stand on the device.
    pub(super) device: DeviceBatch,
    /// Output tokens of each request that the device has sampled.
    pub(super) sampled: Vec<u32>,
    /// Have requests ended since the scheduler was called? It is called once more to tell of them.
    pub(super) untold: bool,
    /// When the last output was taken.
    pub(super) last_end: Time,
}

impl Pipeline {
    pub(super) fn new(rules: &Rules, requests: usize) -> Pipeline {
        let room = match rules.order {
            Order::StepStart => return Pipeline::default(),
            Order::StepEnd => 1,
            Order::Async => 2,
        };
        Pipeline { room, sampled: vec![0; requests], ..Pipeline::default() }
    }

    /// A request lost its drafts.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.held.forget(id);
    }

    /// A request has ended.
    pub(super) fn ended(&mut self, id: RequestId) {
        self.held.forget(id);
        self.untold = true;
    }
}
