//! Receives the steps of a live run: writes them to the tape, updates the progress line, and collects host times.

use super::host_clock::HostClock;
use super::monitor::Monitor;
use super::tape::{Head, Tail, TapeWriter};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::compare::live_runs::HostTimes;
use foretoken_sim::live::{Recorder, StepTrace};
use std::path::{Path, PathBuf};

/// Receives the steps of one live run: writes them to the tape, updates the progress line, and collects host times.
pub struct LiveRecorder {
    tape: TapeWriter,
    path: PathBuf,
    /// The first error of writing the tape; `None` without an error. After such an error the run continues without the
    /// tape, and [`finish`](Self::finish) reports the error.
    failed: Option<std::io::Error>,
    monitor: Monitor,
    host: HostClock,
}

impl LiveRecorder {
    /// Starts the tape in the file `path`.
    pub fn create(path: &Path, head: &Head, monitor: Monitor) -> Result<LiveRecorder> {
        let tape = TapeWriter::create(path, head).map_err(|e| cannot_write(path, &e))?;
        Ok(LiveRecorder { tape, path: path.to_path_buf(), failed: None, monitor, host: HostClock::default() })
    }

    /// Removes the progress line, writes the end of the tape and returns the statistics of host times.
    pub fn finish(self, tail: &Tail) -> Result<HostTimes> {
        self.monitor.clear();
        if let Some(e) = self.failed {
            return Err(cannot_write(&self.path, &e));
        }
        self.tape.finish(tail).map_err(|e| cannot_write(&self.path, &e))?;
        Ok(self.host.times())
    }
}

fn cannot_write(path: &Path, cause: &std::io::Error) -> Box<Problem> {
    Problem::failed(format!("cannot write the recording {}: {cause}", path.display()))
        .help("free some space or choose another folder with -o; the steps recorded before can be read")
}

impl Recorder for LiveRecorder {
    fn step(&mut self, step: &StepTrace) {
        if self.failed.is_none()
            && let Err(e) = self.tape.step(step)
        {
            self.failed = Some(e);
        }
        self.monitor.step(step);
        self.host.add(step);
    }
}
