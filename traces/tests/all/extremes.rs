//! Extreme numbers, files and pipes. Each must work, or must be refused quickly with a message.

use crate::round_trip::file;
use foretoken_traces::{ArrivalSpec, TraceSpec, WorkloadSpec, build, read};
use std::io::Write;
use std::time::{Duration, Instant};

const GENERATORS: [&str; 12] = [
    "poisson = { rate = 4.0 }", "gamma = { rate = 4.0, cv = 2.0 }", "azure-conv = {}",
    "azure-conv = { fine_cv = 0.1 }", "azure-code = {}", "mooncake-ticks = {}", "mooncake-poisson = {}",
    "adaspec-mooncake = {}", "burstgpt = {}", "t1 = {}", "t2 = {}", "t3 = {}",
];
const EXTREMES: [f64; 12] = [1e-320, 1e-30, 1e-9, 1e-3, 1e3, 1e9, 1e12, 1e30, 1e308, 0.0, -1.0, -1e308];

/// Builds a workload with the given arrivals and with `extent`, a line of settings such as `requests = 20`. Asserts
/// that this takes less than a minute, and that it gives sorted arrivals or a readable error. Returns whether it gave a
/// workload.
fn ends_well(arrivals: &str, extent: &str) -> bool {
    let text = format!("arrivals = {arrivals}\n{extent}\nlengths = {{ fixed = {{ prompt = 8, output = 2 }} }}");
    let spec: WorkloadSpec = toml::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let begun = Instant::now();
    let built = build(&spec, 3, None);
    // The test looks for searches that never end, so the limit of a minute is generous for a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(60), "{text}: took {:?}", begun.elapsed());
    match built {
        Ok(built) => {
            assert!(built.workload.arrival.is_sorted() && !built.workload.is_empty(), "{text}");
            true
        }
        Err(e) => {
            let said = format!("{e} {}", e.hint());
            assert!(said.contains("workload.") && !said.contains("NaN") && said.len() < 400, "{text}: {said}");
            false
        }
    }
}

#[test]
fn every_number_of_every_generator_may_be_extreme() {
    let (mut built, mut refused) = (0, 0);
    for generator in GENERATORS {
        let spec: ArrivalSpec = toml::from_str(generator).expect("a generator");
        let all = toml::Value::try_from(&spec).expect("plain data");
        let (name, leaves) = all.as_table().expect("an enum").iter().next().expect("its variant");
        for leaf in leaves.as_table().expect("settings").keys() {
            for value in EXTREMES {
                let mut changed = leaves.clone();
                changed[leaf] = value.into();
                let good = ends_well(&format!("{{ {name} = {changed} }}"), "requests = 20");
                if good { built += 1 } else { refused += 1 }
            }
        }
    }
    eprintln!("{built} built, {refused} refused");
    assert!(built > 100 && refused > 100, "{built} built, {refused} refused: one of them is not tried");
}

#[test]
fn settings_that_would_run_for_days_are_refused() {
    for (arrivals, key) in [
        ("{ t1 = { tau_s = 1e-30 } }", "arrivals.t1.tau_s: 1e-30 is out of range"),
        ("{ azure-conv = { fine_cv = 0.1, fine_tau_s = 1e-30 } }", "arrivals.azure-conv.fine_tau_s: 1e-30"),
        ("{ azure-code = { flicker_tau_s = 1e-30 } }", "arrivals.azure-code.flicker_tau_s: 1e-30"),
        ("{ azure-code = { rate_sigma = 1e30 } }", "arrivals.azure-code.rate_sigma: 1e30"),
        ("{ gamma = { rate = 5.0, cv = 1e308 } }", "arrivals.gamma.cv: 1e308 is out of range"),
        ("{ gamma = { rate = 5.0, cv = 1e-320 } }", "arrivals.gamma.cv: 1e-320"),
        ("{ gamma = { rate = 1e308, cv = 1.0 } }", "arrivals.gamma.rate: 1e308"),
        (
            "{ azure-conv = { rate = 1e-9, tau_s = 1e-6 } }",
            "arrivals: the arrival process made no request in 20 million steps",
        ),
    ] {
        let text =
            format!("arrivals = {arrivals}\nrequests = 20\nlengths = {{ fixed = {{ prompt = 8, output = 2 }} }}");
        let spec: WorkloadSpec = toml::from_str(&text).expect("a workload");
        let e = build(&spec, 1, None).expect_err(arrivals);
        assert!(e.to_string().starts_with(&format!("workload.{key}")) && !e.hint().is_empty(), "{e}; {}", e.hint());
    }
    // An active period of this process may last thirty years. Only the arrivals that are needed are drawn.
    assert!(ends_well("{ azure-code = { on_scale_s = 1e9 } }", "requests = 20"));
}

#[test]
fn more_requests_than_memory_are_refused_before_they_are_made() {
    for arrivals in ["{ poisson = { rate = 1e9 } }", "{ closed-loop = 4294967295 }"] {
        let text = format!(
            "arrivals = {arrivals}\nrequests = 4294967295\nlengths = {{ fixed = {{ prompt = 8, output = 2 }} }}"
        );
        let spec: WorkloadSpec = toml::from_str(&text).expect("a workload");
        let begun = Instant::now();
        match build(&spec, 1, None) {
            // Only a machine with about a terabyte of memory may build this workload of 4,294,967,295 requests.
            Ok(_) => assert!(foretoken_traces::limits::memory() > 800 << 30),
            Err(e) => {
                let said = format!("{e} {}", e.hint());
                assert!(said.contains("4294967295 requests takes 800 GiB"), "{said}");
                assert!(said.contains("FORETOKEN_MEMORY_GIB"), "{said}");
                assert!(begun.elapsed() < Duration::from_secs(5));
            }
        }
    }
}

/// Reads the bytes as a trace, which must fail with an error that contains all `words`.
#[track_caller]
fn refused(bytes: &[u8], words: &[&str]) {
    let (_dir, path) = file(bytes);
    let error = read(&TraceSpec::new(path), None).expect_err("a mistake");
    let all = format!("{error}\n{}", error.hint());
    words.iter().for_each(|word| assert!(all.contains(word), "{word:?} is not in {all:?}"));
}

#[test]
fn a_column_that_is_there_twice_is_refused_by_name() {
    let header = "t_s,input_tokens,output_tokens,output_tokens\n0.0,5,5,7\n";
    refused(header.as_bytes(), &[":1:", "\"output_tokens\"", "twice", "columns 3 and 4", "rename"]);
}

#[test]
fn a_number_beyond_all_bounds_in_json_names_line_and_key() {
    let good = r#"{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}"#;
    let bad = good.replace("600", "1e400");
    refused(bad.as_bytes(), &[":1:", "\"input_length\"", "character 38", "number out of range"]);
    refused(format!("{good}\n{bad}\n").as_bytes(), &[":2:", "\"input_length\"", "number out of range"]);
}

#[test]
fn too_many_categories_are_refused() {
    let rows: String = (0..70_000).map(|i| format!("{i},0,c{i},5,5\n")).collect();
    let text = format!("question_id,turn,category,input_tokens,output_tokens\n{rows}");
    refused(text.as_bytes(), &[":4098:", "\"category\"", "4096"]);
}

/// A named pipe is read like a file, and several times: for its format, its digest and its rows.
#[cfg(unix)]
#[test]
fn a_pipe_is_read_like_a_file() {
    let rows: String = (0..20_000).map(|i| format!("{i}.5,{},7\n", i % 900 + 1)).collect();
    let text = format!("t_s,input_tokens,output_tokens\n{rows}");
    let packed = zstd::encode_all(text.as_bytes(), 3).expect("packs");
    let (_dir, plain) = file(text.as_bytes());
    let expected = read(&TraceSpec::new(plain), None).expect("read").workload.arrival;
    for (name, bytes) in [("plain", text.into_bytes()), ("packed", packed)] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        let to = path.clone();
        let writer = std::thread::spawn(move || {
            let mut pipe = std::fs::File::options().write(true).open(to).expect("opened");
            // The pipe's writer gives only three bytes at first, like a slow program.
            pipe.write_all(&bytes[..3]).expect("written");
            std::thread::sleep(Duration::from_millis(20));
            pipe.write_all(&bytes[3..]).expect("written");
        });
        let spec = TraceSpec::new(&path);
        assert_eq!(read(&spec, None).expect("read").workload.arrival, expected);
        assert_eq!(read(&spec, None).expect("read again").workload.arrival, expected);
        writer.join().expect("written");
    }
}

#[cfg(unix)]
#[test]
fn a_device_is_refused_as_a_trace() {
    let error = read(&TraceSpec::new("/dev/zero"), None).expect_err("endless");
    assert!(error.to_string().contains("/dev/zero: is a device"), "{error}");
}
