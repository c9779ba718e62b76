//! Tables as text for a terminal: columns without lines between them.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Table};
use std::ops::RangeBounds;

/// A table without lines. The columns with indices in `numbers` are aligned to the right.
pub fn plain_table<H, R, C>(header: H, rows: R, numbers: impl RangeBounds<usize>) -> Table
where
    H: IntoIterator<Item: Into<Cell>>,
    R: IntoIterator<Item = C>,
    C: IntoIterator<Item: Into<Cell>>,
{
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for (_, column) in table.column_iter_mut().enumerate().filter(|(i, _)| numbers.contains(i)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Sets the padding of all columns: one space before each column, and none after it.
pub fn narrow(mut table: Table) -> Table {
    table.column_iter_mut().for_each(|column| {
        column.set_padding((1, 0));
    });
    table
}

/// The text of a table, without spaces at the ends of lines.
pub fn table_lines(table: &Table) -> String {
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right_and_lines_end_with_their_text() {
        let table = plain_table(["name", "n"], [["a", "1"], ["long one", "22"]], 1..);
        assert_eq!(table_lines(&table), " name       n\n a          1\n long one  22\n");
        assert_eq!(table_lines(&narrow(table)), " name      n\n a         1\n long one 22\n");
        assert_eq!(
            table_lines(&plain_table(["n", "name"], [["10", "x"], ["2", "y"]], ..1)),
            "  n  name\n 10  x\n  2  y\n"
        );
    }
}
