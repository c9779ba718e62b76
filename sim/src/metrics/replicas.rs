//! What each replica of a fleet did.

use super::scaled::Scaled;
use super::{Outcome, RequestRecords, Series, Totals};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// The replicas of a fleet's run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replicas {
    /// Index of the replica that gives each request's output; `u16::MAX` for a request that was never sent.
    pub routed: Vec<u16>,
    /// What each replica did.
    pub each: Vec<ReplicaSummary>,
    /// The load of each replica over time.
    pub series: Vec<Series>,
    /// How the KV of each request's prompt came to its replica; empty if no replica computes prompts for others.
    pub hand_offs: Vec<HandOff>,
    /// How the fleet grew and shrank; `None` for a fleet whose number of replicas is no setting of a rule.
    pub scaled: Option<Scaled>,
}

/// How the KV of a request's prompt came from a prefill replica to the replica that decodes. The time of an event that
/// did not happen is `Time::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOff {
    /// Index of the prefill replica; `u16::MAX` if the request's own replica computed the prompt.
    pub replica: u16,
    /// When the prefill replica finished the prompt.
    pub computed: Time,
    /// When the transfer began.
    pub begun: Time,
    /// When all KV had arrived.
    pub arrived: Time,
    /// Bytes of KV transferred.
    pub bytes: u64,
}

impl Default for HandOff {
    fn default() -> HandOff {
        HandOff { replica: u16::MAX, computed: Time::MAX, begun: Time::MAX, arrived: Time::MAX, bytes: 0 }
    }
}

/// What a replica did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicaSummary {
    /// Number of requests sent to the replica.
    pub requests: u64,
    /// Number of these requests that emitted their whole output.
    pub finished: u64,
    /// Number of these requests that were rejected, because they could never run to their end.
    pub rejected: u64,
    /// Prompt tokens of these requests.
    pub prompt_tokens: u64,
    /// Prompt tokens of these requests that were found in the prefix cache at the first admission.
    pub cached_tokens: u64,
    /// Output tokens emitted.
    pub emitted: u64,
    /// Number of steps.
    pub steps: u64,
    /// Time inside steps, seconds.
    pub busy_s: f64,
    /// Mean decode batch size, weighted by step time.
    pub mean_batch_size: f64,
    /// Draft tokens verified.
    pub verified: u64,
    /// Draft tokens accepted.
    pub accepted: u64,
    /// Number of preemptions.
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
