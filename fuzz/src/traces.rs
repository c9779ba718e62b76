//! Traces of requests, and tables of published results.

use crate::said;
use foretoken_traces::{Columns, TraceError, TraceFormat, TraceSpec, inspect, read, read_specforge, read_tree_steps};
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// A trace whose format is detected.
pub fn any(data: &[u8]) {
    with_file(data, |path| {
        trace(&TraceSpec::new(path));
        match inspect(path, None) {
            Err(error) => failed(&error, path),
            Ok(stats) => said::finite(&stats),
        }
    });
}

/// A trace of BurstGPT.
pub fn burstgpt(data: &[u8]) {
    of(TraceFormat::BurstGpt, data);
}

/// A trace of Azure.
pub fn azure(data: &[u8]) {
    of(TraceFormat::Azure, data);
}

/// A trace of Mooncake.
pub fn mooncake(data: &[u8]) {
    of(TraceFormat::Mooncake, data);
}

/// Requests of Spec-Bench.
pub fn spec_bench(data: &[u8]) {
    of(TraceFormat::SpecBench, data);
}

/// A log whose columns the experiment names.
pub fn columns(data: &[u8]) {
    let name = |name: &str| name.to_owned();
    let columns = Columns {
        arrival: Some(name("at")),
        prompt: name("in"),
        output: name("out"),
        category: Some(name("kind")),
        unit: None,
    };
    with_file(data, |path| trace(&TraceSpec { columns: Some(columns), ..TraceSpec::new(path) }));
}

/// Tables of published results: CSV, and JSON lines.
pub fn published(data: &[u8]) {
    with_file(data, |path| {
        match read_specforge(path) {
            Err(error) => failed(&error, path),
            Ok(rows) => said::finite(&rows),
        }
        if let Err(error) = read_tree_steps(path) {
            failed(&error, path);
        }
    });
}

fn of(format: TraceFormat, data: &[u8]) {
    with_file(data, |path| trace(&TraceSpec { format: Some(format), ..TraceSpec::new(path) }));
}

/// Requests come in order, and have prompts and outputs.
fn trace(spec: &TraceSpec) {
    match read(spec, Some(0.05)) {
        Err(error) => failed(&error, &spec.path),
        Ok(trace) => {
            let all = &trace.workload;
            assert!(all.arrival.is_sorted(), "requests are not in order");
            assert!(all.prompt_len.iter().chain(&all.output_len).all(|&n| n > 0), "a request without tokens");
            assert!(!all.slo_tpot_s.iter().any(|s| s.is_nan() || *s <= 0.0), "a bound of no time");
            said::finite(&all.recordings);
            trace.notes.iter().for_each(|note| said::message(note));
        }
    }
}

fn failed(error: &TraceError, path: &Path) {
    said::trace(error, &path.display().to_string());
}

/// Traces are read by path alone.
fn with_file(data: &[u8], read: impl FnOnce(&Path)) {
    let mut file = NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(data).expect("it can be written");
    read(file.path());
}
