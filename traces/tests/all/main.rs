//! Whole-crate tests: real traces against published statistics, files in every packing, bad input, workloads.

mod bad_input;
mod extremes;
mod generators;
mod real_traces;
mod round_trip;
mod workloads;

use std::path::PathBuf;

/// The folder of real traces, or a loud word that it is missing.
fn real(file: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FORETOKEN_TRACES");
    if folder.is_none() {
        eprintln!("SKIPPED: {file} needs the real traces; set FORETOKEN_TRACES to their folder");
    }
    folder.map(|f| PathBuf::from(f).join(file))
}
