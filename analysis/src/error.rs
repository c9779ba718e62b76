//! What can be wrong with a table.

use polars::prelude::PolarsError;
use std::path::PathBuf;

/// A table of results that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be opened.
    #[error("cannot open {path}: {cause}; give the folder that `foretoken run` wrote (`-o`)", path = path.display())]
    Open {
        /// The table's file.
        path: PathBuf,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// The file is no table, or a column is missing or has another type.
    #[error("{path}: {cause}", path = path.display())]
    Content {
        /// The table's file.
        path: PathBuf,
        /// What polars says of it.
        cause: PolarsError,
    },
}
