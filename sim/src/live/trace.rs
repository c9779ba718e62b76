//! The trace of one step of a run on a real clock: the times of its parts, and the acceptance that it revealed.

use crate::executor::{Chunk, Moment};
use crate::latency::PassShape;
use crate::time::Time;
use crate::workload::RequestId;
use serde::{Deserialize, Serialize};

/// The activity that a mark records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkKind {
    /// An iteration of the engine's loop began; an instant.
    Round,
    /// The engine waited for an arrival.
    Wait,
    /// The scheduler had decided a step; an instant. Only with a drafter.
    Scheduled,
    /// A policy had decided; an instant.
    Decided(Moment),
    /// A draft pass with this number ran; 0 for a pass that drafts nothing.
    Draft(u32),
    /// The target pass ran.
    Verify,
    /// A step was given to the [`Recorder`]. A server would not do this, and replays leave it out.
    Recorded,
}

/// The time of one activity. The time between marks is host time: scheduling, deciding, committing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The activity.
    pub kind: MarkKind,
    /// When it began.
    pub begin: Time,
    /// When it ended.
    pub end: Time,
    /// For a pass: how long the device computed, by the device's own clock if it has one.
    pub device: Time,
    /// For a pass: its shape by the arithmetic of [`crate::shape`], where the target reads context once a request.
    pub shape: PassShape,
}

/// The round of one decode request in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Id of the request.
    pub request: RequestId,
    /// Output tokens emitted before the round: the output position where it starts.
    pub start: u32,
    /// Tokens in the target's KV before the round.
    pub context: u32,
    /// Number of tokens drafted (for a tree, its depth).
    pub drafted: u32,
    /// Number of drafted tokens to verify (for a tree, their depth).
    pub verified: u32,
    /// Number of draft tokens accepted.
    pub accepted: u32,
    /// Number of nodes of the round's tree; 0 for a chain.
    pub nodes: u32,
}

/// A node of a drafted tree. The tree's shape follows from parents and ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedNode {
    /// Index of its parent in the tree, or [`crate::tree::ROOT`].
    pub parent: u32,
    /// Rank among the draft's guesses for its siblings, from 1.
    pub rank: u32,
    /// The draft's probability of the node's token.
    pub confidence: f64,
    /// Whether the node was verified.
    pub kept: bool,
    /// Whether the node was accepted.
    pub accepted: bool,
}

/// The record of one step. Columns hold the entries of the rounds one after another.
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
    /// The draft's probability of each token of each chain.
    pub confidence: Vec<f32>,
    /// The entropy, nats, of the distribution that each token of each chain was drafted from, if a policy reads
    /// entropies.
    pub entropy: Vec<f64>,
    /// KL(target ‖ draft), nats, if a policy reads divergences: of each chain the first min(verified, accepted + 1)
    /// positions.
    pub divergence: Vec<f64>,
    /// The nodes of the trees.
    pub nodes: Vec<TracedNode>,
}

impl StepTrace {
    /// Empties all columns and keeps their buffers. The step's index and its counts of requests stay.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.chunks.clear();
        self.rounds.clear();
        self.confidence.clear();
        self.entropy.clear();
        self.divergence.clear();
        self.nodes.clear();
    }

    /// Host time of the step, from the end of the step before (its last [`Verify`](MarkKind::Verify)): the time between
    /// passes, waits and recording. It includes the commit of the step before, scheduling and deciding.
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

/// Receives the steps of a live run while it runs. It is called inside the measured loop, so it must be fast.
pub trait Recorder: Send {
    /// Called when a step has ended. At the end of a run there may be one more step without a pass, for the marks after
    /// the last step.
    fn step(&mut self, step: &StepTrace);

    /// Called when a request has ended with this output.
    fn ended(&mut self, _id: RequestId, _output: &[u32]) {}
}

/// Discards every step.
impl Recorder for () {
    fn step(&mut self, _: &StepTrace) {}
}

/// Keeps every step, for tests and short runs.
impl Recorder for Vec<StepTrace> {
    fn step(&mut self, step: &StepTrace) {
        self.push(step.clone());
    }
}
