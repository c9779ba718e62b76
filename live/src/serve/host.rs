//! Host time of each step: scheduler, policy, and the rest of the loop. Counted in constant memory.

use super::tape::passes;
use foretoken_sim::Time;
use foretoken_sim::live::{MarkKind, Recorder, StepTrace};
use foretoken_sim::metrics::Gaps;
use serde::{Deserialize, Serialize};

/// Steps with at least this number of decode requests are also counted separately, because the limit on host time
/// refers to them.
pub const LARGE_BATCH: usize = 32;

/// Counts the host time of steps.
#[derive(Default)]
pub struct HostClock {
    all: Gaps,
    large: Gaps,
    scheduler: Gaps,
    policy: Gaps,
    recording: Time,
    last_end: Time,
}

/// Statistics of a host time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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

impl HostClock {
    /// Adds the host time of a step.
    pub fn add(&mut self, step: &StepTrace) {
        let Some(passes) = passes(step, self.last_end) else { return };
        // Time before the first step's round belongs to the start of the run, not to a step.
        if self.last_end > Time::ZERO {
            self.all.record(passes.host, 1);
            if step.rounds.len() >= LARGE_BATCH {
                self.large.record(passes.host, 1);
            }
            let (mut scheduler, mut policy, mut at) = (Time::ZERO, Time::ZERO, self.last_end);
            for mark in &step.marks {
                if mark.kind == MarkKind::Recorded {
                    self.recording += mark.end.saturating_sub(mark.begin);
                }
                let before = mark.begin.saturating_sub(at);
                match mark.kind {
                    MarkKind::Scheduled => scheduler += before,
                    MarkKind::Decided(_) => policy += before,
                    _ => {}
                }
                at = mark.end;
            }
            self.scheduler.record(scheduler, 1);
            self.policy.record(policy, 1);
        }
        self.last_end = step.marks.last().map_or(self.last_end, |m| m.end);
    }

    /// Returns the statistics so far.
    pub fn times(self) -> HostTimes {
        let step = time(&self.all);
        HostTimes {
            step,
            overhead_s: step.map(|s| s.mean_s + self.recording.as_s() / s.steps as f64),
            step_at_32: time(&self.large),
            scheduler: time(&self.scheduler),
            policy: time(&self.policy),
        }
    }
}

impl Recorder for HostClock {
    fn step(&mut self, step: &StepTrace) {
        self.add(step);
    }
}

fn time(gaps: &Gaps) -> Option<HostTime> {
    (!gaps.is_empty()).then(|| {
        let [p50_s, p99_s] = gaps.quantiles_s([0.5, 0.99]);
        HostTime { steps: gaps.len(), mean_s: gaps.mean_s(), p50_s, p99_s }
    })
}
