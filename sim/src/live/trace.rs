//! One step of a run on a real clock: when what happened, and what it revealed.

use crate::executor::{Chunk, Moment};
use crate::latency::PassShape;
use crate::time::Time;
use crate::workload::RequestId;
use serde::{Deserialize, Serialize};

/// What a mark is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkKind {
    /// A round of the engine's loop began; an instant.
    Round,
    /// The engine waited for an arrival.
    Wait,
    /// The scheduler was done with a step; an instant. Only where there is a drafter.
    Scheduled,
    /// A policy had decided; an instant.
    Decided(Moment),
    /// A draft pass ran; its number, 0 for one that drafts nothing.
    Draft(u32),
    /// The target pass ran.
    Verify,
    /// A step was handed to the [`Recorder`]. What a server would not do, and part of no replay.
    Recorded,
}

/// When something happened. The time between marks is the host's: scheduling, deciding, committing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// What.
    pub kind: MarkKind,
    /// From when on.
    pub begin: Time,
    /// Until when.
    pub end: Time,
    /// Of a pass: the part of it that the device was computing, by the device's own clock where it has one.
    pub device: Time,
    /// Of a pass: its shape, by the arithmetic of [`crate::shape`], the target reading context once a request.
    pub shape: PassShape,
}

/// One decode request's round of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// The request.
    pub request: RequestId,
    /// Output tokens emitted before it: the output position where the round starts.
    pub start: u32,
    /// Tokens in the target's KV before it.
    pub context: u32,
    /// Tokens drafted (a tree's depth).
    pub drafted: u32,
    /// Of those, to verify (a tree's depth).
    pub verified: u32,
    /// Draft tokens accepted.
    pub accepted: u32,
    /// Nodes of its tree; 0 for a chain.
    pub nodes: u32,
}

/// A node of a drafted tree. The tree's shape follows from parents and ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedNode {
    /// Index of its parent in the tree, or [`crate::tree::ROOT`].
    pub parent: u32,
    /// Which guess of the draft it is among its siblings, from 1.
    pub rank: u32,
    /// The draft's probability of it.
    pub confidence: f64,
    /// Was it verified?
    pub kept: bool,
    /// Was it accepted?
    pub accepted: bool,
}

/// Everything about one step. Columns hold the rounds' entries one after another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTrace {
    /// Index of the step.
    pub step: u64,
    /// When what happened since the step before, in order.
    pub marks: Vec<Mark>,
    /// Requests in the running list.
    pub num_running: u32,
    /// Requests waiting.
    pub num_waiting: u32,
    /// The prefill chunks.
    pub chunks: Vec<Chunk>,
    /// The decode requests.
    pub rounds: Vec<Round>,
    /// The draft's probability of each token of each chain.
    pub confidence: Vec<f32>,
    /// The entropy behind each token of each chain, where a policy looked at it; nats.
    pub entropy: Vec<f64>,
    /// KL(target ‖ draft), where a policy looked at it: of each chain the first min(verified, accepted + 1) positions; nats.
    pub divergence: Vec<f64>,
    /// The nodes of the trees.
    pub nodes: Vec<TracedNode>,
}

impl StepTrace {
    /// Empties it. Keeps its buffers.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.chunks.clear();
        self.rounds.clear();
        self.confidence.clear();
        self.entropy.clear();
        self.divergence.clear();
        self.nodes.clear();
    }

    /// Host time of the step, from the end of the step before (its last [`Verify`](MarkKind::Verify)) on: what lies between
    /// passes, waits and recording, so the commit of the step before, scheduling and deciding.
    pub fn host(&self, last_end: Time) -> Time {
        let mut at = last_end;
        let mut host = Time::ZERO;
        for mark in &self.marks {
            host += mark.begin.saturating_sub(at);
            at = mark.end;
        }
        host
    }
}

/// Who is told of a live run while it goes. Called in the loop that is measured: it must be quick.
pub trait Recorder: Send {
    /// A step has ended. At the end of a run there may be one more without a pass, for the marks after the last step.
    fn step(&mut self, step: &StepTrace);

    /// A request has ended with this output.
    fn ended(&mut self, _id: RequestId, _output: &[u32]) {}
}

/// Keeps nothing.
impl Recorder for () {
    fn step(&mut self, _: &StepTrace) {}
}

/// Keeps every step: for tests and short runs.
impl Recorder for Vec<StepTrace> {
    fn step(&mut self, step: &StepTrace) {
        self.push(step.clone());
    }
}
