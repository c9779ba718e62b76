//! Tables of measured cells.

use crate::said;
use foretoken_calibrate::table::read;

/// The table of `foretoken calibrate TABLE.csv`.
pub fn table(data: &[u8]) {
    const FILE: &str = "table.csv";
    let Some(text) = said::text(data) else { return };
    match read(FILE, text) {
        Err(problem) => said::problem(&problem, FILE),
        Ok(cells) => said::finite(&cells),
    }
}
