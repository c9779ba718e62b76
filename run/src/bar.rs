//! Progress of long work: a bar on the terminal, and counts for a program that shows the progress in its own way.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts of the pieces of a long work (such as the runs of an experiment): the number of finished pieces and the
/// number of all pieces. It also stores whether the progress bar on the terminal is off. Clones share these counts.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    done: AtomicU64,
    of: AtomicU64,
    elsewhere: AtomicBool,
}

impl Counts {
    /// Turns the bar on the terminal off, because the calling program shows the progress itself.
    pub fn draw_elsewhere(&self) {
        self.0.elsewhere.store(true, Ordering::Relaxed);
    }

    /// (Number of finished pieces, number of all pieces) of the work that was begun last; a piece is, for example, one
    /// run of an experiment.
    pub fn so_far(&self) -> (u64, u64) {
        (self.0.done.load(Ordering::Relaxed), self.0.of.load(Ordering::Relaxed))
    }
}

/// A progress bar for long work. It is drawn only if stderr is a terminal and [`Counts`] does not turn it off. The
/// counts of finished pieces are updated in any case.
pub struct Bar {
    drawn: ProgressBar,
    counts: Counts,
}

impl Bar {
    /// Starts a progress bar for work that has `of` pieces, none of them finished. `pieces` is the name of the pieces
    /// in the plural, such as "cells". Also sets `counts`.
    pub fn new(of: u64, pieces: &str, counts: &Counts) -> Bar {
        counts.0.done.store(0, Ordering::Relaxed);
        counts.0.of.store(of, Ordering::Relaxed);
        let drawn = std::io::stderr().is_terminal() && !counts.0.elsewhere.load(Ordering::Relaxed);
        let target = if drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let template = format!("{{bar:30}} {{pos}}/{{len}} {pieces}  {{elapsed}} (left: {{eta}})  {{msg}}");
        let style = ProgressStyle::with_template(&template).expect("the template is constant but for one word");
        let drawn = ProgressBar::with_draw_target(Some(of), target).with_style(style);
        Bar { drawn, counts: counts.clone() }
    }

    /// Counts `pieces` more pieces of work as finished.
    pub fn inc(&self, pieces: u64) {
        self.counts.0.done.fetch_add(pieces, Ordering::Relaxed);
        self.drawn.inc(pieces);
    }

    /// Sets the bar to `done` finished pieces of work out of `of` pieces.
    pub fn is_at(&self, done: u64, of: u64) {
        self.counts.0.done.store(done, Ordering::Relaxed);
        self.counts.0.of.store(of, Ordering::Relaxed);
        self.drawn.set_length(of);
        self.drawn.set_position(done);
    }

    /// Shows the text `what` after the progress bar, for example the policy that ran last.
    pub fn say(&self, what: String) {
        self.drawn.set_message(what);
    }

    /// Removes the progress bar from the terminal.
    pub fn finish(&self) {
        self.drawn.finish_and_clear();
    }
}
