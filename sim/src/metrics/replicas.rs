//! What each replica of a fleet did in a run: its requests, its steps, and its load over time.

use super::scaled::Scaled;
use super::{Flow, HandOff, Outcome, RequestRecords, Series, Totals};
use serde::{Deserialize, Serialize};

/// What the replicas of a fleet did in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replicas {
    /// Index of the replica that gives each request's output; `u16::MAX` for a request that was never sent.
    pub routed: Vec<u16>,
    /// For each replica: its numbers of requests, tokens and steps.
    pub each: Vec<ReplicaSummary>,
    /// The load and the draft lengths of each replica over time.
    pub series: Vec<Series>,
    /// For each replica: how many requests waited and ran there, over time.
    pub flows: Vec<Flow>,
    /// For each request: how the KV of its prompt came to the replica that decodes it; empty if no replica computes
    /// prompts for others.
    pub hand_offs: Vec<HandOff>,
    /// How a scaling rule changed the number of replicas; `None` for a fleet without such a rule.
    pub scaled: Option<Scaled>,
}

/// The numbers of requests, tokens and steps of a replica in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicaSummary {
    /// Number of requests sent to the replica.
    pub requests: u64,
    /// Number of requests sent to the replica that emitted their whole output.
    pub finished: u64,
    /// Number of requests sent to the replica that were rejected, because they could never run to their end.
    pub rejected: u64,
    /// Sum of the prompt lengths of the requests sent to the replica, tokens.
    pub prompt_tokens: u64,
    /// Number of prompt tokens, over the requests sent to the replica, that the prefix cache had at the request's first
    /// admission.
    pub cached_tokens: u64,
    /// Number of output tokens that the replica emitted.
    pub emitted: u64,
    /// Number of steps of the replica.
    pub steps: u64,
    /// Time inside the replica's steps, seconds.
    pub busy_s: f64,
    /// Mean number of decode requests in a step of the replica, weighted by step time.
    pub mean_batch_size: f64,
    /// Number of draft tokens that the replica verified.
    pub verified: u64,
    /// Number of draft tokens that the replica accepted.
    pub accepted: u64,
    /// Number of preemptions on the replica.
    pub preemptions: u64,
    /// The largest share of the replica's KV blocks that requests held at any time, [0, 1].
    pub kv_use_peak: f64,
}

impl ReplicaSummary {
    /// The summary of a replica from its own records and totals. `prompt_len` are the lengths of all requests' prompts,
    /// tokens; `ids` are the requests sent to the replica.
    pub fn of(
        records: &RequestRecords,
        totals: &Totals,
        usable_blocks: u32,
        prompt_len: &[u32],
        ids: impl Iterator<Item = usize> + Clone,
    ) -> ReplicaSummary {
        let count = |outcome| ids.clone().filter(|&i| records.outcome[i] == outcome).count() as u64;
        let sum = |column: &[u32]| ids.clone().map(|i| u64::from(column[i])).sum();
        let busy_s = totals.busy.as_s();
        let mean = |time: u128| if busy_s > 0.0 { time as f64 / crate::time::PS_PER_S / busy_s } else { 0.0 };
        ReplicaSummary {
            requests: ids.clone().count() as u64,
            finished: count(Outcome::Finished),
            rejected: count(Outcome::Rejected),
            prompt_tokens: sum(prompt_len),
            cached_tokens: sum(&records.cached_tokens),
            emitted: totals.emitted,
            steps: totals.steps,
            busy_s,
            mean_batch_size: mean(totals.batch_time),
            verified: totals.verified,
            accepted: totals.accepted(),
            preemptions: totals.preemptions,
            kv_use_peak: if usable_blocks == 0 {
                0.0
            } else {
                f64::from(totals.peak_blocks) / f64::from(usable_blocks)
            },
        }
    }
}
