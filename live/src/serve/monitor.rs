//! The progress line on the terminal while a device serves: running and waiting requests, draft length, acceptance,
//! speed.

use super::tape::span;
use foretoken_sim::Time;
use foretoken_sim::live::StepTrace;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Time between two updates of the progress line: 0.2 s.
const EVERY: Time = Time(200_000_000_000);

/// Shows the progress line of a run. Shows nothing if stderr is not a terminal.
pub struct Monitor {
    bar: ProgressBar,
    label: String,
    since: Time,
    window: Window,
}

/// Number of decode requests and numbers of drafted, verified, accepted and emitted tokens, each summed over the steps
/// since the last update of the progress line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Window {
    request_steps: u64,
    drafted: u64,
    verified: u64,
    accepted: u64,
    emitted: u64,
}

impl Monitor {
    /// Makes a monitor for the run of the policy `label`. `which` says which of all runs this is, such as `[2 of 8]`.
    pub fn new(label: &str, which: &str) -> Monitor {
        let seen = std::io::stderr().is_terminal();
        let target = if seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{spinner} [{elapsed}] {msg}").expect("the template is constant");
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        bar.set_message(format!("{which} {label}: starting"));
        Monitor { bar, label: format!("{which} {label}"), since: Time::ZERO, window: Window::default() }
    }

    /// Adds a step, and updates the progress line if its last update is at least 0.2 s ago.
    pub fn step(&mut self, step: &StepTrace) {
        if self.bar.is_hidden() {
            return;
        }
        self.window.add(step);
        let Some((_, now)) = span(step) else { return };
        let passed = now.saturating_sub(self.since);
        if passed >= EVERY {
            let load = format!("{} running, {} waiting", step.num_running, step.num_waiting);
            self.bar.set_message(format!("{}: {load}, {}", self.label, self.window.line(passed.as_s())));
            self.bar.tick();
            (self.since, self.window) = (now, Window::default());
        }
    }

    /// Removes the progress line from the terminal.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Window {
    fn add(&mut self, step: &StepTrace) {
        self.request_steps += step.rounds.len() as u64;
        for round in &step.rounds {
            self.drafted += u64::from(round.drafted);
            self.verified += u64::from(round.verified);
            self.accepted += u64::from(round.accepted);
            self.emitted += 1 + u64::from(round.accepted);
        }
        self.emitted += step.chunks.iter().filter(|c| c.last).count() as u64;
    }

    fn line(&self, seconds: f64) -> String {
        let per = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        let speed = self.emitted as f64 / seconds;
        let drafts = match self.drafted {
            0 => "no drafts".to_owned(),
            _ => format!(
                "draft {:.1}, accepted {:.0} %",
                per(self.drafted, self.request_steps),
                100.0 * per(self.accepted, self.verified)
            ),
        };
        format!("{drafts}, {speed:.0} tok/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::live::Round;

    #[test]
    fn the_line_says_what_the_last_moments_brought() {
        let mut window = Window::default();
        let round = |drafted, accepted| Round {
            request: 0,
            start: 1,
            context: 5,
            drafted,
            verified: drafted,
            accepted,
            nodes: 0,
        };
        assert_eq!(window.line(0.5), "no drafts, 0 tok/s");
        window.add(&StepTrace { rounds: vec![round(4, 3), round(2, 0)], ..StepTrace::default() });
        assert_eq!(window.line(0.5), "draft 3.0, accepted 50 %, 10 tok/s");
    }
}
