//! Tests logs of which the workload description names the columns. All ways of writing times give the same requests,
//! and errors name the mistake.

use crate::round_trip::file;
use foretoken_traces::{Trace, TraceError, TraceSpec, WorkloadSpec, build, read};

const MAP: &str = "arrival = \"when\", prompt = \"in\", output = \"out\"";

/// Reads a log with the columns `when,in,out,kind`. `columns` is the TOML of the option of that name, and `more` has
/// further options.
fn log(rows: &str, columns: &str, more: &str) -> Result<Trace, TraceError> {
    let (_dir, path) = file(format!("when,in,out,kind\n{rows}").as_bytes());
    let spec: TraceSpec = toml::from_str(&format!("path = {path:?}\ncolumns = {{ {columns} }}\n{more}")).expect("TOML");
    read(&spec, None)
}

fn picoseconds(trace: &Trace) -> Vec<u64> {
    trace.workload.arrival.iter().map(|t| t.0).collect()
}

#[track_caller]
fn refused(result: Result<Trace, TraceError>, words: &[&str]) {
    let error = result.expect_err("a mistake");
    let all = format!("{error}\n{}", error.hint());
    for word in words {
        assert!(all.contains(word), "{word:?} is not in {all:?}");
    }
}

#[test]
fn every_way_to_write_times_gives_the_same_requests() {
    for (times, unit) in [
        (["5", "5.25", "8"], ""),
        (["-1.5", "-1.25", "1.5"], ""),
        (["1700000000.123", "1700000000.373", "1700000003.123"], ", unit = \"s\""),
        (["1700000000123", "1700000000373", "1700000003123"], ", unit = \"ms\""),
        (["1700000000123000", "1700000000373000.0", "1700000003123000"], ", unit = \"us\""),
        (["1700000000123000000", "1700000000373000000", "1700000003123000000"], ", unit = \"ns\""),
        (["2024-02-29 23:59:58.900", "2024-02-29 23:59:59.150", "2024-03-01 00:00:01.900"], ""),
        (["2024-02-29T23:59:58.9Z", "2024-03-01T00:59:59.15+01:00", "2024-03-01T00:00:01.9"], ""),
    ] {
        let rows = format!("{},7,5,chat\n{},8,6,code\n{},9,4,chat\n", times[0], times[1], times[2]);
        let trace = log(&rows, &format!("{MAP}{unit}, category = \"kind\""), "").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(picoseconds(&trace), [0, 250_000_000_000, 3_000_000_000_000], "{times:?}");
        let w = &trace.workload;
        assert_eq!(
            (&w.prompt_len[..], &w.output_len[..], &w.category[..]),
            (&[7, 8, 9][..], &[5, 6, 4][..], &[0, 1, 0][..])
        );
        assert_eq!(w.categories, ["chat", "code"]);
    }
}

#[test]
fn a_log_that_is_newest_first_is_sorted_when_asked() {
    let rows = "2024-03-20 00:00:00,3,1,a\n2024-03-10 00:00:00,2,1,a\n2024-03-01 00:00:00,1,1,a\n";
    refused(log(rows, MAP, ""), &["trace.data:3:", "\"when\"", "day before", "unsorted"]);
    let near = "5,1,1,a\n4,1,1,a\n";
    refused(log(near, MAP, ""), &["trace.data:3:", "\"when\"", "before the row above", "unsorted = \"sort\""]);
    let sorted = log(rows, MAP, "unsorted = \"sort\"").expect("sorted");
    assert_eq!(sorted.workload.prompt_len, [1, 2, 3]);
    let day = 86_400_000_000_000_000;
    assert_eq!(picoseconds(&sorted), [0, 9 * day, 19 * day]);
}

#[test]
fn mistakes_name_line_and_column() {
    let row = "0,1,1,a\n";
    let missing = MAP.replace("\"in\"", "\"input\"");
    refused(log(row, &missing, ""), &["trace.data:1:", "\"input\"", "missing", "when, in, out, kind"]);
    refused(log("0,x,1,a\n", MAP, ""), &["trace.data:2:", "\"in\"", "\"x\" is not a number"]);
    refused(log("noon,1,1,a\n", MAP, ""), &["trace.data:2:", "\"when\"", "\"noon\" is neither a number nor a time"]);
    refused(log("2024-01-01 00:00:00,1,1,a\n5,1,1,a\n", MAP, ""), &[":3:", "\"when\"", "as the rows above it"]);
    let unit = format!("{MAP}, unit = \"ms\"");
    refused(log("2024-01-01 00:00:00,1,1,a\n", &unit, ""), &[":2:", "\"when\"", "neither a number"]);
    refused(log("0,1,1,a\n30000000,1,1,a\n", MAP, ""), &[":3:", "\"when\"", "212 days", "unit"]);
    refused(log("0,1,0,a\n", MAP, ""), &[":2:", "\"out\"", "0 tokens"]);
    refused(log(row, MAP, "format = \"windows\""), &["columns is an option of columns files"]);
    let (_dir, path) = file(b"when,in,out\n0,1,1\n");
    let bare: TraceSpec = toml::from_str(&format!("path = {path:?}\nformat = \"columns\"")).expect("TOML");
    refused(read(&bare, None), &["columns = { arrival"]);
}

#[test]
fn a_source_of_lengths_needs_no_arrivals() {
    let (_dir, path) = file(b"in,out\n7,5\n8,6\n");
    let source = format!("{{ trace = {{ path = {path:?}, columns = {{ prompt = \"in\", output = \"out\" }} }} }}");
    let spec: WorkloadSpec =
        toml::from_str(&format!("arrivals = {{ batch = {{}} }}\nlengths = {source}")).expect("TOML");
    assert_eq!(build(&spec, 1, None).expect("built").workload.prompt_len, [7, 8]);
    let spec: WorkloadSpec = toml::from_str(&format!("arrivals = {source}")).expect("TOML");
    assert!(build(&spec, 1, None).expect_err("no times").to_string().contains("no arrival times"));
}

/// Each request has the priority of its row, in a sorted file, in an unsorted file, and if the file is a source of
/// lengths.
#[test]
fn a_column_gives_each_request_its_priority() {
    let with = format!("{MAP}, priority = \"kind\"");
    let rows = "5,7,5,-2\n4,8,6,0\n6,9,4,3\n";
    let sorted = log(rows, &with, "unsorted = \"sort\"").expect("sorted").workload;
    assert_eq!((&sorted.prompt_len[..], &sorted.priority[..]), (&[8, 7, 9][..], &[0, -2, 3][..]));
    assert!(log(rows, MAP, "unsorted = \"sort\"").expect("sorted").workload.priority.is_empty());
    refused(log("0,1,1,high\n", &with, ""), &[":2:", "\"kind\"", "\"high\" is not a whole number"]);
    refused(log("0,1,1,1.5\n", &with, ""), &["\"1.5\" is not a whole number"]);
    let (_dir, path) = file(b"in,out,p,kind\n7,5,3,chat\n8,6,-1,code\n");
    let columns = "{ prompt = \"in\", output = \"out\", category = \"kind\", priority = \"p\" }";
    let text =
        format!("arrivals = {{ batch = {{}} }}\nlengths = {{ trace = {{ path = {path:?}, columns = {columns} }} }}");
    let spec: WorkloadSpec = toml::from_str(&text).expect("TOML");
    assert_eq!(build(&spec, 1, None).expect("built").workload.priority, [3, -1]);
    let both: WorkloadSpec = toml::from_str(&format!("{text}\npriorities = {{ chat = 1 }}")).expect("TOML");
    assert!(build(&both, 1, None).expect_err("twice").to_string().contains("priorities of their own"));
}
