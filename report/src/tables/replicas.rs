//! `replicas.parquet`: the counts of each replica of a fleet, one row per replica and run.

use super::column::{Column, column};
use super::writer::Table;
use crate::{Key, ReportError};
use foretoken_sim::metrics::ReplicaSummary;
use std::path::Path;

/// One row: the run's key, the replica's index, and the replica's counts.
pub type ReplicaRow<'a> = (&'a Key, u32, ReplicaSummary);

/// Writes `replicas.parquet`. `keys` are the keys of all runs, also of runs without rows.
///
/// Columns after the key columns (policy, swept settings, seed): `replica` (index), `requests`, `finished`, `rejected`
/// (numbers of requests), `prompt_tokens`, `cached_tokens`, `emitted` (tokens), `steps`, `busy_s` (time inside steps),
/// `mean_batch_size`, `verified`, `accepted` (draft tokens), `preemptions`, `kv_use_peak` (share of the replica's KV
/// blocks).
pub fn write_replicas<'a>(
    path: &Path,
    keys: impl IntoIterator<Item = &'a Key>,
    rows: &[ReplicaRow],
) -> Result<(), ReportError> {
    let mut table = Table::create(path, keys, columns(&[]))?;
    let of: Vec<&Key> = rows.iter().map(|row| row.0).collect();
    table.write(&of, columns(rows))?;
    table.finish()
}

fn columns(rows: &[ReplicaRow]) -> Vec<Column> {
    let count = |name, of: fn(&ReplicaSummary) -> u64| column(name, rows.iter().map(|r| of(&r.2)));
    let number = |name, of: fn(&ReplicaSummary) -> f64| column(name, rows.iter().map(|r| of(&r.2)));
    vec![
        column("replica", rows.iter().map(|r| r.1)),
        count("requests", |r| r.requests),
        count("finished", |r| r.finished),
        count("rejected", |r| r.rejected),
        count("prompt_tokens", |r| r.prompt_tokens),
        count("cached_tokens", |r| r.cached_tokens),
        count("emitted", |r| r.emitted),
        count("steps", |r| r.steps),
        number("busy_s", |r| r.busy_s),
        number("mean_batch_size", |r| r.mean_batch_size),
        count("verified", |r| r.verified),
        count("accepted", |r| r.accepted),
        count("preemptions", |r| r.preemptions),
        number("kv_use_peak", |r| r.kv_use_peak),
    ]
}
