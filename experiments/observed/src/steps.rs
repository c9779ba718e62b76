//! The steps of a log on the run's clock, and the tokens that came of each.

use crate::recording::{Event, Recording};
use crate::request::Answer;
use crate::step_log::LoggedStep;
use foretoken_sim::Time;

/// A step of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacedStep {
    /// Its line.
    pub logged: LoggedStep,
    /// When it began on the run's clock.
    pub start: Time,
    /// When its line was written.
    pub end: Time,
    /// Tokens that were read after it and before the next step's line.
    pub emitted: u32,
    /// Of these, first tokens of answers.
    pub first_tokens: u32,
}

impl PlacedStep {
    /// Drafted tokens that held, as far as what was read tells: what came beyond one a request.
    pub fn accepted(&self) -> u32 {
        let drafts = self.logged.generation_tokens.saturating_sub(u64::from(self.logged.generation_requests)) as u32;
        self.emitted.saturating_sub(self.first_tokens).saturating_sub(self.logged.generation_requests).min(drafts)
    }
}

/// A line is written while its tokens are on their way to the client, by the same process and before or after them.
const ON_ITS_WAY: Time = Time(2_000_000_000);

/// The steps that a recording's log has between the run's start and its end, in order. Without times of microseconds
/// (`--step-log` and the shipped logging configuration) none can be placed.
pub fn steps(recording: &Recording, answers: &[Answer]) -> Vec<PlacedStep> {
    let started = recording.head.started_unix_us as f64 / 1e6;
    let lines = recording.events.iter().filter_map(|e| match e {
        Event::Log { lines, .. } => Some(lines),
        _ => None,
    });
    let logged = lines.flatten().filter_map(|line| LoggedStep::read(line));
    let placed = |logged: LoggedStep| {
        let end = logged.written_unix_s? - started;
        (end >= 0.0).then(|| {
            let end = Time::from_s(end);
            let start = end.saturating_sub(Time::from_s(logged.elapsed_s));
            PlacedStep { logged, start, end, emitted: 0, first_tokens: 0 }
        })
    };
    let mut steps: Vec<PlacedStep> = logged.filter_map(placed).collect();
    steps.sort_by(|a, b| a.end.cmp(&b.end).then(a.logged.iteration.cmp(&b.logged.iteration)));
    // A line may be late; steps do not overlap.
    for i in 1..steps.len() {
        steps[i].start = steps[i].start.max(steps[i - 1].end.min(steps[i].end));
    }
    give_tokens(answers, &mut steps);
    steps
}

fn give_tokens(answers: &[Answer], steps: &mut [PlacedStep]) {
    for a in answers {
        for (i, &(at, n)) in a.chunks.iter().enumerate() {
            let after = steps.partition_point(|s| s.end <= at + ON_ITS_WAY);
            let Some(step) = after.checked_sub(1).map(|i| &mut steps[i]) else { continue };
            step.emitted += n;
            step.first_tokens += u32::from(i == 0);
        }
    }
}
