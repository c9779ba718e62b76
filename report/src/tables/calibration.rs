//! `calibration.parquet`: the draft model's confidences and the number of right drafts, one row per bin of confidence
//! and cell.

use super::column::{Column, column};
use super::writer::{CELLS, Table};
use crate::{Cell, ReportError};
use foretoken_sim::metrics::CalibrationBin;
use std::path::Path;

/// Writes `calibration.parquet`.
///
/// Columns after the key: `bin` (index of the bin; bins have equal width and start at confidence 0), and `drafts`,
/// `right`, `confidence_sum` as [`CalibrationBin`] defines them. A cell whose policy never looks at confidences has no
/// rows.
///
/// # Errors
/// When the file cannot be written, or the cells differ in their swept paths.
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
