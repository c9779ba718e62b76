//! Host times of the steps of a live run.

use serde::Serialize;

/// Steps with at least this number of decode requests are also counted separately, because the limit on host time
/// refers to them.
pub const LARGE_BATCH: usize = 32;

/// Statistics of a host time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HostTime {
    /// Number of steps.
    pub steps: u64,
    /// Mean over the steps.
    pub mean_s: f64,
    /// Median over the steps.
    pub p50_s: f64,
    /// 99th percentile over the steps.
    pub p99_s: f64,
}

/// The host times of a run. A field is absent if there was no such step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HostTimes {
    /// Time of a step outside of passes and waits.
    pub step: Option<HostTime>,
    /// The same, for steps with at least [`LARGE_BATCH`] decode requests.
    pub step_at_32: Option<HostTime>,
    /// Part of `step`: scheduling, from the start of the round to the first call of the policy.
    pub scheduler: Option<HostTime>,
    /// Part of `step`: the policy's decisions.
    pub policy: Option<HostTime>,
    /// Mean time between the passes of a step, in seconds: `step`, and recording the step, which a run without a
    /// recorder does not need.
    pub overhead_s: Option<f64>,
}

impl HostTimes {
    /// Summary as text; `None` before the second step.
    pub fn words(&self) -> Option<String> {
        let us = |h: HostTime| format!("median {:.1} us, P99 {:.1} us", h.p50_s * 1e6, h.p99_s * 1e6);
        let large = self.step_at_32.map_or(String::new(), |h| format!("; of {LARGE_BATCH} decodes and more {}", us(h)));
        Some(format!("host a step: {}{large}", us(self.step?)))
    }
}
