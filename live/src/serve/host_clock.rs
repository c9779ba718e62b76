//! Statistics of the host time of steps (the time in which the device runs no pass): over all steps, over steps with
//! large batches, and of the scheduler's and the policy's parts of the host time. The memory does not grow with the
//! number of steps.

use super::tape::passes;
use foretoken_servers::compare::live_runs::{HostTime, HostTimes, LARGE_BATCH};
use foretoken_sim::Time;
use foretoken_sim::live::{MarkKind, Recorder, StepTrace};
use foretoken_sim::metrics::Gaps;

/// Collects the host times of a run's steps: the times in which the device runs no pass.
#[derive(Default)]
pub struct HostClock {
    all: Gaps,
    large: Gaps,
    scheduler: Gaps,
    policy: Gaps,
    recording: Time,
    last_end: Time,
}

impl HostClock {
    /// Adds the host times of a step. The first step adds no times; only its end is stored, as the start of the next
    /// step's host time.
    pub fn add(&mut self, step: &StepTrace) {
        let Some(passes) = passes(step, self.last_end) else { return };
        // The first step is not counted, because the time before it belongs to the start of the run.
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

    /// Returns the statistics of the host times of the steps added so far.
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
