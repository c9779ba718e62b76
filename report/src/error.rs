//! Errors of writing results and of reading them back.

use std::path::{Path, PathBuf};

/// Why a report cannot be written or read: a result file cannot be written or read, or cells have different swept
/// settings. After a failed write, no half-written file has the final name.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The operating system refused the write, for example because the disk is full or the folder is missing.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The final path of the file.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The Parquet encoder reported an error.
    #[error("cannot write {}: {cause}", path.display())]
    Parquet {
        /// The final path of the file.
        path: PathBuf,
        /// The error that the Parquet writer reported.
        cause: parquet::errors::ParquetError,
    },
    /// A result file that cannot be read back.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        cause: String,
    },
    /// Cells of one report differ in their swept settings.
    #[error("cell {cell} does not have the swept settings of the first cell ({expected})")]
    SweepMismatch {
        /// The cell (policy, swept values, seed) that has other swept settings than the first cell.
        cell: String,
        /// The paths of the first cell's swept settings.
        expected: String,
    },
}

impl ReportError {
    /// Returns a function that makes a [`ReportError::Write`] for `path` from an I/O error.
    pub(crate) fn write(path: &Path) -> impl FnOnce(std::io::Error) -> ReportError {
        move |cause| ReportError::Write { path: path.to_path_buf(), cause }
    }
}
