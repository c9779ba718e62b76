//! The option `--format` of several commands: whether results are printed as text or as JSON.

use clap::ValueEnum;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people to read
    #[default]
    Table,
    /// One JSON document
    Json,
}
