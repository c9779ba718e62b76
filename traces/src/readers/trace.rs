//! The result of reading a trace file: its requests, and what the file really has.

use crate::format::TraceFormat;
use foretoken_sim::Workload;
use std::path::PathBuf;

/// Which columns a trace file really has. Columns that it does not have hold placeholders (arrival 0, length 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gives {
    /// True if the file has arrival times; false if all arrivals are the placeholder 0.
    pub arrivals: bool,
    /// True if the file has prompt and output lengths; false if all lengths are the placeholder 1.
    pub lengths: bool,
}

/// A trace that was read from a file.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The format in which the trace file was read, given or detected.
    pub format: TraceFormat,
    /// The requests of the trace file.
    pub workload: Workload,
    /// Which of the requests' values come from the file; the others are placeholders.
    pub gives: Gives,
    /// Number of rows in the file. Rows that options leave out count too.
    pub rows: u64,
    /// Messages with counts of the trace's rows that were left out or changed.
    pub notes: Vec<String>,
    /// Paths of the files that were read.
    pub files: Vec<PathBuf>,
}
