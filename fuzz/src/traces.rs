//! Fuzzes the readers of traces of requests.

use crate::said;
use foretoken_traces::{Columns, TraceError, TraceFormat, TraceSpec, inspect, read};
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// Reads `data` as a trace whose format the reader detects. The statistics of an accepted trace must be finite.
pub fn any(data: &[u8]) {
    with_file(data, |path| {
        trace(&TraceSpec::new(path));
        match inspect(&TraceSpec::new(path)) {
            Err(error) => failed(&error, path),
            Ok(stats) => said::finite(&stats),
        }
    });
}

/// Reads `data` as a trace of requests in the format of BurstGPT.
pub fn burstgpt(data: &[u8]) {
    of(TraceFormat::BurstGpt, data);
}

/// Reads `data` as a trace of requests in the format of Azure.
pub fn azure(data: &[u8]) {
    of(TraceFormat::Azure, data);
}

/// Reads `data` as a trace of requests in the format of Mooncake.
pub fn mooncake(data: &[u8]) {
    of(TraceFormat::Mooncake, data);
}

/// Reads `data` as spans of OpenTelemetry.
pub fn opentelemetry(data: &[u8]) {
    of(TraceFormat::OpenTelemetry, data);
}

/// Reads `data` as LiteLLM's spend logs.
pub fn litellm(data: &[u8]) {
    of(TraceFormat::LiteLlm, data);
}

/// Reads `data` as requests in the format of the benchmark Spec-Bench.
pub fn spec_bench(data: &[u8]) {
    of(TraceFormat::SpecBench, data);
}

/// Reads `data` as a trace of requests whose columns have names that an experiment states (`at`, `in`, `out`, `kind`),
/// and once more with sessions (`chat`, `wait`).
pub fn columns(data: &[u8]) {
    let name = |name: &str| name.to_owned();
    let columns = Columns {
        arrival: Some(name("at")),
        prompt: name("in"),
        output: name("out"),
        category: Some(name("kind")),
        priority: None,
        prefix: None,
        session: None,
        delay: None,
        unit: None,
    };
    let of_sessions = Columns { session: Some(name("chat")), delay: Some(name("wait")), ..columns.clone() };
    with_file(data, |path| {
        for columns in [columns, of_sessions] {
            trace(&TraceSpec { columns: Some(columns), ..TraceSpec::new(path) });
        }
    });
}

fn of(format: TraceFormat, data: &[u8]) {
    with_file(data, |path| trace(&TraceSpec { format: Some(format), ..TraceSpec::new(path) }));
}

/// Reads the trace `spec`. The requests of an accepted trace must be in order of arrival, with at least one prompt
/// token and one output token each. Their bounds on the time per output token must be above 0.
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

/// Calls `read` with the path of a temporary file that holds `data`, because the readers of traces only take paths.
fn with_file(data: &[u8], read: impl FnOnce(&Path)) {
    let mut file = NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(data).expect("it can be written");
    read(file.path());
}
