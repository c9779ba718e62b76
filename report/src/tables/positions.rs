//! `positions.parquet`: how often a draft token was verified and accepted at each position in the draft of a step, one
//! row per position and run.

use super::column::{Column, column};
use super::writer::{CELLS, Table};
use crate::{Cell, ReportError};
use foretoken_sim::metrics::PositionCounts;
use std::path::Path;

/// Writes `positions.parquet`.
///
/// Columns after the key columns (policy, swept settings, seed): `position` (from 0), and three counts of
/// request-steps. `attempts`: a draft token at this position was verified. `reached`: in addition, all draft tokens
/// before the position were accepted. `accepted`: in addition, the draft token at the position was accepted. A run
/// without draft tokens has no rows.
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
