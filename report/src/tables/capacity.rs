//! Writes `capacity.parquet`, with one row per policy and seed, and `probes.parquet`, with one row per tried request
//! rate. Both tables have the results of a search for the highest rate that a server carries.

use super::column::{Column, column};
use super::writer::Table;
use crate::{Key, ReportError};
use std::path::Path;

/// The capacity (the highest request rate within the SLO bounds) of one policy with one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityRow {
    /// Policy, swept values and seed of the capacity search.
    pub key: Key,
    /// The outcome of the search: "rate" (a capacity was found), "no rate" (the server carried none of the tried rates)
    /// or "every rate tried" (it carried all of them).
    pub verdict: String,
    /// The capacity, requests per second. `None` if the server carried none of the tried rates, or all of them. A
    /// server carries a rate if enough requests keep their SLO bounds and the queue does not grow.
    pub req_s: Option<f64>,
    /// The highest rate that was tried, requests a second.
    pub tried_up_to: f64,
    /// Why the server does not carry higher rates: "bounds" (requests miss their SLO bounds) or "queue" (the queue
    /// grows). `None` if every tried rate was carried.
    pub limit: Option<String>,
    /// Output tokens per second and GPU at the capacity, the highest rate within the SLO bounds; `None` without a
    /// capacity.
    pub tok_s_gpu: Option<f64>,
    /// Number of carried rates above the lowest rate that the server did not carry. A rate is carried if enough
    /// requests keep their SLO bounds and the queue does not grow.
    pub exceptions: u32,
    /// The SLO bounds TTFT, TPOT and E2E, seconds; `None` for a bound that is not set.
    pub slo: [Option<f64>; 3],
}

/// One request rate that the search for the highest rate tried, with its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeRow {
    /// Policy, swept values and seed of the capacity search.
    pub key: Key,
    /// The tried rate, requests a second.
    pub rate: f64,
    /// Did enough requests keep their SLO bounds, and did the server keep up with the arrivals?
    pub carried: bool,
    /// Number of counted requests, number that had kept their SLO bounds when the run ended, and number that had missed
    /// a bound. The first requests of a run fill the server, and the last requests keep it full, so they are not
    /// counted.
    pub counted: [u32; 3],
    /// Did the server keep up with the arrivals? `None` if the run was stopped before all counted requests ended.
    pub steady: Option<bool>,
}

/// Writes `capacity.parquet`: one row per policy, swept values and seed of a capacity search.
///
/// # Errors
/// The file cannot be written, or the rows do not all sweep the same settings.
pub fn write_capacity(path: &Path, rows: &[CapacityRow]) -> Result<(), ReportError> {
    let columns = |rows: &[CapacityRow]| -> Vec<Column> {
        let slo = |i: usize| rows.iter().map(|r| r.slo[i]).collect::<Vec<_>>();
        vec![
            column("verdict", rows.iter().map(|r| r.verdict.as_str())),
            column("req_s", rows.iter().map(|r| r.req_s)),
            column("tried_up_to", rows.iter().map(|r| r.tried_up_to)),
            column("limit", rows.iter().map(|r| r.limit.as_deref())),
            column("tok_s_gpu", rows.iter().map(|r| r.tok_s_gpu)),
            column("exceptions", rows.iter().map(|r| r.exceptions)),
            column("slo_ttft_s", slo(0)),
            column("slo_tpot_s", slo(1)),
            column("slo_e2e_s", slo(2)),
        ]
    };
    write(path, rows, |r| &r.key, columns)
}

/// Writes `probes.parquet`: one row for each request rate that a capacity search tried.
///
/// # Errors
/// The file cannot be written, or the rows do not all sweep the same settings.
pub fn write_probes(path: &Path, rows: &[ProbeRow]) -> Result<(), ReportError> {
    let columns = |rows: &[ProbeRow]| -> Vec<Column> {
        let counted = |i: usize| rows.iter().map(|r| r.counted[i]).collect::<Vec<_>>();
        vec![
            column("rate", rows.iter().map(|r| r.rate)),
            column("carried", rows.iter().map(|r| r.carried)),
            column("counted", counted(0)),
            column("kept", counted(1)),
            column("missed", counted(2)),
            column("steady", rows.iter().map(|r| r.steady)),
        ]
    };
    write(path, rows, |r| &r.key, columns)
}

fn write<R>(
    path: &Path,
    rows: &[R],
    key: impl Fn(&R) -> &Key,
    columns: impl Fn(&[R]) -> Vec<Column>,
) -> Result<(), ReportError> {
    let keys: Vec<&Key> = rows.iter().map(key).collect();
    let mut table = Table::create(path, keys.iter().copied(), columns(&[]))?;
    table.write(&keys, columns(rows))?;
    table.finish()
}
