//! `lengths.parquet`: which draft lengths were used at which batch sizes. One row per draft length, bucket of batch
//! sizes and run. Steps with prompts and steps without prompts have separate rows.

use super::column::{Column, column};
use super::writer::{CELLS, Table};
use crate::{Cell, ReportError};
use foretoken_sim::metrics::LengthRow;
use std::path::Path;

/// Writes `lengths.parquet`.
///
/// Columns after the key columns (policy, swept settings, seed): `batch_size`, `batch_size_to` (least and greatest
/// decode batch size of the bucket), `draft_len` (mean draft length of a step, rounded), `prefilling` (did the steps
/// compute prompts?), and sums over the row's steps: `steps`, `request_steps` (decode requests, summed over the steps),
/// `busy_ps` (time inside the steps), `drafted`, `accepted`, `emitted` (tokens).
pub fn write_lengths(path: &Path, cells: &[Cell]) -> Result<(), ReportError> {
    let mut table = Table::create(path, cells.iter().map(Cell::key), columns(&[]))?;
    for cells in cells.chunks(CELLS) {
        let keys: Vec<_> = cells.iter().flat_map(|c| c.lengths.iter().map(|_| c.key())).collect();
        let rows: Vec<_> = cells.iter().flat_map(|c| c.lengths.iter().copied()).collect();
        table.write(&keys, columns(&rows))?;
    }
    table.finish()
}

fn columns(rows: &[LengthRow]) -> Vec<Column> {
    let size = |name, of: fn(&LengthRow) -> u32| column(name, rows.iter().map(of));
    let sum = |name, of: fn(&LengthRow) -> u64| column(name, rows.iter().map(of));
    vec![
        size("batch_size", |r| r.batch_size),
        size("batch_size_to", |r| r.batch_size_to),
        size("draft_len", |r| r.draft_len),
        column("prefilling", rows.iter().map(|r| r.prefilling)),
        sum("steps", |r| r.sums.steps),
        sum("request_steps", |r| r.sums.request_steps),
        sum("busy_ps", |r| r.sums.busy),
        sum("drafted", |r| r.sums.drafted),
        sum("accepted", |r| r.sums.accepted),
        sum("emitted", |r| r.sums.emitted),
    ]
}
