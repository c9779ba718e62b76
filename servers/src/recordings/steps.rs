//! Places the steps of a server's log on the run's clock, and finds the tokens that each step emitted.

use crate::recordings::recording::{Event, Recording};
use crate::recordings::request::Answer;
use crate::recordings::step_log::LoggedStep;
use foretoken_sim::Time;

/// A step of the server's log, with its times on the run's clock (zero is the run's start).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacedStep {
    /// What the server's log line says about the step.
    pub logged: LoggedStep,
    /// When the server's step began, counted from the run's start.
    pub start: Time,
    /// When the server wrote the step's log line, counted from the run's start.
    pub end: Time,
    /// Number of tokens that the client read from 2 ms before this step's line was written until 2 ms before the next
    /// step's line was written.
    pub emitted: u32,
    /// How many of the `emitted` tokens are the first token of their answer.
    pub first_tokens: u32,
}

impl PlacedStep {
    /// Estimate of the number of accepted draft tokens: the emitted tokens without first tokens, minus one token per
    /// decoding request. It is at most the number of draft tokens.
    pub fn accepted(&self) -> u32 {
        let drafts = self.logged.generation_tokens.saturating_sub(u64::from(self.logged.generation_requests)) as u32;
        self.emitted.saturating_sub(self.first_tokens).saturating_sub(self.logged.generation_requests).min(drafts)
    }
}

/// The server's log line of a step may be written up to this long (2 ms) after the client has read the step's tokens.
const ON_ITS_WAY: Time = Time(2_000_000_000);

/// The logged steps from the run's start on, in order, each with the number of tokens that it emitted. If the log has
/// every step twice, each step is included once. Steps that cannot be true are left out. The list is empty unless the
/// log's times have microseconds, as with `--step-log` and the logging configuration that Foretoken ships.
pub fn steps(recording: &Recording, answers: &[Answer]) -> Vec<PlacedStep> {
    let started = recording.head.started_unix_us as f64 / 1e6;
    let placed = |logged: LoggedStep| {
        let end = logged.written_unix_s? - started;
        (end >= 0.0 && !started_before(recording, &logged)).then(|| {
            let end = Time::from_s(end);
            let start = end.saturating_sub(Time::from_s(logged.elapsed_s));
            PlacedStep { logged, start, end, emitted: 0, first_tokens: 0 }
        })
    };
    let mut steps: Vec<PlacedStep> = logged(recording).filter_map(placed).collect();
    steps.sort_by(|a, b| a.end.cmp(&b.end).then(a.logged.iteration.cmp(&b.logged.iteration)));
    if written_twice(recording) {
        steps.dedup_by(|b, a| same_step(&a.logged, &b.logged));
    }
    // If a log line is late, its step seems to begin or end late. The placed steps must not overlap, so a step begins
    // no earlier than the step before it ended.
    for i in 1..steps.len() {
        steps[i].start = steps[i].start.max(steps[i - 1].end.min(steps[i].end));
    }
    give_tokens(answers, &mut steps);
    steps
}

/// A step that is in flight at the server when the run starts takes at most this long, seconds.
const IN_FLIGHT_S: f64 = 10.0;

/// True if the step seems to have begun more than [`IN_FLIGHT_S`] before the run. The step's elapsed time must then
/// be wrong.
pub(crate) fn started_before(recording: &Recording, step: &LoggedStep) -> bool {
    let end = step.written_unix_s.map(|s| s - recording.head.started_unix_us as f64 / 1e6);
    end.is_some_and(|end| end >= 0.0 && step.elapsed_s > end + IN_FLIGHT_S)
}

/// A logger with two handlers writes the line of a step twice. The times of these two lines differ by at most this
/// many seconds.
const TWICE_S: f64 = 1e-3;

/// True if two lines of the server's log describe the same step.
fn same_step(a: &LoggedStep, b: &LoggedStep) -> bool {
    let near = match (a.written_unix_s, b.written_unix_s) {
        (Some(a), Some(b)) => (a - b).abs() <= TWICE_S,
        _ => true,
    };
    near && LoggedStep { written_unix_s: a.written_unix_s, ..*b } == *a
}

/// True if the server's log has each step twice or more often. If several engines ran in parallel and wrote to one log,
/// only a few neighbouring lines would be equal.
pub fn written_twice(recording: &Recording) -> bool {
    let all: Vec<LoggedStep> = logged(recording).collect();
    let again = all.windows(2).filter(|pair| same_step(&pair[0], &pair[1])).count();
    all.len() >= 4 && again * 5 >= all.len() * 2
}

/// The steps of the server's log, without steps that cannot be true.
fn logged(recording: &Recording) -> impl Iterator<Item = LoggedStep> {
    let lines = recording.events.iter().filter_map(|e| match e {
        Event::Log { lines, .. } => Some(lines),
        _ => None,
    });
    lines.flatten().filter_map(|line| LoggedStep::read(line).ok().flatten())
}

/// Index of the step that emitted the tokens which the client read at `at`: the last step whose log line was written by
/// `at` + 2 ms, because a line may be written shortly after the client has read the tokens. `None` if no line was
/// written by then.
pub fn step_of(steps: &[PlacedStep], at: Time) -> Option<usize> {
    steps.partition_point(|s| s.end <= at + ON_ITS_WAY).checked_sub(1)
}

fn give_tokens(answers: &[Answer], steps: &mut [PlacedStep]) {
    for a in answers {
        for (i, &(at, n)) in a.chunks.iter().enumerate() {
            let Some(step) = step_of(steps, at).map(|i| &mut steps[i]) else { continue };
            step.emitted += n;
            step.first_tokens += u32::from(i == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recordings::recording::{Asked, Head, Tokens};
    use crate::recordings::request::answers;

    const STARTED: u64 = 1_700_000_000_000_000;

    fn line(end_ms: f64, elapsed_ms: f64, answers: (u32, u32)) -> String {
        format!(
            "{:.6} INFO x Iteration(1): 0 context requests, 0 context tokens, {} generation requests, {} generation tokens, \
             iteration elapsed time: {elapsed_ms:.2} ms, CPU KV cache usage: 0.1%",
            STARTED as f64 / 1e6 + end_ms / 1e3,
            answers.0,
            answers.1
        )
    }

    #[test]
    fn steps_are_placed_on_the_run_and_get_the_tokens_that_came_of_them() {
        let ms = |ms: f64| Time::from_s(ms / 1e3);
        let asked = vec![Asked { prompt_len: 9, output_len: 5, ..Asked::default() }; 2];
        let head = Head { started_unix_us: STARTED, asked, ..Head::default() };
        let chunk = |request, at, n| Event::Chunk { request, at: ms(at), tokens: Tokens::Ids(vec![7; n]) };
        // The test's log has a step before the run, and two steps whose times overlap. The token of the earlier one of
        // these two steps was read shortly before its line was written.
        let lines = vec![line(-5.0, 9.0, (1, 1)), line(20.0, 12.0, (1, 4)), line(35.0, 20.0, (2, 8)), "else".into()];
        let events = vec![
            Event::Sent { request: 0, at: ms(0.0), attempt: 0 },
            Event::Sent { request: 1, at: ms(0.0), attempt: 0 },
            chunk(0, 19.0, 1),
            chunk(0, 36.0, 3),
            chunk(1, 36.0, 2),
            Event::Log { at: ms(40.0), lines },
        ];
        let recording = Recording { head, events, ending: None };
        let steps = steps(&recording, &answers(&recording));
        let near = |a: Time, b: f64| (a.as_s() - b / 1e3).abs() < 1e-6;
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert!(near(steps[0].start, 8.0) && near(steps[0].end, 20.0), "{steps:?}");
        assert!(near(steps[1].start, 20.0) && near(steps[1].end, 35.0), "it begins where the other ends: {steps:?}");
        assert_eq!(steps.iter().map(|s| (s.emitted, s.first_tokens)).collect::<Vec<_>>(), [(1, 1), (5, 1)]);
        assert_eq!(steps[1].accepted(), 2, "five tokens, one of them the first of an answer, one each besides");
        assert_eq!(
            (step_of(&steps, ms(10.0)), step_of(&steps, ms(33.5)), step_of(&steps, ms(99.0))),
            (None, Some(1), Some(1))
        );
    }
}
