//! What a reader makes of a file.

use crate::format::TraceFormat;
use foretoken_sim::Workload;
use std::path::PathBuf;

/// Which columns a trace really has; the others hold placeholders (instant 0, length 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gives {
    /// Arrival instants.
    pub arrivals: bool,
    /// Prompt and output lengths.
    pub lengths: bool,
}

/// What a file holds.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The format it was read as.
    pub format: TraceFormat,
    /// Its requests.
    pub workload: Workload,
    /// What of them is real.
    pub gives: Gives,
    /// Rows in the file (turns not asked for and filtered-out rows included).
    pub rows: u64,
    /// What was left out or changed, with counts, in words.
    pub notes: Vec<String>,
    /// Every file read.
    pub files: Vec<PathBuf>,
}
