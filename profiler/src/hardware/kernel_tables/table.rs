//! Reads columns of a Parquet file of kernel times.

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::Result as Read;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// The column of measured times, milliseconds.
pub(super) const LATENCY: &str = "latency";

/// Columns of a file, all of the same length.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) rows: usize,
    numbers: HashMap<String, Vec<i64>>,
    words: HashMap<String, Vec<ByteArray>>,
    seconds: Vec<f64>,
}

impl Table {
    /// Reads the columns `numbers` and `words` and the times of `path`. A column of `words` or `numbers` that the file
    /// lacks stays absent.
    pub(super) fn read(path: &Path, numbers: &[&str], words: &[&str]) -> Result<Table, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("{} cannot be read: {e}", path.display());
        let file = File::open(path).map_err(|e| wrong(&e))?;
        let reader = SerializedFileReader::new(file).map_err(|e| wrong(&e))?;
        let columns: Vec<String> = {
            let schema = reader.metadata().file_metadata().schema_descr();
            schema.columns().iter().map(|column| column.name().to_owned()).collect()
        };
        let at = |name: &str| columns.iter().position(|column| column == name);
        let mut table = Table::default();
        for i in 0..reader.num_row_groups() {
            let group = reader.get_row_group(i).map_err(|e| wrong(&e))?;
            for name in numbers {
                let Some(column) = at(name) else { continue };
                let values = whole_numbers(&*group, column).map_err(|e| wrong(&format!("column {name}: {e}")))?;
                table.numbers.entry((*name).to_owned()).or_default().extend(values);
            }
            for name in words {
                let Some(column) = at(name) else { continue };
                let values = texts(&*group, column).map_err(|e| wrong(&format!("column {name}: {e}")))?;
                table.words.entry((*name).to_owned()).or_default().extend(values);
            }
            let column = at(LATENCY).ok_or_else(|| wrong(&"it has no column latency"))?;
            let times = times(&*group, column).map_err(|e| wrong(&format!("column {LATENCY}: {e}")))?;
            table.seconds.extend(times.into_iter().map(|ms| 1e-3 * ms));
        }
        table.rows = table.seconds.len();
        if let Some(s) = table.seconds.iter().find(|s| !(**s > 0.0 && **s < 3600.0)) {
            return Err(format!("{} has an impossible time of {} ms", path.display(), 1e3 * s));
        }
        Ok(table)
    }

    /// The number of a row; 0 if the file has no such column.
    pub(super) fn number(&self, name: &str, row: usize) -> i64 {
        self.numbers.get(name).map_or(0, |column| column[row])
    }

    /// Whether the column of words is `word` in this row. A missing column has every word.
    pub(super) fn is(&self, name: &str, row: usize, word: &str) -> bool {
        self.words.get(name).is_none_or(|column| column[row].data() == word.as_bytes())
    }

    /// The word of a row; empty if the file has no such column.
    pub(super) fn word(&self, name: &str, row: usize) -> &str {
        self.words.get(name).map_or("", |column| column[row].as_utf8().unwrap_or(""))
    }

    pub(super) fn seconds(&self, row: usize) -> f64 {
        self.seconds[row]
    }

    /// The rows whose numbers and words are these.
    pub(super) fn rows_where<'a>(
        &'a self,
        numbers: &'a [(&'a str, i64)],
        words: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = usize> + 'a {
        (0..self.rows).filter(move |&row| {
            numbers.iter().all(|(name, value)| self.number(name, row) == *value)
                && words.iter().all(|(name, word)| self.is(name, row, word))
        })
    }
}

fn whole_numbers(group: &dyn RowGroupReader, column: usize) -> Read<Vec<i64>> {
    let rows = group.metadata().num_rows();
    match group.get_column_reader(column)? {
        ColumnReader::Int64ColumnReader(reader) => all(reader, rows),
        ColumnReader::Int32ColumnReader(reader) => Ok(all(reader, rows)?.into_iter().map(i64::from).collect()),
        ColumnReader::DoubleColumnReader(reader) => Ok(all(reader, rows)?.into_iter().map(|x| x as i64).collect()),
        _ => Err(parquet::errors::ParquetError::General("is no column of numbers".into())),
    }
}

fn times(group: &dyn RowGroupReader, column: usize) -> Read<Vec<f64>> {
    let rows = group.metadata().num_rows();
    match group.get_column_reader(column)? {
        ColumnReader::DoubleColumnReader(reader) => all(reader, rows),
        ColumnReader::FloatColumnReader(reader) => Ok(all(reader, rows)?.into_iter().map(f64::from).collect()),
        _ => Err(parquet::errors::ParquetError::General("is no column of times".into())),
    }
}

fn texts(group: &dyn RowGroupReader, column: usize) -> Read<Vec<ByteArray>> {
    match group.get_column_reader(column)? {
        ColumnReader::ByteArrayColumnReader(reader) => all(reader, group.metadata().num_rows()),
        _ => Err(parquet::errors::ParquetError::General("is no column of words".into())),
    }
}

/// All values of a column chunk of `rows` rows. An empty field is an error.
fn all<T: DataType>(mut reader: ColumnReaderImpl<T>, rows: i64) -> Read<Vec<T::T>> {
    let rows = usize::try_from(rows).unwrap_or(0);
    let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::new());
    let mut read = 0;
    while read < rows {
        let (records, ..) = reader.read_records(rows - read, Some(&mut levels), None, &mut values)?;
        if records == 0 {
            break;
        }
        read += records;
    }
    if values.len() != rows {
        let why = format!("has {} values in {rows} rows", values.len());
        return Err(parquet::errors::ParquetError::General(why));
    }
    Ok(values)
}
