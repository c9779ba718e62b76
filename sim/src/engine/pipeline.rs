//! Steps in flight (queued on the device, output not yet taken), and the draft tokens that wait for verification.

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
    /// When the host asked the device which KV had arrived from other engines.
    pub(super) asked: Time,
    /// How the draft tokens that this step verifies were made: the time for making them, and whether only a part of
    /// them is verified.
    pub(super) verifies: Verifies,
    /// Whether the step runs at least one token.
    pub(super) runs: bool,
}

/// The steps in flight, the draft tokens between two steps, and the ended requests whose end is not reported yet.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    /// Steps in flight, oldest first.
    pub(super) queue: VecDeque<Box<InFlight>>,
    /// Steps whose output the host has taken. They are kept so that later steps reuse their buffers.
    #[allow(clippy::vec_box, reason = "boxes go to the queue and come back")]
    pub(super) spare: Vec<Box<InFlight>>,
    /// How many steps may be queued on the device at once: 1, or 2 with async scheduling.
    pub(super) room: usize,
    /// The draft tokens that were made at the end of a step and that the next step will verify.
    pub(super) ahead: Ahead,
    /// Ended requests, in order of their ends, whose end was not reported to the drafter yet. A step in flight may
    /// still contain them.
    pub(super) untold_ends: Vec<RequestId>,
    /// Whether requests have finished since the last call of the scheduler. vLLM calls the scheduler once more to
    /// report such requests, even if no other work is left.
    pub(super) untold: bool,
    /// When the host took the output of the step that ended last.
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

    /// Drops the draft tokens that a request holds.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.ahead.held.forget(id);
    }

    /// Notes that a request has ended, so that its end is reported to the drafter, and drops the draft tokens that the
    /// request holds.
    pub(super) fn ended(&mut self, id: RequestId) {
        self.ahead.held.forget(id);
        self.untold = true;
    }
}
