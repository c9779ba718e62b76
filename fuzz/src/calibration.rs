//! Fuzzes the reader of CSV tables of measured throughputs and latencies, which `foretoken calibrate` fits.

use crate::said;
use foretoken_servers::calibrate::table::read;

/// Reads `data` as a table for `foretoken calibrate TABLE.csv`. If the table is accepted, all its numbers must be
/// finite.
pub fn table(data: &[u8]) {
    const FILE: &str = "table.csv";
    let Some(text) = said::text(data) else { return };
    match read(FILE, text) {
        Err(problem) => said::problem(&problem, FILE),
        Ok(cells) => said::finite(&cells),
    }
}
