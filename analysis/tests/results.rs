//! Runs the program that `FORETOKEN` names, and reads its tables with polars.

use foretoken_analysis::{Results, TableError, of_groups};
use polars::prelude::DataType;
use std::path::Path;
use std::process::Command;

/// Runs the quickstart with two seeds and 120 requests into `out`.
fn run(out: &Path) {
    let program = std::env::var_os("FORETOKEN").expect("FORETOKEN names the program: run .ci/analysis");
    let experiment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/quickstart.toml");
    let mut command = Command::new(program);
    command.arg("run").arg(experiment).arg("-o").arg(out);
    command.args(["--no-figures", "--set", "workload.requests=120", "--set", "seeds=[1, 2]"]);
    command.args(["--set", "output.steps=true", "--set", "engine.max_num_seqs={ sweep = [8, 64] }"]);
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn polars_reads_every_table_of_a_run() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    run(&out);
    let results = Results::at(&out);
    let mut tables = 0;
    for entry in std::fs::read_dir(&out).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "parquet") {
            let table = results.table(path.file_stem().unwrap().to_str().unwrap()).unwrap();
            assert_eq!(table.column("policy").unwrap().dtype(), &DataType::String, "{}", path.display());
            assert_eq!(table.column("seed").unwrap().dtype(), &DataType::UInt64, "{}", path.display());
            tables += 1;
        }
    }
    assert!(tables >= 5, "only {tables} tables");

    // The summary's mean latencies are the means of the requests' latencies.
    let summary = results.table("summary").unwrap();
    let requests = results.table("requests").unwrap();
    let runs = summary.height();
    assert_eq!(requests.height(), runs * 120);
    let means = results.numbers("summary", "e2e_mean_s").unwrap();
    let name = |policies: &[String], loads: &[Option<f64>], seeds: &[Option<u64>]| -> Vec<String> {
        policies.iter().zip(loads).zip(seeds).map(|((p, l), s)| format!("{p} {l:?} {s:?}")).collect()
    };
    let names = |table: &str| {
        let frame = results.table(table).unwrap();
        let seeds: Vec<Option<u64>> = frame.column("seed").unwrap().u64().unwrap().iter().collect();
        let loads = results.numbers(table, "sweep.engine.max_num_seqs").unwrap();
        name(&results.texts(table, "policy").unwrap(), &loads, &seeds)
    };
    let spreads = of_groups(&names("requests"), &results.numbers("requests", "e2e_s").unwrap());
    assert_eq!(spreads.len(), runs);
    for (name, mean) in names("summary").iter().zip(means) {
        let (ours, mean) = (spreads[name].mean, mean.unwrap());
        assert!((ours / mean - 1.0).abs() < 1e-9, "{name}: {ours} and {mean}");
    }
}

#[test]
fn a_missing_table_and_a_foreign_file_are_named() {
    let place = tempfile::tempdir().unwrap();
    let results = Results::at(place.path());
    let error = results.table("summary").unwrap_err();
    assert!(matches!(error, TableError::Open { .. }) && error.to_string().contains("summary.parquet"), "{error}");
    std::fs::write(place.path().join("steps.parquet"), "no table").unwrap();
    let error = results.table("steps").unwrap_err();
    assert!(matches!(error, TableError::Content { .. }) && error.to_string().contains("steps.parquet"), "{error}");
}
