//! The time that the host takes in the steps of a live run, outside of model passes.

use serde::Serialize;

/// Host times (the time of a step outside of model passes) are reported over all steps of a run, and again over only
/// the steps with at least this number of decode requests.
pub const LARGE_BATCH: usize = 32;

/// Statistics of one kind of host time over the steps of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HostTime {
    pub steps: u64,
    pub mean_s: f64,
    pub p50_s: f64,
    pub p99_s: f64,
}

/// The time that the host takes in a run's steps outside of model passes, by kind of work. A field is absent if no step
/// of the run was timed for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HostTimes {
    /// Host time of a step: its time outside of model passes, without waits for requests and without recording.
    pub step: Option<HostTime>,
    /// Host time of a step, only over the steps with at least [`LARGE_BATCH`] decode requests.
    pub step_at_32: Option<HostTime>,
    /// The part of a step's host time that scheduling takes, up to the first call of the policy.
    pub scheduler: Option<HostTime>,
    /// The part of a step's host time that the policy's decisions take.
    pub policy: Option<HostTime>,
    /// Mean host time of a step in seconds, with recording: the mean of `step`, plus the mean time to write the step
    /// into the recording (0 if the run is not recorded).
    pub overhead_s: Option<f64>,
}

impl HostTimes {
    /// The host times of a run's steps as a line of text; `None` if no step was timed.
    pub fn words(&self) -> Option<String> {
        let us = |h: HostTime| format!("median {:.1} us, P99 {:.1} us", h.p50_s * 1e6, h.p99_s * 1e6);
        let large = self.step_at_32.map_or(String::new(), |h| format!("; of {LARGE_BATCH} decodes and more {}", us(h)));
        Some(format!("host a step: {}{large}", us(self.step?)))
    }
}
