//! Whole-crate tests: real traces against published statistics, files in every packing, logs with named columns, bad
//! input, extremes, generators, workloads.

mod bad_input;
mod columns;
mod extremes;
mod generators;
mod real_traces;
mod round_trip;
mod workloads;

use std::path::PathBuf;

/// The path of a file of the real traces; `None` if they are not available.
fn real(file: &str) -> Option<PathBuf> {
    foretoken_tests::traces().map(|folder| folder.join(file))
}
