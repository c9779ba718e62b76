//! `capacity.parquet`, one row per policy and seed, and `probes.parquet`, one row per rate that was tried.

use super::column::{Column, column};
use super::writer::Table;
use crate::{Key, ReportError};
use std::path::Path;

/// The capacity of one policy with one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityRow {
    /// Policy, swept values, seed.
    pub key: Key,
    /// The outcome of the search: "rate", "no rate" or "every rate tried".
    pub verdict: String,
    /// The capacity, requests a second; `None` if the policy carried no rate, or every rate that was tried.
    pub req_s: Option<f64>,
    /// The highest rate that was tried, requests a second.
    pub tried_up_to: f64,
    /// Why the policy does not carry more: "bounds" or "queue"; `None` if that is not known.
    pub limit: Option<String>,
    /// Output tokens a second and GPU.
    pub tok_s_gpu: Option<f64>,
    /// Number of rates above the capacity at which enough requests kept their bounds all the same.
    pub exceptions: u32,
    /// The bounds, seconds: TTFT, TPOT, E2E.
    pub slo: [Option<f64>; 3],
}

/// One rate that the search tried.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeRow {
    /// Policy, swept values, seed.
    pub key: Key,
    /// The tried rate, requests a second.
    pub rate: f64,
    /// Did enough requests keep their bounds, and did the server keep up?
    pub carried: bool,
    /// The number of counted requests, then how many of them had kept and how many had missed their bounds when the
    /// verdict was certain.
    pub counted: [u32; 3],
    /// Did the server keep up? `None` if the run was stopped before all counted requests ended.
    pub steady: Option<bool>,
}

/// Writes `capacity.parquet`.
///
/// # Errors
/// The file cannot be written, or the rows differ in their swept paths.
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

/// Writes `probes.parquet`.
///
/// # Errors
/// The file cannot be written, or the rows differ in their swept paths.
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
