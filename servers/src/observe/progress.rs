//! The progress line on the terminal during a run.

use crate::recordings::recording::{Ended, Event};
use foretoken_sim::Time;
use indicatif::{ProgressBar, ProgressStyle};

/// Counts of a run's requests that were sent, answered or failed, which the progress line shows.
pub struct Progress {
    bar: ProgressBar,
    which: String,
    sent: u64,
    ended: u64,
    failed: u64,
}

impl Progress {
    /// A progress line for the run named `which`.
    pub fn new(which: String) -> Progress {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is fixed"));
        Progress { bar, which, sent: 0, ended: 0, failed: 0 }
    }

    /// Updates the counts with an event of the run.
    pub fn saw(&mut self, event: &Event) {
        match event {
            Event::Sent { attempt: 0, .. } => self.sent += 1,
            Event::Ended { how: Ended::Finished { .. }, .. } => self.ended += 1,
            Event::Ended { .. } => self.failed += 1,
            _ => {}
        }
    }

    /// Draws the progress line. `now` is the time since the run's start.
    pub fn show(&self, now: Time) {
        let Progress { which, sent, ended, failed, .. } = self;
        let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
        self.bar.set_message(format!("{which}: {:.0} s, {sent} sent, {ended} answered{failed}", now.as_s()));
        self.bar.tick();
    }

    /// Prints the warning `text` above the progress line on the terminal.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("warning: {text}"));
    }

    /// Removes the progress line from the terminal.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
