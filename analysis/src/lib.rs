//! Tables of a results folder as polars data frames, for analyses in Rust.
//!
//! Foretoken writes and reads its tables with the crate `parquet`. This crate reads the same files with polars, which
//! is an implementation of its own, so its tests also hold the files to the format.

mod error;
mod results;
mod spread;

pub use error::TableError;
pub use results::Results;
pub use spread::{Spread, of_groups};
