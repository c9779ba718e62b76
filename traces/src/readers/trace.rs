//! The result of reading a trace file: its requests, and whether the file has arrival times and lengths.

use crate::format::TraceFormat;
use foretoken_sim::Workload;
use std::path::PathBuf;

/// Says whether a trace file has arrival times and lengths. If the file lacks one of them, the requests have
/// placeholders instead: arrival time 0, prompt and output length 1.
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
    /// Whether the requests' arrival times and lengths come from the file or are placeholders.
    pub gives: Gives,
    /// Number of rows in the file. Rows that options leave out count too.
    pub rows: u64,
    /// Messages with counts of the trace's rows that were left out or changed.
    pub notes: Vec<String>,
    /// Paths of the files that were read.
    pub files: Vec<PathBuf>,
}
