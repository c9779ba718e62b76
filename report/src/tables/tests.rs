//! Writes tables and reads them back: types, values against the records, nulls, bytes, and failures. `analysis/` and
//! the Python package read the same tables with polars.

use super::frame::Frame;
use crate::fixtures::{records, report};
use crate::*;
use foretoken_sim::metrics::Replicas;
use foretoken_sim::{RequestRecords, StepRecord, Time};
use itertools::Itertools;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use std::path::Path;

fn read(path: &Path) -> Frame {
    Frame::open(path).unwrap()
}

fn names(frame: &Frame) -> Vec<&str> {
    frame.names().collect()
}

fn write_requests(path: &Path, keys: &[&Key], records: &[RequestRecords]) -> Result<(), ReportError> {
    let mut writer = RequestsWriter::create(path, keys.iter().copied(), FleetColumns::None)?;
    keys.iter().zip_eq(records).try_for_each(|(key, records)| writer.push(key, records, &Replicas::default()))?;
    writer.finish()
}

#[test]
fn summary_has_every_number_of_every_cell() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("summary.parquet");
    let cells = report(3, &[0.5, 2.0], &["v1", "v0"], 2, 50).cells;
    write_summary(&path, &cells).unwrap();
    let frame = read(&path);
    assert_eq!(frame.height(), cells.len());
    assert_eq!(
        names(&frame)[..8],
        [
            "policy", "sweep.workload.rate-scale", "sweep.engine.scheduler", "seed", "implied", "speedup", "requests",
            "finished"
        ]
    );
    assert_eq!(frame.texts("sweep.engine.scheduler").unwrap()[0], "v1");
    let (policy, rate) = (frame.texts("policy").unwrap(), frame.reals("sweep.workload.rate-scale").unwrap());
    let seed = frame.counts("seed").unwrap();
    let (e2e, attainment) = (frame.reals("e2e_p90_s").unwrap(), frame.reals("slo_attainment").unwrap());
    let (tpot_bound, ttft_bound) = (frame.reals("slo_tpot_s").unwrap(), frame.reals("slo_ttft_s").unwrap());
    for (i, c) in cells.iter().enumerate() {
        assert_eq!((&policy[i], rate[i], seed[i]), (&c.key().policy, c.key().sweep[0].number, c.key().seed));
        assert_eq!(e2e[i], c.summary.e2e.map(|q| q.p90));
        assert_eq!(attainment[i], c.summary.slo_attainment);
        assert_eq!((tpot_bound[i], ttft_bound[i]), (Some(0.028), None));
    }
    // The names of all times in seconds end in `_s`. No other names do, except rates (`tok_s`, `req_s`).
    let seconds = names(&frame).into_iter().filter(|n| n.ends_with("_s")).count();
    // Of the columns with `_s`, two are request rates of an overloaded run (`req_s`), and eight are parts of the mean
    // end-to-end latency.
    assert_eq!(seconds, 2 + 5 * 4 + 4 + 3 + 2 + 8);
}

#[test]
fn requests_come_back_in_cell_order_with_nulls_where_nothing_happened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("requests.parquet");
    let cells = report(2, &[0.5, 2.0], &[], 1, 10).cells;
    let all: Vec<RequestRecords> = (1..=4).map(|seed| records(7, 1.0, 1.0, seed)).collect();
    let keys: Vec<&Key> = cells.iter().map(Cell::key).collect();
    write_requests(&path, &keys, &all).unwrap();
    let frame = read(&path);
    assert_eq!(frame.height(), 4 * 7);
    assert_eq!(
        names(&frame)[3..],
        [
            "request", "arrival_s", "first_scheduled_s", "first_token_s", "finish_s", "queue_s", "ttft_s", "tpot_s",
            "e2e_s", "emitted", "drafted", "verified", "accepted", "cached_tokens", "rounds", "preemptions", "outcome"
        ]
    );
    let policy = frame.texts("policy").unwrap();
    let [e2e, tpot, queue] = ["e2e_s", "tpot_s", "queue_s"].map(|name| frame.reals(name).unwrap());
    for (row, (cell, i)) in (0..4).flat_map(|c| (0..7).map(move |i| (c, i))).enumerate() {
        let r = &all[cell];
        assert_eq!(policy[row], keys[cell].policy);
        let expected = if i == 6 { (None, None, None) } else { (Some(r.e2e_s(i)), r.tpot_s(i), Some(r.queue_s(i))) };
        assert_eq!((e2e[row], tpot[row], queue[row]), expected, "row {row}");
    }
    assert_eq!(frame.texts("outcome").unwrap()[5..7], ["finished", "rejected"]);
}

#[test]
fn a_huge_cell_is_cut_into_row_groups_and_small_ones_share_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("requests.parquet");
    let cells = report(3, &[], &[], 1, 10).cells;
    let keys: Vec<&Key> = cells.iter().map(Cell::key).collect();
    let n = super::writer::ROWS + 1;
    write_requests(&path, &keys, &[RequestRecords::new(n), RequestRecords::new(0), RequestRecords::new(1)]).unwrap();
    let file = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    // The file has a huge run, a run without requests and a run with one request. The first row group has all rows of
    // the huge run except the last. The second group has this last row and the row of the run with one request.
    assert_eq!(file.num_row_groups(), 2);
    let frame = read(&path);
    assert_eq!(frame.height(), n + 1);
    assert_eq!(frame.reals("finish_s").unwrap()[n], None);
}

#[test]
fn steps_and_positions() {
    let dir = tempfile::tempdir().unwrap();
    let cells = report(3, &[], &[], 1, 50).cells;
    let path = dir.path().join("positions.parquet");
    write_positions(&path, &cells).unwrap();
    let frame = read(&path);
    assert_eq!(frame.texts("policy").unwrap(), ["fixed-1", "fixed-3", "fixed-3", "fixed-3"]);
    let expected: Vec<u64> = cells.iter().flat_map(|c| c.summary.positions.iter().map(|p| p.accepted)).collect();
    assert_eq!(frame.counts("accepted").unwrap(), expected);

    let path = dir.path().join("steps.parquet");
    let steps = [StepRecord { step: 4, end: Time::from_s(0.25), context: 900, ..StepRecord::default() }];
    let mut writer = StepsWriter::create(&path, [cells[0].key(), cells[1].key()], false).unwrap();
    writer.push(cells[0].key(), &steps, &[]).unwrap();
    writer.push(cells[1].key(), &[], &[]).unwrap();
    writer.finish().unwrap();
    let frame = read(&path);
    assert_eq!(frame.counts("context_tokens").unwrap(), [900]);
    assert_eq!(frame.reals("end_s").unwrap(), [Some(0.25)]);
}

/// Replica 0 made two steps, replica 1 none and replica 2 one. The second run has a single engine.
#[test]
fn steps_of_a_fleet_name_their_replicas() {
    let dir = tempfile::tempdir().unwrap();
    let cells = report(2, &[], &[], 1, 5).cells;
    let path = dir.path().join("steps.parquet");
    let steps = [0, 1, 7].map(|step| StepRecord { step, ..StepRecord::default() });
    let mut writer = StepsWriter::create(&path, cells.iter().map(Cell::key), true).unwrap();
    writer.push(cells[0].key(), &steps, &[2, 0, 1]).unwrap();
    writer.push(cells[1].key(), &steps[..1], &[]).unwrap();
    writer.finish().unwrap();
    let frame = read(&path);
    let none = u32::MAX;
    assert_eq!(frame.small_or("replica", none).unwrap(), [0, 0, 2, none]);
}

#[test]
fn no_cells_give_empty_tables_with_their_columns() {
    let dir = tempfile::tempdir().unwrap();
    let (summary, requests) = (dir.path().join("summary.parquet"), dir.path().join("requests.parquet"));
    write_summary(&summary, &[]).unwrap();
    write_requests(&requests, &[], &[]).unwrap();
    assert_eq!((read(&summary).height(), names(&read(&summary)).contains(&"e2e_mean_s")), (0, true));
    assert_eq!((read(&requests).height(), names(&read(&requests)).len()), (0, 19));
}

#[test]
fn the_same_cells_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let path = dir.path().join(name);
        let cells = report(5, &[0.5, 1.0], &[], 2, 300).cells;
        write_summary(&path, &cells).unwrap();
        let summary = std::fs::read(&path).unwrap();
        let all: Vec<_> = cells.iter().map(|c| records(300, 1.0, 1.0, c.key().seed)).collect();
        write_requests(&path, &cells.iter().map(Cell::key).collect::<Vec<_>>(), &all).unwrap();
        (summary, std::fs::read(&path).unwrap())
    };
    assert!(write("a.parquet") == write("b.parquet"));
}

#[test]
fn cells_that_sweep_something_else_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut cells = report(2, &[0.5, 2.0], &[], 1, 20).cells;
    cells[3].entry.key.sweep.clear();
    let error = write_summary(&dir.path().join("summary.parquet"), &cells).unwrap_err().to_string();
    assert_eq!(error, "cell fixed-1, seed 1 does not have the swept settings of the first cell (workload.rate-scale)");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Earlier versions of Foretoken wrote tables with the crate polars, which uses dictionaries and another order of
/// pages. `fixtures/polars` has the tables of this test as polars writes them.
#[test]
fn a_table_that_polars_wrote_is_read_like_ours() {
    let dir = tempfile::tempdir().unwrap();
    let cells = report(2, &[0.5, 2.0], &["v1", "v0"], 1, 20).cells;
    let entries: Vec<Entry> = cells.iter().map(|c| c.entry.clone()).collect();
    write_summary(&dir.path().join("summary.parquet"), &cells).unwrap();
    write_positions(&dir.path().join("positions.parquet"), &cells).unwrap();
    write_series(&dir.path().join("series.parquet"), &cells).unwrap();
    write_lengths(&dir.path().join("lengths.parquet"), &cells).unwrap();
    write_calibration(&dir.path().join("calibration.parquet"), &cells).unwrap();
    let all: Vec<_> = cells.iter().map(|c| records(20, 1.0, 1.0, c.key().seed)).collect();
    let keys: Vec<&Key> = cells.iter().map(Cell::key).collect();
    write_requests(&dir.path().join("requests.parquet"), &keys, &all).unwrap();
    let ours = read_cells(dir.path(), &entries).unwrap();
    assert_eq!(ours.len(), cells.len());
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/polars");
    let theirs = read_cells(&fixtures, &entries).unwrap();
    assert!(format!("{ours:?}") == format!("{theirs:?}"));
    assert_eq!(read_requests(&fixtures, keys[5]).unwrap(), all[5]);
}

/// The path of the partial file is a link to `/dev/full`, which accepts no bytes. So the writer fails as on a full
/// disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cells = report(2, &[], &[], 1, 20).cells;
    for name in ["summary.parquet", "requests.parquet"] {
        let path = dir.path().join(name);
        std::os::unix::fs::symlink("/dev/full", dir.path().join(format!("{name}.partial"))).unwrap();
        let error = if name == "summary.parquet" {
            write_summary(&path, &cells)
        } else {
            let all = [records(400_000, 1.0, 1.0, 1), records(10, 1.0, 1.0, 2)];
            write_requests(&path, &[cells[0].key(), cells[1].key()], &all)
        };
        let message = error.unwrap_err().to_string();
        assert_eq!(message, format!("cannot write {}: No space left on device (os error 28)", path.display()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{name}");
    }
}
