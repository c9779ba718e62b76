//! `series.parquet`: batch size and tokens over time, one row per bin of time and run.

use super::column::{Column, column};
use super::writer::{CELLS, Table};
use crate::{Cell, ReportError};
use foretoken_sim::metrics::Bin;
use std::path::Path;

/// Writes `series.parquet`.
///
/// Columns after the key columns (policy, swept settings, seed): `start_s`, `width_s` (start and width of the bin),
/// `busy_ps` (time inside steps, ps), `batch_size` (mean decode batch size over `busy_ps`; null if no step ran), and
/// sums over the steps that ended in the bin: `request_steps` (decode requests, summed over the steps), `drafted`,
/// `accepted`, `emitted` (tokens). Empty bins are left out, except a run's last bin.
pub fn write_series(path: &Path, cells: &[Cell]) -> Result<(), ReportError> {
    let mut table = Table::create(path, cells.iter().map(Cell::key), columns(&[]))?;
    for cells in cells.chunks(CELLS) {
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        for cell in cells {
            let width = cell.series.width.as_s();
            let last = cell.series.bins.len().saturating_sub(1);
            let bins = cell.series.bins.iter().enumerate().filter(|(i, b)| *i == last || **b != Bin::default());
            rows.extend(bins.map(|(i, b)| (i as f64 * width, width, *b)));
            keys.resize(rows.len(), cell.key());
        }
        table.write(&keys, columns(&rows))?;
    }
    table.finish()
}

fn columns(rows: &[(f64, f64, Bin)]) -> Vec<Column> {
    let sum = |name, of: fn(&Bin) -> u64| column(name, rows.iter().map(|r| of(&r.2)));
    let batch_size = |b: &Bin| (b.busy > 0).then(|| b.batch_size());
    vec![
        column("start_s", rows.iter().map(|r| r.0)),
        column("width_s", rows.iter().map(|r| r.1)),
        sum("busy_ps", |b| b.busy),
        column("batch_size", rows.iter().map(|r| batch_size(&r.2))),
        sum("request_steps", |b| b.request_steps),
        sum("drafted", |b| b.drafted),
        sum("accepted", |b| b.accepted),
        sum("emitted", |b| b.emitted),
    ]
}
