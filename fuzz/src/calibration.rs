//! Fuzzes the reader of tables of measured cells.

use crate::said;
use foretoken_calibrate::table::read;

/// Reads `data` as the table of `foretoken calibrate TABLE.csv`. All numbers of a table that is accepted must be
/// finite.
pub fn table(data: &[u8]) {
    const FILE: &str = "table.csv";
    let Some(text) = said::text(data) else { return };
    match read(FILE, text) {
        Err(problem) => said::problem(&problem, FILE),
        Ok(cells) => said::finite(&cells),
    }
}
