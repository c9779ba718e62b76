//! The trace of one step of a run on a real clock: the times of the step's parts, and the acceptance that the step
//! revealed.

use crate::executor::{Chunk, Moment};
use crate::latency::PassShape;
use crate::time::Time;
use crate::workload::RequestId;
use serde::{Deserialize, Serialize};

/// The activity that a mark records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkKind {
    /// An iteration of the engine's loop began (an instant).
    Round,
    /// The engine waited for a request to arrive.
    Wait,
    /// The scheduler had decided a step (an instant). Recorded only with a drafter.
    Scheduled,
    /// A policy had decided (an instant).
    Decided(Moment),
    /// The draft pass with this number ran. The number is 0 for a pass that drafts nothing.
    Draft(u32),
    /// The target pass ran.
    Verify,
    /// A step was given to the [`Recorder`]. A server would not do this, so replays leave this mark out.
    Recorded,
}

/// The time of one activity. Time between two marks is host time: scheduling, deciding, and processing the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The activity.
    pub kind: MarkKind,
    /// When the activity began.
    pub begin: Time,
    /// When the activity ended.
    pub end: Time,
    /// For a pass: how long the device computed, by the device's own clock if the device has one.
    pub device: Time,
    /// For a pass: its shape by the arithmetic of [`crate::shape`]. It is assumed that the target reads each request's
    /// context once.
    pub shape: PassShape,
}

/// The round of one decode request in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Id of the request.
    pub request: RequestId,
    /// Output position at which the round starts: the number of output tokens that the request had emitted before.
    pub start: u32,
    /// Tokens in the target's KV before the round.
    pub context: u32,
    /// Number of drafted tokens. For a tree, its depth.
    pub drafted: u32,
    /// Number of drafted tokens to verify. For a tree, the depth of its deepest node to verify.
    pub verified: u32,
    /// Number of draft tokens accepted.
    pub accepted: u32,
    /// Number of nodes of the round's tree; 0 for a chain.
    pub nodes: u32,
}

/// A node of a drafted tree. The tree's shape follows from parents and ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedNode {
    /// Index of the node's parent in the tree; [`crate::tree::ROOT`] at depth 1.
    pub parent: u32,
    /// The node's rank among the draft's guesses below the same parent, from 1.
    pub rank: u32,
    /// The draft's probability of the node's token.
    pub confidence: f64,
    /// Whether the node was verified.
    pub kept: bool,
    /// Whether the node was accepted.
    pub accepted: bool,
}

/// The record of one step. In each column the entries of all rounds follow one another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTrace {
    /// Index of the step.
    pub step: u64,
    /// The activities since the step before, in order.
    pub marks: Vec<Mark>,
    /// Requests in the running list.
    pub num_running: u32,
    /// Requests waiting.
    pub num_waiting: u32,
    /// The prefill chunks.
    pub chunks: Vec<Chunk>,
    /// The rounds of the decode requests.
    pub rounds: Vec<Round>,
    /// The draft's probability of each token of each chain, chain after chain.
    pub confidence: Vec<f32>,
    /// The entropy, in nats, of the distribution from which each token of each chain was drafted. Empty if no policy
    /// reads entropies.
    pub entropy: Vec<f64>,
    /// KL(target ‖ draft), in nats, at the first min(verified, accepted + 1) positions of each chain. Empty if no
    /// policy reads divergences.
    pub divergence: Vec<f64>,
    /// The nodes of all trees, tree after tree.
    pub nodes: Vec<TracedNode>,
}

impl StepTrace {
    /// Empties all columns; their buffers are reused. The step's index and its counts of requests stay.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.chunks.clear();
        self.rounds.clear();
        self.confidence.clear();
        self.entropy.clear();
        self.divergence.clear();
        self.nodes.clear();
    }

    /// Host time of the step: all time since the end of the step before that belongs to no mark. `last_end` is the end
    /// of that step (its last [`Verify`](MarkKind::Verify)). Host time includes processing the output of the step
    /// before, scheduling and deciding.
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

/// Receives the steps of a live run while the run goes on. Its calls are inside the measured loop, so they must be
/// fast.
pub trait Recorder: Send {
    /// Called when a step has ended. After the last step there may be one more call without a pass, for the marks after
    /// that step.
    fn step(&mut self, step: &StepTrace);

    /// Called when a request has ended with this output.
    fn ended(&mut self, _id: RequestId, _output: &[u32]) {}
}

/// A recorder that discards every step.
impl Recorder for () {
    fn step(&mut self, _: &StepTrace) {}
}

/// A recorder that keeps every step, for tests and short runs.
impl Recorder for Vec<StepTrace> {
    fn step(&mut self, step: &StepTrace) {
        self.push(step.clone());
    }
}
