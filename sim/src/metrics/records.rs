//! One record a request, one (on demand) a step: raw facts, no statistics.

use crate::time::Time;

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Not ended: still waiting or running when the run stopped.
    #[default]
    InFlight,
    /// Emitted its whole output.
    Finished,
    /// Could never fit: prompt over `max_model_len`, over the budget without chunking, or over the KV pool.
    Rejected,
}

/// What happened to each request, indexed by request id. Columns of equal length.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RequestRecords {
    /// When it arrived.
    pub arrival: Vec<Time>,
    /// When it was first scheduled.
    pub first_scheduled: Vec<Time>,
    /// When its first output token was emitted.
    pub first_token: Vec<Time>,
    /// When its last output token was emitted, or when it was rejected.
    pub finish: Vec<Time>,
    /// Output tokens emitted (after the trim at the end).
    pub emitted: Vec<u32>,
    /// Decode steps with at least one verified draft.
    pub rounds: Vec<u32>,
    /// Draft tokens drafted.
    pub drafted: Vec<u32>,
    /// Draft tokens verified.
    pub verified: Vec<u32>,
    /// Draft tokens accepted (before the trim).
    pub accepted: Vec<u32>,
    /// Times it was preempted.
    pub preemptions: Vec<u32>,
    /// Prompt tokens found in the prefix cache on admission.
    pub cached_tokens: Vec<u32>,
    /// How it ended.
    pub outcome: Vec<Outcome>,
}

/// One step of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StepRecord {
    /// Index of the step, from 0.
    pub step: u64,
    /// Its start on the clock.
    pub start: Time,
    /// Its end.
    pub end: Time,
    /// Time in draft passes, and in deciding (`decision_s`).
    pub draft_time: Time,
    /// Time of the target pass, and of the host (`step_overhead_s`).
    pub verify_time: Time,
    /// Decode requests in it.
    pub batch_size: u32,
    /// Prefill chunks in it.
    pub chunks: u32,
    /// Prompt tokens in those chunks.
    pub chunk_tokens: u64,
    /// Tokens in KV of the decode requests.
    pub context: u64,
    /// Requests waiting after scheduling.
    pub waiting: u32,
    /// Draft forwards run; one at most where drafting is parallel.
    pub draft_passes: u32,
    /// Draft tokens drafted.
    pub drafted: u32,
    /// Draft tokens verified.
    pub verified: u32,
    /// Draft tokens accepted, before any trim.
    pub accepted: u32,
    /// Output tokens emitted, first tokens of prompts included.
    pub emitted: u32,
    /// KV blocks referenced by requests after scheduling.
    pub used_blocks: u32,
    /// Requests preempted while scheduling.
    pub preempted: u32,
}

impl RequestRecords {
    /// Empty records for `n` requests.
    pub fn new(n: usize) -> RequestRecords {
        RequestRecords {
            arrival: vec![Time::ZERO; n],
            first_scheduled: vec![Time::MAX; n],
            first_token: vec![Time::MAX; n],
            finish: vec![Time::MAX; n],
            emitted: vec![0; n],
            rounds: vec![0; n],
            drafted: vec![0; n],
            verified: vec![0; n],
            accepted: vec![0; n],
            preemptions: vec![0; n],
            cached_tokens: vec![0; n],
            outcome: vec![Outcome::InFlight; n],
        }
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.arrival.len()
    }

    /// No requests?
    pub fn is_empty(&self) -> bool {
        self.arrival.is_empty()
    }

    /// Did request `i` finish?
    pub fn finished(&self, i: usize) -> bool {
        self.outcome[i] == Outcome::Finished
    }

    /// Arrival to first scheduling, seconds.
    pub fn queue_s(&self, i: usize) -> f64 {
        (self.first_scheduled[i] - self.arrival[i]).as_s()
    }

    /// Time to first token, seconds.
    pub fn ttft_s(&self, i: usize) -> f64 {
        (self.first_token[i] - self.arrival[i]).as_s()
    }

    /// End-to-end latency, seconds.
    pub fn e2e_s(&self, i: usize) -> f64 {
        (self.finish[i] - self.arrival[i]).as_s()
    }

    /// Time per output token after the first, seconds; `None` for a one-token output (docs/model.md 14).
    pub fn tpot_s(&self, i: usize) -> Option<f64> {
        (self.emitted[i] > 1).then(|| (self.finish[i] - self.first_token[i]).as_s() / f64::from(self.emitted[i] - 1))
    }
}
