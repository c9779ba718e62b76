//! The result of reading a trace file.

use crate::format::TraceFormat;
use foretoken_sim::Workload;
use std::path::PathBuf;

/// Which columns a trace really has. Columns that it does not have hold placeholders (arrival 0, length 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gives {
    /// Whether arrival times are real.
    pub arrivals: bool,
    /// Whether prompt and output lengths are real.
    pub lengths: bool,
}

/// A trace that was read from a file.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The format in which the file was read.
    pub format: TraceFormat,
    /// The requests in the file.
    pub workload: Workload,
    /// Which columns of the requests are real.
    pub gives: Gives,
    /// Number of rows in the file. Rows that options leave out count too.
    pub rows: u64,
    /// Messages with counts of the rows that were left out or changed.
    pub notes: Vec<String>,
    /// Paths of the files that were read.
    pub files: Vec<PathBuf>,
}
