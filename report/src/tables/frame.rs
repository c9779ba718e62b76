//! Reads a Parquet table: columns by name and type, and the run to which each row belongs.

use crate::{Entry, Key, ReportError, Swept};
use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result as Decoded;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A table of a results folder, open for reading. Each method reads its columns from the file anew.
pub(super) struct Frame {
    file: SerializedFileReader<File>,
    /// The range of rows that the methods of this type read.
    rows: Range<usize>,
    path: PathBuf,
}

impl Frame {
    pub(super) fn open(path: &Path) -> Result<Frame, ReportError> {
        let bad = |cause: String| ReportError::Read { path: path.to_path_buf(), cause };
        let file = File::open(path).map_err(|e| bad(e.to_string()))?;
        let file = SerializedFileReader::new(file).map_err(|e| bad(e.to_string()))?;
        let rows = usize::try_from(file.metadata().file_metadata().num_rows()).map_err(|e| bad(e.to_string()))?;
        Ok(Frame { file, rows: 0..rows, path: path.to_path_buf() })
    }

    /// Opens a file to read only the rows of the run `key`. These rows follow each other in the file. To find them, the
    /// key columns of the whole file are read. If the run has no row, there are no rows to read.
    pub(super) fn open_cell(path: &Path, key: &Key) -> Result<Frame, ReportError> {
        let mut frame = Frame::open(path)?;
        let keys = frame.key_columns(key.sweep.iter().map(|s| s.path.as_str()))?;
        let first = (0..frame.height()).find(|&row| keys.is(row, key)).unwrap_or(0);
        let n = (first..frame.height()).take_while(|&row| keys.is(row, key)).count();
        frame.rows = first..first + n;
        Ok(frame)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names().any(|column| column == name)
    }

    /// Number of rows that the methods of this type read.
    pub(super) fn height(&self) -> usize {
        self.rows.len()
    }

    /// A column of real numbers by its name; null reads as `None`.
    pub(super) fn reals(&self, name: &str) -> Result<Vec<Option<f64>>, ReportError> {
        self.column::<DoubleType>(name)
    }

    /// A column of 64-bit counts by its name; null reads as 0.
    pub(super) fn counts(&self, name: &str) -> Result<Vec<u64>, ReportError> {
        Ok(self.column::<Int64Type>(name)?.into_iter().map(|n| n.unwrap_or_default().cast_unsigned()).collect())
    }

    /// A column of 32-bit counts by its name; null reads as 0.
    pub(super) fn small(&self, name: &str) -> Result<Vec<u32>, ReportError> {
        Ok(self.column::<Int32Type>(name)?.into_iter().map(|n| n.unwrap_or_default().cast_unsigned()).collect())
    }

    /// A column of 32-bit counts by its name; null reads as `none`.
    pub(super) fn small_or(&self, name: &str, none: u32) -> Result<Vec<u32>, ReportError> {
        Ok(self.column::<Int32Type>(name)?.into_iter().map(|n| n.map_or(none, i32::cast_unsigned)).collect())
    }

    /// A column of booleans by its name; null reads as false.
    pub(super) fn flags(&self, name: &str) -> Result<Vec<bool>, ReportError> {
        Ok(self.column::<BoolType>(name)?.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// A column of texts by its name; null reads as an empty text.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, ReportError> {
        let text =
            |t: Option<ByteArray>| t.map_or_else(String::new, |t| String::from_utf8_lossy(t.data()).into_owned());
        Ok(self.column::<ByteArrayType>(name)?.into_iter().map(text).collect())
    }

    /// For each row the index in `entries` of the row's run; `None` for rows of other runs.
    pub(super) fn rows_of(&self, entries: &[Entry]) -> Result<Vec<Option<usize>>, ReportError> {
        let paths = entries.first().into_iter().flat_map(|first| first.key.sweep.iter().map(|s| s.path.as_str()));
        let keys = self.key_columns(paths)?;
        let mut current = None;
        let find = |row: usize| {
            if !current.is_some_and(|at: usize| keys.is(row, &entries[at].key)) {
                current = entries.iter().position(|entry| keys.is(row, &entry.key));
            }
            current
        };
        Ok((0..self.height()).map(find).collect())
    }

    /// The run's key for each row. The swept settings are read from the names of the columns.
    pub(super) fn keys(&self) -> Result<Vec<Key>, ReportError> {
        let paths: Vec<&str> = self.names().filter_map(|name| name.strip_prefix("sweep.")).collect();
        let keys = self.key_columns(paths.iter().copied())?;
        Ok((0..self.height()).map(|row| keys.key(row, &paths)).collect())
    }

    /// Reads the key columns. `paths` are the paths of the swept settings.
    fn key_columns<'a>(&self, paths: impl Iterator<Item = &'a str>) -> Result<KeyColumns, ReportError> {
        Ok(KeyColumns {
            policy: self.texts("policy")?,
            sweep: paths.map(|path| self.sweep(&format!("sweep.{path}"))).collect::<Result<_, _>>()?,
            seed: self.counts("seed")?,
        })
    }

    fn sweep(&self, name: &str) -> Result<SweepColumn, ReportError> {
        if self.physical(name)? == Physical::DOUBLE {
            Ok(SweepColumn::Numbers(self.reals(name)?))
        } else {
            Ok(SweepColumn::Texts(self.texts(name)?))
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.file.metadata().file_metadata().schema_descr().columns().iter().map(|column| column.name())
    }

    fn bad(&self, cause: impl ToString) -> ReportError {
        ReportError::Read { path: self.path.clone(), cause: cause.to_string() }
    }

    /// The index of the column called `name`.
    fn find(&self, name: &str) -> Result<usize, ReportError> {
        let missing = || self.bad(format!("it has no column `{name}`: another version of Foretoken wrote it"));
        self.names().position(|column| column == name).ok_or_else(missing)
    }

    /// Parquet's type of the column called `name`.
    fn physical(&self, name: &str) -> Result<Physical, ReportError> {
        Ok(self.file.metadata().file_metadata().schema_descr().column(self.find(name)?).physical_type())
    }

    /// The values of the column `name`, one per row; a null is `None`. It is an error if the column's type is not `T`.
    fn column<T: DataType>(&self, name: &str) -> Result<Vec<Option<T::T>>, ReportError> {
        let at = self.find(name)?;
        let column = self.file.metadata().file_metadata().schema_descr().column(at);
        let (stored, wanted) = (column.physical_type(), T::get_physical_type());
        if stored != wanted || column.max_def_level() > 1 || column.max_rep_level() > 0 {
            let cause = format!("its column `{name}` has values of type {stored} where Foretoken writes {wanted}");
            return Err(self.bad(cause));
        }
        self.values::<T>(at).map_err(|e| self.bad(e))
    }

    fn values<T: DataType>(&self, at: usize) -> Decoded<Vec<Option<T::T>>> {
        let mut values = Vec::with_capacity(self.height());
        let mut first = 0;
        for group in 0..self.file.num_row_groups() {
            let group = self.file.get_row_group(group)?;
            let end = first + usize::try_from(group.metadata().num_rows())?;
            let wanted = self.rows.start.clamp(first, end)..self.rows.end.clamp(first, end);
            if !wanted.is_empty() {
                read_rows::<T>(group.get_column_reader(at)?, wanted.start - first, wanted.len(), &mut values)?;
            }
            first = end;
        }
        Ok(values)
    }
}

/// Reads `n` rows of one column from a row group, beginning at row `first` of the group, and appends them to `to`. A
/// null is `None`.
fn read_rows<T: DataType>(column: ColumnReader, first: usize, n: usize, to: &mut Vec<Option<T::T>>) -> Decoded<()> {
    let mut column: ColumnReaderImpl<T> = get_typed_column_reader(column);
    column.skip_records(first)?;
    let (mut values, mut present) = (Vec::with_capacity(n), Vec::with_capacity(n));
    column.read_records(n, Some(&mut present), None, &mut values)?;
    if present.is_empty() {
        // If the Parquet schema does not allow nulls in a column, `present` stays empty, and every row has a value.
        to.extend(values.into_iter().map(Some));
    } else {
        let mut values = values.into_iter();
        to.extend(present.into_iter().map(|present| if present == 1 { values.next() } else { None }));
    }
    Ok(())
}

/// The key columns (policy, swept settings, seed), which identify the run of each row.
struct KeyColumns {
    policy: Vec<String>,
    sweep: Vec<SweepColumn>,
    seed: Vec<u64>,
}

impl KeyColumns {
    /// Does row number `row` belong to the run with the key `key` (policy, swept values, seed)?
    fn is(&self, row: usize, key: &Key) -> bool {
        let swept = || key.sweep.iter().zip(&self.sweep).all(|(swept, column)| column.is(row, swept));
        self.policy[row] == key.policy && self.seed[row] == key.seed && swept()
    }

    fn key(&self, row: usize, paths: &[&str]) -> Key {
        let sweep = paths.iter().zip(&self.sweep).map(|(path, column)| column.swept(row, path)).collect();
        Key { policy: self.policy[row].clone(), sweep, seed: self.seed[row] }
    }
}

/// The values of a swept setting, one per row.
enum SweepColumn {
    Numbers(Vec<Option<f64>>),
    Texts(Vec<String>),
}

impl SweepColumn {
    fn is(&self, row: usize, swept: &Swept) -> bool {
        match self {
            SweepColumn::Numbers(all) => all[row] == swept.number,
            SweepColumn::Texts(all) => all[row] == swept.value,
        }
    }

    fn swept(&self, row: usize, path: &str) -> Swept {
        let (value, number) = match self {
            SweepColumn::Numbers(all) => (all[row].map_or_else(String::new, |n| n.to_string()), all[row]),
            SweepColumn::Texts(all) => (all[row].clone(), None),
        };
        Swept::new(path, value, number)
    }
}
