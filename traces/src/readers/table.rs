//! Rows with named columns, of CSV or of JSON objects: rows are streamed, fields are typed, and errors name file, line
//! and column.

use super::number::{self, Bad};
use super::objects::Objects;
use crate::error::{TraceError, nearest};
use crate::open::{Source, broken, is_json, not_utf8, open};
use foretoken_sim::Time;
use serde_json::{Map, Value};
use std::path::Path;

/// An open file of rows, with its current row.
pub(super) struct Table<'a> {
    path: &'a Path,
    rows: Rows<'a>,
    /// The columns of the CSV file, or the keys of the first JSON object.
    header: Vec<String>,
}

enum Rows<'a> {
    Csv {
        reader: csv::Reader<Source>,
        row: csv::ByteRecord,
    },
    Json {
        objects: Objects<'a>,
        /// The first object, until it is the current row.
        first: Option<(u64, Map<String, Value>)>,
        /// The names of the columns that are read.
        names: Vec<String>,
        /// Line of the current row, and its fields in the order of `names`. A key that the row lacks has none.
        line: u64,
        fields: Vec<Option<String>>,
    },
}

/// A column of a file, which was found by its name in the header.
#[derive(Clone, Copy)]
pub(super) struct Column<'n> {
    index: usize,
    name: &'n str,
}

impl<'a> Table<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Table<'a>, TraceError> {
        if is_json(path)? {
            let mut objects = Objects::open(path)?;
            let first = objects.next()?;
            let header = first.iter().flat_map(|(_, object)| object.keys().cloned()).collect();
            let rows = Rows::Json { objects, first, names: Vec::new(), line: 1, fields: Vec::new() };
            return Ok(Table { path, rows, header });
        }
        let mut reader = csv::ReaderBuilder::new().buffer_capacity(1 << 16).from_reader(open(path)?);
        let header = match reader.byte_headers() {
            Ok(names) => names.clone(),
            Err(e) => return Err(csv_error(path, 1, e)),
        };
        reader.get_mut().get_mut().row_ended();
        let name = |bytes: &[u8]| std::str::from_utf8(bytes.trim_ascii()).map(str::to_owned);
        let header = header.iter().map(name).collect::<Result<_, _>>().map_err(|_| not_utf8(path, 1, None))?;
        Ok(Table { path, rows: Rows::Csv { reader, row: csv::ByteRecord::new() }, header })
    }

    /// True if the file's header has a column of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        match &self.rows {
            Rows::Json { first: Some((_, object)), .. } => value_at(object, name).is_some(),
            _ => self.header.iter().any(|column| column == name),
        }
    }

    /// The column with this name. It is an error if two columns or no column have this name. In the second case the
    /// error names similar columns and lists all columns.
    pub(super) fn column<'n>(&mut self, name: &'n str) -> Result<Column<'n>, TraceError> {
        if self.has(name) {
            return self.optional(name);
        }
        let all = self.header.join(", ");
        let near = nearest(name, self.header.iter().map(String::as_str));
        let (place, are) = match &self.rows {
            Rows::Csv { .. } => ("is missing from the header", "columns"),
            Rows::Json { .. } => ("is missing from the first object", "keys"),
        };
        let hint = match near.as_slice() {
            [] => format!("the file has the {are}: {all}"),
            names => format!("the nearest {are} are: {}; the file has: {all}", names.join(", ")),
        };
        let line = if let Rows::Json { first: Some((line, _)), .. } = &self.rows { *line } else { 1 };
        Err(TraceError::row(self.path, line, Some(name), place, hint))
    }

    /// The column with this name, which objects of a JSON file may lack. A CSV file must have it, once.
    pub(super) fn optional<'n>(&mut self, name: &'n str) -> Result<Column<'n>, TraceError> {
        if let Rows::Json { names, .. } = &mut self.rows {
            names.push(name.to_owned());
            return Ok(Column { index: names.len() - 1, name });
        }
        if !self.has(name) {
            return self.column(name);
        }
        let mut found = (0..self.header.len()).filter(|&i| self.header[i] == name);
        let index = found.next().expect("the header has the column");
        let Some(second) = found.next() else { return Ok(Column { index, name }) };
        let what = format!("is there twice, as columns {} and {}", index + 1, second + 1);
        let hint = "nothing says which of the two is meant: remove or rename one";
        Err(TraceError::row(self.path, 1, Some(name), what, hint))
    }

    /// Moves to the next row of the file. Returns false at its end.
    pub(super) fn next(&mut self) -> Result<bool, TraceError> {
        match &mut self.rows {
            Rows::Csv { reader, row } => {
                let more = reader.read_byte_record(row);
                let more = more.map_err(|e| csv_error(self.path, reader.position().line(), e))?;
                reader.get_mut().get_mut().row_ended();
                Ok(more)
            }
            Rows::Json { objects, first, names, line, fields } => {
                let next = match first.take() {
                    Some(first) => Some(first),
                    None => objects.next()?,
                };
                let Some((number, object)) = next else { return Ok(false) };
                *line = number;
                fields.clear();
                fields.extend(names.iter().map(|name| value_at(&object, name).and_then(text_of)));
                Ok(true)
            }
        }
    }

    /// Number of the file's line, from 1, in which the current row begins.
    pub(super) fn line(&self) -> u64 {
        match &self.rows {
            Rows::Csv { row, .. } => row.position().map_or(0, csv::Position::line),
            Rows::Json { line, .. } => *line,
        }
    }

    /// The bytes of the field of `column` in the current row. Empty if a JSON object lacks the key.
    pub(super) fn bytes(&self, column: Column<'_>) -> &[u8] {
        match &self.rows {
            // The CSV reader checks that every row has as many fields as the header.
            Rows::Csv { row, .. } => &row[column.index],
            Rows::Json { fields, .. } => fields[column.index].as_deref().unwrap_or_default().as_bytes(),
        }
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
        let hint = match why {
            number::TOO_LATE => format!(
                "times of this format count from the log's start; a log with times since 1970 is read with columns = \
                 {{ arrival = \"{}\", prompt = \"...\", output = \"...\", unit = \"...\" }}",
                column.name
            ),
            _ => "correct or remove the row".to_owned(),
        };
        self.bad_with(column, why, hint)
    }

    /// The error about an invalid field of `column` in the current row. `hint` says what the user can do.
    pub(super) fn bad_with(&self, column: Column<'_>, why: &str, hint: impl Into<String>) -> TraceError {
        let what = match &self.rows {
            Rows::Json { fields, .. } if fields[column.index].is_none() => "is missing".to_owned(),
            _ => format!("\"{}\" {why}", self.shown(column)),
        };
        TraceError::row(self.path, self.line(), Some(column.name), what, hint)
    }

    /// The start of the field of `column` in the current row, for a message.
    fn shown(&self, column: Column<'_>) -> String {
        String::from_utf8_lossy(self.bytes(column)).chars().take(40).collect()
    }
}

/// The value of the key `name` of an object. Dots in the name lead into objects, unless the object has a key with dots.
fn value_at<'v>(object: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    object.get(name).or_else(|| {
        let (outer, inner) = name.split_once('.')?;
        value_at(object.get(outer)?.as_object()?, inner)
    })
}

/// A JSON value as a CSV file would have it: a text without its quotes. `None` for null.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        // Numbers are printed with the digits that give the same number again, so that no digit of a log is lost.
        other => Some(other.to_string()),
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
