//! Makes folders, and the errors, with hints, for results that cannot be written to disk.

use crate::spec::problem::{Problem, Result};
use foretoken_report::ReportError;
use std::path::Path;

/// The error for a result that could not be written, with a hint on what to do.
pub fn write_problem(error: ReportError) -> Box<Problem> {
    use std::io::ErrorKind::{OutOfMemory, PermissionDenied, ReadOnlyFilesystem};
    let what = match &error {
        ReportError::Write { cause, .. } => match cause.kind() {
            PermissionDenied | ReadOnlyFilesystem => "make the folder writable or choose another with -o",
            OutOfMemory => MORE_MEMORY,
            // zstd reports a lack of memory only in the error's text, not in its kind.
            _ if cause.to_string().contains("memory") => MORE_MEMORY,
            _ => "free some space or choose another folder with -o",
        },
        _ => "free some space or choose another folder with -o",
    };
    Problem::failed(error.to_string()).help(format!("{what}; finished cells are kept, and --resume goes on from them"))
}

const MORE_MEMORY: &str = "it ran out of memory: give it more, or run fewer cells at a time with --threads 1";

/// Makes a folder, and the folders above it.
pub fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Problem::failed(format!("cannot make the folder {}: {e}", folder.display())))
}
