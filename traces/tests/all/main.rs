//! Tests of the whole crate: real traces against published statistics, files in every compression, logs with named
//! columns, logs of gateways and the page that lists the formats, bad input, extremes, generators, workloads.

mod bad_input;
mod columns;
mod extremes;
mod generators;
mod logs;
mod real_traces;
mod round_trip;
mod workloads;

use std::path::PathBuf;

/// The path of the file `file` among the real traces; `None` if the real traces are not available.
fn real(file: &str) -> Option<PathBuf> {
    foretoken_tests::traces().map(|folder| folder.join(file))
}
