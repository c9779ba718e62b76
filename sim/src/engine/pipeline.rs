//! Steps in flight (queued, output not yet taken) and the drafts that wait to be verified.

use super::ahead::{Ahead, Verifies};
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
    /// When the step's tokens are ready for the host.
    pub(super) ready: Time,
    /// When the device was asked which KV had come from other engines.
    pub(super) asked: Time,
    /// How the drafts that this step verifies were made.
    pub(super) verifies: Verifies,
    /// Whether the step runs any tokens.
    pub(super) runs: bool,
}

/// The steps in flight, the drafts that wait, and the ends of requests that are not reported yet.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    /// Steps in flight, oldest first.
    pub(super) queue: VecDeque<Box<InFlight>>,
    /// Steps whose output was taken, reused as buffers.
    #[allow(clippy::vec_box, reason = "boxes go to the queue and come back")]
    pub(super) spare: Vec<Box<InFlight>>,
    /// How many steps may be queued at once.
    pub(super) room: usize,
    /// The drafts between two steps.
    pub(super) ahead: Ahead,
    /// Requests that have ended, in this order, and whose end the drafter does not yet know. A step in flight may still
    /// have them.
    pub(super) untold_ends: Vec<RequestId>,
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
        Pipeline { room, ahead: Ahead::new(requests), ..Pipeline::default() }
    }

    /// Drops the drafts that a request holds.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.ahead.held.forget(id);
    }

    /// Notes that a request has ended, and drops the drafts that it holds.
    pub(super) fn ended(&mut self, id: RequestId) {
        self.ahead.held.forget(id);
        self.untold = true;
    }
}
