//! Errors of writing results and of reading them back.

use std::path::{Path, PathBuf};

/// Why results cannot be written or read back. Either a result file cannot be written or read, or the cells of a report
/// (a cell is one run of one policy) sweep different settings. A failed write leaves no half-written file under the
/// final name.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The operating system refused the write, for example because the disk is full or the folder is missing.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The path that the complete result file would have.
        path: PathBuf,
        cause: std::io::Error,
    },
    #[error("cannot write {}: {cause}", path.display())]
    Parquet {
        /// The path that the complete Parquet file would have.
        path: PathBuf,
        cause: parquet::errors::ParquetError,
    },
    /// A result file that cannot be read back.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The path of the result file that cannot be read back.
        path: PathBuf,
        /// What is wrong with the result file, as text.
        cause: String,
    },
    /// The cells of one report (a cell is one run of one policy) do not all sweep the same settings.
    #[error("cell {cell} does not have the swept settings of the first cell ({expected})")]
    SweepMismatch {
        /// The policy, swept values and seed of the run that has other swept settings than the first run of the report.
        cell: String,
        /// The paths of the first cell's swept settings (a cell is one run of one policy), as text.
        expected: String,
    },
}

impl ReportError {
    /// Returns a function that makes a [`ReportError::Write`] for `path` from an I/O error.
    pub(crate) fn write(path: &Path) -> impl FnOnce(std::io::Error) -> ReportError {
        move |cause| ReportError::Write { path: path.to_path_buf(), cause }
    }
}
