//! `calibration.parquet`: the draft model's confidences and the number of right draft tokens, one row per bin of
//! confidence and run.

use super::column::{Column, column};
use super::writer::{CELLS, Table};
use crate::{Cell, ReportError};
use foretoken_sim::metrics::CalibrationBin;
use std::path::Path;

/// Writes `calibration.parquet`.
///
/// Columns after the key columns (policy, swept settings, seed): `bin` (index of the bin of confidence; bins have equal
/// width and start at 0), `drafts` (number of draft tokens for which verification showed whether they are right),
/// `right` (number of accepted draft tokens), `confidence_sum` (sum of the confidences of all draft tokens in
/// `drafts`). A run whose policy never looks at confidences has no rows.
pub fn write_calibration(path: &Path, cells: &[Cell]) -> Result<(), ReportError> {
    let mut table = Table::create(path, cells.iter().map(Cell::key), columns(&[]))?;
    for cells in cells.chunks(CELLS) {
        let keys: Vec<_> = cells.iter().flat_map(|c| c.calibration.iter().map(|_| c.key())).collect();
        let rows: Vec<_> = cells.iter().flat_map(|c| (0u32..).zip(c.calibration.iter().copied())).collect();
        table.write(&keys, columns(&rows))?;
    }
    table.finish()
}

fn columns(rows: &[(u32, CalibrationBin)]) -> Vec<Column> {
    vec![
        column("bin", rows.iter().map(|r| r.0)),
        column("drafts", rows.iter().map(|r| r.1.drafts)),
        column("right", rows.iter().map(|r| r.1.right)),
        column("confidence_sum", rows.iter().map(|r| r.1.confidence)),
    ]
}
