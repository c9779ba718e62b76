//! CSV with named columns: rows are streamed, fields are typed, and errors name file, line and column.

use super::number::{self, Bad};
use crate::error::{TraceError, nearest};
use crate::open::{Source, broken, not_utf8, open};
use foretoken_sim::Time;
use std::path::Path;

/// An open CSV file, with its current row.
pub(super) struct Table<'a> {
    path: &'a Path,
    reader: csv::Reader<Source>,
    header: Vec<String>,
    row: csv::ByteRecord,
}

/// A column of a CSV file, which was found by its name in the header.
#[derive(Clone, Copy)]
pub(super) struct Column<'n> {
    index: usize,
    name: &'n str,
}

impl<'a> Table<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Table<'a>, TraceError> {
        let mut reader = csv::ReaderBuilder::new().buffer_capacity(1 << 16).from_reader(open(path)?);
        let header = match reader.byte_headers() {
            Ok(names) => names.clone(),
            Err(e) => return Err(csv_error(path, 1, e)),
        };
        reader.get_mut().get_mut().row_ended();
        let name = |bytes: &[u8]| std::str::from_utf8(bytes.trim_ascii()).map(str::to_owned);
        let header = header.iter().map(name).collect::<Result<_, _>>().map_err(|_| not_utf8(path, 1, None))?;
        Ok(Table { path, reader, header, row: csv::ByteRecord::new() })
    }

    /// True if the CSV file's header has a column of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.header.iter().any(|column| column == name)
    }

    /// The column with this name. It is an error if two columns or no column have this name. In the second case the
    /// error names similar columns and lists all columns.
    pub(super) fn column<'n>(&self, name: &'n str) -> Result<Column<'n>, TraceError> {
        let mut found = (0..self.header.len()).filter(|&i| self.header[i] == name);
        if let Some(index) = found.next() {
            let Some(second) = found.next() else { return Ok(Column { index, name }) };
            let what = format!("is there twice, as columns {} and {}", index + 1, second + 1);
            let hint = "nothing says which of the two is meant: remove or rename one";
            return Err(TraceError::row(self.path, 1, Some(name), what, hint));
        }
        let all = self.header.join(", ");
        let near = nearest(name, self.header.iter().map(String::as_str));
        let hint = match near.as_slice() {
            [] => format!("the file has the columns: {all}"),
            names => format!("the nearest columns are: {}; the file has: {all}", names.join(", ")),
        };
        Err(TraceError::row(self.path, 1, Some(name), "is missing from the header", hint))
    }

    /// Moves to the next row of the CSV file. Returns false at the end of the file.
    pub(super) fn next(&mut self) -> Result<bool, TraceError> {
        let more = self.reader.read_byte_record(&mut self.row);
        let more = more.map_err(|e| csv_error(self.path, self.reader.position().line(), e))?;
        self.reader.get_mut().get_mut().row_ended();
        Ok(more)
    }

    /// Number of the file's line, from 1, in which the current row begins.
    pub(super) fn line(&self) -> u64 {
        self.row.position().map_or(0, csv::Position::line)
    }

    /// The bytes of the field of `column` in the current row.
    pub(super) fn bytes(&self, column: Column<'_>) -> &[u8] {
        // The CSV reader checks that every row has as many fields as the header.
        &self.row[column.index]
    }

    /// The field of `column` in the current row as text.
    pub(super) fn text(&self, column: Column<'_>) -> Result<&str, TraceError> {
        std::str::from_utf8(self.bytes(column)).map_err(|_| not_utf8(self.path, self.line(), Some(column.name)))
    }

    /// The field of `column` in the current row as a number of tokens.
    pub(super) fn tokens(&self, column: Column<'_>) -> Result<u32, TraceError> {
        number::tokens(self.bytes(column)).map_err(|why| self.bad(column, why))
    }

    /// The field of `column` in the current row as a time in decimal seconds, at least 0.
    pub(super) fn seconds(&self, column: Column<'_>) -> Result<Time, TraceError> {
        number::seconds(self.bytes(column)).map_err(|why| self.bad(column, why))
    }

    /// The field of `column` in the current row as a finite number.
    pub(super) fn finite(&self, column: Column<'_>) -> Result<f64, TraceError> {
        number::finite(self.bytes(column)).map_err(|why| self.bad(column, why))
    }

    /// The field of `column` in the current row as a whole number of 32 bits with a sign.
    pub(super) fn whole(&self, column: Column<'_>) -> Result<i32, TraceError> {
        let text = self.text(column)?.trim();
        text.parse().map_err(|_| self.bad(column, "is not a whole number from -2147483648 to 2147483647"))
    }

    /// The error about an invalid field of `column` in the current row. `why` says what is wrong.
    pub(super) fn bad(&self, column: Column<'_>, why: Bad) -> TraceError {
        let shown: String = String::from_utf8_lossy(self.bytes(column)).chars().take(40).collect();
        TraceError::row(
            self.path,
            self.line(),
            Some(column.name),
            format!("\"{shown}\" {why}"),
            "correct or remove the row",
        )
    }
}

fn csv_error(path: &Path, line: u64, error: csv::Error) -> TraceError {
    match error.kind() {
        csv::ErrorKind::Io(e) => broken(path, line, e),
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            let what = format!("has {len} fields, the header has {expected_len}");
            TraceError::row(path, line, None, what, "the row is malformed or cut off: correct or remove it")
        }
        _ => TraceError::file(path, error.to_string(), ""),
    }
}
