//! Progress of long work: a bar on a terminal, and counts for a program that draws a bar of its own.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static DONE: AtomicU64 = AtomicU64::new(0);
static OF: AtomicU64 = AtomicU64::new(0);
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Draws no bar from now on: the program draws its own.
pub fn elsewhere() {
    ELSEWHERE.store(true, Ordering::Relaxed);
}

/// Finished pieces and all pieces of the work that began last.
pub fn so_far() -> (u64, u64) {
    (DONE.load(Ordering::Relaxed), OF.load(Ordering::Relaxed))
}

/// Counts pieces of work as they end.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar for `of` pieces of work, called `pieces`.
    pub fn new(of: u64, pieces: &str) -> Bar {
        DONE.store(0, Ordering::Relaxed);
        OF.store(of, Ordering::Relaxed);
        let drawn = std::io::stderr().is_terminal() && !ELSEWHERE.load(Ordering::Relaxed);
        let target = if drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let template = format!("{{bar:30}} {{pos}}/{{len}} {pieces}  {{elapsed}} (left: {{eta}})  {{msg}}");
        let style = ProgressStyle::with_template(&template).expect("the template is constant but for one word");
        Bar(ProgressBar::with_draw_target(Some(of), target).with_style(style))
    }

    /// Counts `pieces` more pieces of work as finished.
    pub fn inc(&self, pieces: u64) {
        DONE.fetch_add(pieces, Ordering::Relaxed);
        self.0.inc(pieces);
    }

    /// Shows what is being worked on.
    pub fn say(&self, what: String) {
        self.0.set_message(what);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
