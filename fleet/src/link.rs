//! The link over which KV goes from prefill replicas to decode replicas.
//!
//! The transfers in flight share the bandwidth of a link equally. So the link needs one counter: the bytes served so
//! far to a transfer that was in flight all the time. A transfer of n bytes ends when the counter has grown by n since
//! the transfer's bytes began to flow.

use foretoken_sim::{RequestId, Time};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The `[fleet.link]` table: how fast KV goes from a prefill replica to a decode replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bandwidth, 10⁹ bytes a second, at least 0.001; `inf` for a link that takes no time.
    pub bandwidth_gb_s: f64,
    /// Seconds from the start of a transfer until its bytes flow, ≥ 0.
    #[serde(default)]
    pub latency_s: f64,
    /// Which transfers share the bandwidth, in equal parts.
    #[serde(default)]
    pub shared_by: SharedBy,
    /// Bytes of the target's KV of a token; absent: computed from the model of `hardware.target.roofline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_bytes_token: Option<f64>,
    /// Is the draft model's KV transferred, too? If it is not, the first step on the decode replica drafts nothing, and
    /// the draft model runs over the prompt on the decode replica.
    #[serde(default = "yes")]
    pub draft_kv: bool,
    /// Bytes of the draft model's KV of a token; absent: computed from the model of `hardware.draft.roofline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_kv_bytes_token: Option<f64>,
}

fn yes() -> bool {
    true
}

/// The transfers that share the bandwidth of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SharedBy {
    /// The transfers of one prefill replica share a link; each prefill replica has its own. A decode replica receives
    /// from all links at full speed.
    #[default]
    PrefillReplica,
    /// All transfers of the fleet share one link.
    Fleet,
}

/// Least bandwidth of a link, 10⁹ bytes a second. With less, the KV of one prompt takes hours.
const LEAST_GB_S: f64 = 1e-3;

impl Link {
    /// Checks that bandwidth, latency and bytes are within their ranges.
    ///
    /// # Errors
    /// A number is outside its range. The error is its key, and what is wrong.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.bandwidth_gb_s.is_nan() || self.bandwidth_gb_s < LEAST_GB_S {
            let gb = self.bandwidth_gb_s;
            let what =
                format!("{gb} is not a bandwidth of at least {LEAST_GB_S} (1 MB/s): KV would hardly ever arrive");
            return Err(("bandwidth_gb_s", what));
        }
        if !(self.latency_s >= 0.0 && self.latency_s.is_finite()) {
            return Err(("latency_s", format!("{} is not a time of at least 0 s", self.latency_s)));
        }
        let bytes = [("kv_bytes_token", self.kv_bytes_token), ("draft_kv_bytes_token", self.draft_kv_bytes_token)];
        match bytes.into_iter().find(|(_, bytes)| bytes.is_some_and(|b| !(b > 0.0 && b.is_finite()))) {
            Some((key, bytes)) => Err((key, format!("{} is not a number of bytes above 0", bytes.unwrap_or_default()))),
            None => Ok(()),
        }
    }
}

/// A link over which KV goes from prefill to decode replicas, with the transfers in flight on it.
pub(crate) struct Wire {
    /// Bandwidth, bytes per picosecond.
    rate: f64,
    latency: Time,
    now: Time,
    /// Bytes that the link would have sent so far for a transfer that was in flight all the time.
    served: f64,
    /// Transfers whose bytes do not flow yet, because `latency` has not passed: (when the bytes begin to flow, the
    /// request, number of bytes), in order of time.
    begun: VecDeque<(Time, RequestId, u64)>,
    /// Transfers whose bytes flow: (the value of `served` at which the transfer ends, the request).
    flying: BinaryHeap<Reverse<(Ordered, RequestId)>>,
}

/// The bits of an `f64` that is not negative. These bits have the same order as the numbers.
type Ordered = u64;

impl Wire {
    pub fn new(link: &Link) -> Wire {
        Wire {
            rate: link.bandwidth_gb_s * 1e9 / 1e12,
            latency: Time::from_s(link.latency_s),
            now: Time::ZERO,
            served: 0.0,
            begun: VecDeque::new(),
            flying: BinaryHeap::new(),
        }
    }

    /// Begins the transfer of `bytes` of a request's KV at `at`. The caller must begin transfers in order of time.
    pub fn begin(&mut self, id: RequestId, at: Time, bytes: u64) {
        self.begun.push_back((at + self.latency, id, bytes));
    }

    /// The time of the next event: the bytes of a transfer begin to flow, or a transfer ends. `Time::MAX` without
    /// transfers.
    pub fn next_at(&self) -> Time {
        self.end_of_first().min(self.begun.front().map_or(Time::MAX, |begun| begun.0))
    }

    fn end_of_first(&self) -> Time {
        let Some(Reverse((end, _))) = self.flying.peek() else { return Time::MAX };
        let left = (f64::from_bits(*end) - self.served).max(0.0);
        self.now + Time((left * self.flying.len() as f64 / self.rate).ceil() as u64)
    }

    /// Advances the link to its [next event](Wire::next_at). Returns the request whose transfer ended; `None` if bytes
    /// began to flow or there is no event.
    pub fn go_on(&mut self) -> Option<RequestId> {
        let (flows, ends) = (self.begun.front().map_or(Time::MAX, |begun| begun.0), self.end_of_first());
        if ends <= flows {
            let Reverse((end, id)) = self.flying.pop()?;
            self.now = ends;
            self.served = self.served.max(f64::from_bits(end));
            return Some(id);
        }
        let (at, id, bytes) = self.begun.pop_front()?;
        if !self.flying.is_empty() {
            self.served += (at - self.now).0 as f64 * self.rate / self.flying.len() as f64;
        }
        self.now = self.now.max(at);
        self.flying.push(Reverse(((self.served + bytes as f64).to_bits(), id)));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn link(bandwidth_gb_s: f64, latency_s: f64) -> Link {
        let (kv_bytes_token, draft_kv_bytes_token) = (None, None);
        let shared_by = SharedBy::Fleet;
        Link { bandwidth_gb_s, latency_s, shared_by, kv_bytes_token, draft_kv: true, draft_kv_bytes_token }
    }

    /// Runs `transfers` (start in seconds, number of bytes) over the link. Returns the time at which each ends,
    /// seconds.
    fn ends(link: &Link, transfers: &[(f64, u64)]) -> Vec<f64> {
        let mut wire = Wire::new(link);
        let mut ends = vec![f64::NAN; transfers.len()];
        let mut next = 0;
        loop {
            let at = transfers.get(next).map_or(Time::MAX, |t| Time::from_s(t.0));
            let event = wire.next_at();
            if event == Time::MAX && at == Time::MAX {
                return ends;
            } else if event <= at {
                wire.go_on().into_iter().for_each(|id| ends[id as usize] = event.as_s());
            } else {
                wire.begin(next as RequestId, at, transfers[next].1);
                next += 1;
            }
        }
    }

    #[test]
    fn transfers_share_the_bandwidth() {
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        // The link has 1 GB/s. One transfer of 2 GB starts at 0 s, another of 1 GB starts at 1 s. From 1 s on both have
        // 1 GB left and share the bandwidth, so both end at 3 s.
        let two = ends(&link(1.0, 0.0), &[(0.0, 2_000_000_000), (1.0, 1_000_000_000)]);
        assert!(close(&two, &[3.0, 3.0]), "{two:?}");
        let late = ends(&link(1.0, 0.5), &[(0.0, 1_000_000_000), (0.5, 1_000_000_000)]);
        assert!(close(&late, &[2.0, 2.5]), "{late:?}");
        assert_eq!(ends(&link(f64::INFINITY, 0.25), &[(0.0, 9), (1.0, 9)]), [0.25, 1.25]);
    }

    proptest! {
        /// The ends must equal the ends from a second computation, which advances every transfer in small steps of
        /// time.
        #[test]
        fn ends_are_those_of_small_steps(
            gaps in prop::collection::vec((0.0..2.0f64, 1..40u64), 1..8),
        ) {
            let mut at = 0.0;
            let transfers: Vec<(f64, u64)> = gaps.iter().map(|(gap, mb)| {
                at += gap;
                (at, mb * 100_000_000)
            }).collect();
            let found = ends(&link(1.0, 0.0), &transfers);
            let (mut left, step, mut now) = (transfers.iter().map(|t| t.1 as f64).collect::<Vec<_>>(), 1e-4, 0.0);
            let mut plain = vec![f64::NAN; left.len()];
            while plain.iter().any(|end| end.is_nan()) {
                let flying: Vec<usize> = (0..left.len()).filter(|&i| transfers[i].0 <= now && left[i] > 0.0).collect();
                now += step;
                for &i in &flying {
                    left[i] -= 1e9 * step / flying.len() as f64;
                    if left[i] <= 0.0 {
                        plain[i] = now;
                    }
                }
            }
            for (found, plain) in found.iter().zip(&plain) {
                prop_assert!((found - plain).abs() < 0.005, "{} {}", found, plain);
            }
        }
    }

    #[test]
    fn a_link_without_bandwidth_is_refused() {
        for gb in [0.0, 1e-6, -1.0] {
            assert_eq!(link(gb, 0.0).check().unwrap_err().0, "bandwidth_gb_s");
        }
        assert!(link(1e-3, 0.0).check().is_ok());
        assert_eq!(link(f64::NAN, 0.0).check().unwrap_err().0, "bandwidth_gb_s");
        assert_eq!(link(1.0, -1.0).check().unwrap_err().0, "latency_s");
        assert_eq!(Link { kv_bytes_token: Some(0.0), ..link(1.0, 0.0) }.check().unwrap_err().0, "kv_bytes_token");
        assert!(link(f64::INFINITY, 0.0).check().is_ok());
    }
}
