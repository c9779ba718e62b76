//! `positions.parquet`: how often a draft was made and accepted at each draft position, one row per position and cell.

use super::column::{Column, column};
use super::writer::{CELLS, Table};
use crate::{Cell, ReportError};
use foretoken_sim::metrics::PositionCounts;
use std::path::Path;

/// Writes `positions.parquet`.
///
/// Columns after the key: `position` (from 0), and `attempts`, `reached`, `accepted` as [`PositionCounts`] defines
/// them. A cell without drafts has no rows.
///
/// # Errors
/// When the file cannot be written, or the cells differ in their swept paths.
pub fn write_positions(path: &Path, cells: &[Cell]) -> Result<(), ReportError> {
    let mut table = Table::create(path, cells.iter().map(Cell::key), columns(&[]))?;
    for cells in cells.chunks(CELLS) {
        let rows: Vec<_> = cells
            .iter()
            .flat_map(|c| (0u32..).zip(&c.summary.positions).map(|(at, counts)| (c.key(), at, counts)))
            .collect();
        let keys: Vec<_> = rows.iter().map(|r| r.0).collect();
        let counts: Vec<_> = rows.iter().map(|&(_, at, counts)| (at, *counts)).collect();
        table.write(&keys, columns(&counts))?;
    }
    table.finish()
}

fn columns(rows: &[(u32, PositionCounts)]) -> Vec<Column> {
    let count = |name, of: fn(&PositionCounts) -> u64| column(name, rows.iter().map(|(_, c)| of(c)));
    vec![
        column("position", rows.iter().map(|r| r.0)),
        count("attempts", |c| c.attempts),
        count("reached", |c| c.reached),
        count("accepted", |c| c.accepted),
    ]
}
