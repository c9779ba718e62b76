//! The trace of one step of a run on a real clock: the times of the step's activities (passes, decisions, waits), and
//! the acceptance that the step revealed.

use crate::executor::{Chunk, Moment};
use crate::latency::PassShape;
use crate::time::Time;
use crate::workload::RequestId;
use serde::{Deserialize, Serialize};

/// What the engine or the device did in a recorded span of time (a mark).
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
    /// A finished step was given to the [`Recorder`]. A server would not do this, so replays leave this mark out.
    Recorded,
}

/// The times of one activity of the engine or the device. Time between two marks is host time: scheduling, deciding,
/// and processing the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// What the engine or the device did in this time, such as a pass.
    pub kind: MarkKind,
    /// When the activity began.
    pub begin: Time,
    /// When the activity ended.
    pub end: Time,
    /// For a pass: how long the device computed, by the device's own clock if the device has one.
    pub device: Time,
    /// For a pass: how many tokens it processed and how many KV tokens it read (its shape), by the arithmetic of
    /// [`crate::shape`]. It is assumed that the target reads each request's context once.
    pub shape: PassShape,
}

/// The round of one decode request: its draft tokens of one step, and how many were verified and accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Id of the request.
    pub request: RequestId,
    /// Output position of the first draft token: the number of output tokens that the request had emitted before.
    pub start: u32,
    /// Number of the request's tokens in the target's KV before the step.
    pub context: u32,
    /// Number of tokens drafted for the request in the step. For a tree, its depth.
    pub drafted: u32,
    /// Number of drafted tokens to verify. For a tree, the depth of its deepest node to verify.
    pub verified: u32,
    /// Number of the request's draft tokens that the step accepted.
    pub accepted: u32,
    /// Number of nodes of the request's draft tree in this step; 0 for a chain.
    pub nodes: u32,
}

/// A node of a drafted tree. The tree's shape follows from parents and ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedNode {
    /// Index of the node's parent in the tree; [`crate::tree::ROOT`] at depth 1.
    pub parent: u32,
    /// The node's rank among the draft model's guesses below the same parent, from 1.
    pub rank: u32,
    /// The draft model's probability of the node's token.
    pub confidence: f64,
    /// Whether the policy kept the node, so that the target verified it.
    pub kept: bool,
    /// Whether the target accepted the node's token.
    pub accepted: bool,
}

/// The record of one step. A list of values of draft tokens, such as `confidence`, has the values of the first
/// request's draft tokens, then the values of the second request's draft tokens, and so on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTrace {
    /// Index of the step.
    pub step: u64,
    /// The activities (passes, decisions, waits) since the end of the previous step, in order of time, each with its
    /// times.
    pub marks: Vec<Mark>,
    /// Number of requests in the running list.
    pub num_running: u32,
    /// Number of waiting requests.
    pub num_waiting: u32,
    /// The prefill chunks of the step's target pass.
    pub chunks: Vec<Chunk>,
    /// For each decode request of the step: how many tokens were drafted, verified and accepted.
    pub rounds: Vec<Round>,
    /// The draft model's probability of each token of each chain, chain after chain.
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

    /// Host time of the step: the time before and between its recorded activities (passes, decisions, waits) in which
    /// no activity ran. It counts from `last_end`, the end of the previous step (of its last
    /// [`Verify`](MarkKind::Verify)). In this time the host processes the output of the previous step, schedules and
    /// decides.
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
    /// Called when a step has ended. After the last step there may be one more call, without a pass, for the activities
    /// after that step.
    fn step(&mut self, step: &StepTrace);

    /// Called when request `_id` has ended. `_output` has the ids of its output tokens.
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
