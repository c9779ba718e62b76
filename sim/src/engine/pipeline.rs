//! Steps in flight (queued, output not yet taken) and the drafts that wait to be verified.

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
    /// When its tokens are ready.
    pub(super) ready: Time,
    /// How long the device took for the drafts that this step verifies.
    pub(super) drafting: Time,
    /// Whether the step runs any tokens.
    pub(super) runs: bool,
    /// Whether the drafter selected which drafts are verified.
    pub(super) trimmed: bool,
}

/// The state that lasts from step to step.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    /// Steps in flight, oldest first.
    pub(super) queue: VecDeque<Box<InFlight>>,
    /// Buffers for reuse.
    #[allow(clippy::vec_box, reason = "boxes go to the queue and come back")]
    pub(super) spare: Vec<Box<InFlight>>,
    /// How many steps may be queued.
    pub(super) room: usize,
    /// The drafts to verify next, and buffers for the drafts after them.
    pub(super) held: Box<HeldDrafts>,
    pub(super) fresh: Box<HeldDrafts>,
    pub(super) next: NextBatch,
    /// The state on the device of the requests that run or are drafted for.
    pub(super) device: DeviceBatch,
    /// Number of output tokens of each request that the device has sampled.
    pub(super) sampled: Vec<u32>,
    /// Whether requests have ended since the last scheduler call. One more call is needed to report them.
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

    /// Drops the drafts of a request.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.held.forget(id);
    }

    /// Notes that a request has ended.
    pub(super) fn ended(&mut self, id: RequestId) {
        self.held.forget(id);
        self.untold = true;
    }
}
