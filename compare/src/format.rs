//! Numbers and tables as text.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// Formats a share as a percentage without a plus sign.
pub fn percent(x: f64) -> String {
    format!("{:.1} %", x * 100.0)
}

/// Formats a share as a percentage with its sign.
pub fn signed(x: f64) -> String {
    format!("{:+.1} %", x * 100.0)
}

/// Formats an optional value; "-" if it is absent.
pub fn or_dash<T>(x: Option<T>, format: impl FnOnce(T) -> String) -> String {
    x.map_or_else(|| "-".to_owned(), format)
}

/// A table without lines. All columns from `first_right` on are aligned to the right.
pub fn plain_table<H, R, C>(header: H, rows: R, first_right: usize) -> Table
where
    H: IntoIterator<Item: Into<comfy_table::Cell>>,
    R: IntoIterator<Item = C>,
    C: IntoIterator<Item: Into<comfy_table::Cell>>,
{
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table.column_iter_mut().skip(first_right).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    table
}
