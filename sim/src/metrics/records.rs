//! One record for each request and, if wanted, for each step. Records hold facts and no statistics.

use crate::time::Time;
use std::ops::Range;

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The request has not ended: it still waited or ran when the run stopped, or its client aborted it.
    #[default]
    InFlight,
    /// The request emitted its whole output.
    Finished,
    /// The request can never run to its end: for example, its prompt is over `max_model_len`, over the token budget
    /// without chunking, or over the KV pool.
    Rejected,
}

/// The records of all requests, as columns of equal length indexed by request id. A time is `Time::MAX` if the event
/// (first scheduling, first token, end) has not happened.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RequestRecords {
    /// When the request arrived.
    pub arrival: Vec<Time>,
    /// When the request was first scheduled.
    pub first_scheduled: Vec<Time>,
    /// When the first output token was emitted.
    pub first_token: Vec<Time>,
    /// When the last output token was emitted, or when the request was rejected.
    pub finish: Vec<Time>,
    /// For each request: number of output tokens emitted. Accepted draft tokens that lie beyond the output's end do not
    /// count.
    pub emitted: Vec<u32>,
    /// For each request: number of rounds, which are decode steps with at least one verified draft token.
    pub rounds: Vec<u32>,
    /// For each request: number of draft tokens drafted.
    pub drafted: Vec<u32>,
    /// For each request: number of draft tokens verified.
    pub verified: Vec<u32>,
    /// For each request: number of accepted draft tokens. Accepted draft tokens beyond the output's end count too.
    pub accepted: Vec<u32>,
    /// For each request: how often it was preempted.
    pub preemptions: Vec<u32>,
    /// For each request: number of prompt tokens found in the prefix cache at the first admission.
    pub cached_tokens: Vec<u32>,
    /// How the request ended.
    pub outcome: Vec<Outcome>,
}

/// The record of one engine step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StepRecord {
    /// Index of the step, from 0.
    pub step: u64,
    /// When the step started.
    pub start: Time,
    /// When the step ended.
    pub end: Time,
    /// Time in draft passes and in the policy's decisions (`decision_s`).
    pub draft_time: Time,
    /// Time of the target pass and of the host's work other than the policy's decisions (`step_overhead_s` and the host
    /// times of `engine.host`).
    pub verify_time: Time,
    /// Number of decode requests in the step.
    pub batch_size: u32,
    /// Number of prefill chunks (pieces of prompts) in the step.
    pub chunks: u32,
    /// Number of prompt tokens in the prefill chunks of the step.
    pub chunk_tokens: u64,
    /// Sum over the decode requests of their tokens in KV, before the step.
    pub context: u64,
    /// Number of waiting requests after scheduling.
    pub waiting: u32,
    /// Number of draft passes of the step; at most 1 with parallel drafting.
    pub draft_passes: u32,
    /// Number of draft tokens drafted in the step.
    pub drafted: u32,
    /// Number of draft tokens verified in the step.
    pub verified: u32,
    /// Number of draft tokens accepted in the step. Accepted draft tokens beyond an output's end count too.
    pub accepted: u32,
    /// Number of output tokens emitted in the step, including the first tokens of requests.
    pub emitted: u32,
    /// KV blocks that requests hold after scheduling.
    pub used_blocks: u32,
    /// Number of requests that were preempted while the step was scheduled.
    pub preempted: u32,
}

impl RequestRecords {
    /// Empty records for `n` requests.
    pub fn new(n: usize) -> RequestRecords {
        let mut records = RequestRecords::default();
        records.resize(n);
        records
    }

    /// Adds empty records up to `n` requests, or cuts the records to `n` requests.
    pub fn resize(&mut self, n: usize) {
        self.arrival.resize(n, Time::ZERO);
        for never in [&mut self.first_scheduled, &mut self.first_token, &mut self.finish] {
            never.resize(n, Time::MAX);
        }
        for none in [
            &mut self.emitted, &mut self.rounds, &mut self.drafted, &mut self.verified, &mut self.accepted,
            &mut self.preemptions, &mut self.cached_tokens,
        ] {
            none.resize(n, 0);
        }
        self.outcome.resize(n, Outcome::InFlight);
    }

    /// Empties the record of request `i`.
    pub fn clear(&mut self, i: usize) {
        self.copy(i, &RequestRecords::new(1), 0);
    }

    /// Copies the record of request `i` from the records of the replica that served it.
    pub fn take(&mut self, i: usize, from: &RequestRecords) {
        self.copy(i, from, i);
    }

    /// Copies the request record with index `at` of `from` to index `i`.
    pub fn copy(&mut self, i: usize, from: &RequestRecords, at: usize) {
        self.arrival[i] = from.arrival[at];
        self.first_scheduled[i] = from.first_scheduled[at];
        self.first_token[i] = from.first_token[at];
        self.finish[i] = from.finish[at];
        self.emitted[i] = from.emitted[at];
        self.rounds[i] = from.rounds[at];
        self.drafted[i] = from.drafted[at];
        self.verified[i] = from.verified[at];
        self.accepted[i] = from.accepted[at];
        self.preemptions[i] = from.preemptions[at];
        self.cached_tokens[i] = from.cached_tokens[at];
        self.outcome[i] = from.outcome[at];
    }

    /// A copy of the records of the requests with ids in `these`.
    pub fn part(&self, these: Range<usize>) -> RequestRecords {
        let mut part = RequestRecords::new(these.len());
        these.enumerate().for_each(|(i, at)| part.copy(i, self, at));
        part
    }

    /// Appends the records of further requests after the records of the requests so far.
    pub fn append(&mut self, more: &RequestRecords) {
        let before = self.len();
        self.resize(before + more.len());
        (0..more.len()).for_each(|i| self.copy(before + i, more, i));
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.arrival.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.arrival.is_empty()
    }

    /// Whether request `i` finished.
    pub fn finished(&self, i: usize) -> bool {
        self.outcome[i] == Outcome::Finished
    }

    /// Time from arrival until the request was first scheduled, seconds.
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

    /// Mean time per output token after the first, seconds; `None` for an output of one token (docs/model.md 14).
    pub fn tpot_s(&self, i: usize) -> Option<f64> {
        (self.emitted[i] > 1).then(|| (self.finish[i] - self.first_token[i]).as_s() / f64::from(self.emitted[i] - 1))
    }
}
