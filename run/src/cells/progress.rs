//! Counts the finished cells, and measures how fast the simulator is.

use crate::bar::{Bar, Counts};
use foretoken_sim::Summary;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Counts the cells that have ended, shows a progress bar, and measures the simulator's speed.
pub struct Progress {
    bar: Bar,
    started: Instant,
    sums: Mutex<Speed>,
}

/// The simulator's speed over the cells that this process ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    /// Number of cells that this process ran.
    pub cells: u64,
    /// Number of decoding requests, summed over the steps of all cells that this process ran.
    pub request_steps: u64,
    /// Simulated time of all cells that this process ran, summed, seconds.
    pub simulated_s: f64,
    /// Wall time spent in the simulated engine, summed over threads, seconds.
    pub engine_s: f64,
    /// Wall time of this process's run so far, seconds.
    pub wall_s: f64,
}

impl Progress {
    pub fn new(cells: u64, counts: &Counts) -> Progress {
        Progress { bar: Bar::new(cells, "cells", counts), started: Instant::now(), sums: Mutex::default() }
    }

    /// Counts `cells` cells that are not run, because they finished or failed before. They do not count in the speed.
    pub fn skip(&self, cells: u64) {
        self.bar.inc(cells);
    }

    /// Counts one more cell (a run of `policy`) as ended. `engine` is the wall time of its simulation.
    pub fn done(&self, policy: &str, summary: &Summary, engine: Duration) {
        self.bar.inc(1);
        self.bar.say(policy.to_owned());
        let mut sums = self.sums.lock().expect("no thread panics while it holds the lock");
        sums.cells += 1;
        sums.request_steps += summary.request_steps;
        sums.simulated_s += summary.duration_s;
        sums.engine_s += engine.as_secs_f64();
    }

    /// Removes the progress bar and returns the simulator's speed over the cells that this process ran.
    pub fn finish(&self) -> Speed {
        self.bar.finish();
        let sums = *self.sums.lock().expect("no thread panics while it holds the lock");
        Speed { wall_s: self.started.elapsed().as_secs_f64(), ..sums }
    }
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let per = |amount: f64, span: f64| if span > 0.0 { amount / span } else { 0.0 };
        write!(
            f,
            "{} cells in {:.2} s ({:.2} s in the engine): {:.1} M request-steps/s, {:.0} simulated s / wall s",
            self.cells,
            self.wall_s,
            self.engine_s,
            per(self.request_steps as f64, self.engine_s) / 1e6,
            per(self.simulated_s, self.wall_s),
        )
    }
}
