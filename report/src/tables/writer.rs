//! The Parquet file behind every table: key columns, row groups in the order of writing, staged until finished.

use crate::{Key, ReportError, Staged};
use polars::io::parquet::write::BatchedWriter;
use polars::prelude::{Column, DataFrame, NamedFrom, ParquetCompression, ParquetWriter, PolarsError, Series};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Rows in a row group at most: bounds memory when a cell has millions of requests.
pub(super) const ROWS: usize = 1 << 18;

/// Rows in a row group at least, but for the last one: a group costs some 80 kB while its file is written, and a
/// sweep may have 100,000 cells of a few rows.
const GROUP: usize = 1 << 16;

/// Cells whose rows are made at a time: each has some thousand at most.
pub(super) const CELLS: usize = 128;

/// A column from a vector of any type that polars has a column type for.
pub(super) fn column<T, P: ?Sized>(name: &str, values: T) -> Column
where
    Series: NamedFrom<T, P>,
{
    Column::new(name.into(), values)
}

/// The swept settings as columns, the same in every row of every table of a result.
pub(super) struct KeyColumns {
    /// Path, and whether all its values are numbers.
    paths: Vec<(String, bool)>,
}

impl KeyColumns {
    /// The columns that fit all keys; the first key names the paths.
    pub(super) fn of<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Result<KeyColumns, ReportError> {
        let mut paths: Option<Vec<(String, bool)>> = None;
        for key in keys {
            let known = paths.get_or_insert_with(|| key.sweep.iter().map(|s| (s.path.clone(), true)).collect());
            Self::check(known, key)?;
            known.iter_mut().zip(&key.sweep).for_each(|((_, numbers), s)| *numbers &= s.number.is_some());
        }
        Ok(KeyColumns { paths: paths.unwrap_or_default() })
    }

    fn check(paths: &[(String, bool)], key: &Key) -> Result<(), ReportError> {
        if paths.iter().map(|p| &p.0).eq(key.sweep.iter().map(|s| &s.path)) {
            return Ok(());
        }
        let expected = paths.iter().map(|p| p.0.as_str()).collect::<Vec<_>>().join(", ");
        Err(ReportError::SweepMismatch { cell: key.to_string(), expected })
    }

    /// The key columns of rows that belong to `keys`, one key per row.
    pub(super) fn columns(&self, keys: &[&Key]) -> Result<Vec<Column>, ReportError> {
        keys.iter().try_for_each(|key| Self::check(&self.paths, key))?;
        let mut columns = vec![column("policy", keys.iter().map(|k| k.policy.as_str()).collect::<Vec<_>>())];
        for (i, (path, numbers)) in self.paths.iter().enumerate() {
            let name = format!("sweep.{path}");
            columns.push(if *numbers {
                column(&name, keys.iter().map(|k| k.sweep[i].number).collect::<Vec<_>>())
            } else {
                column(&name, keys.iter().map(|k| k.sweep[i].value.as_str()).collect::<Vec<_>>())
            });
        }
        columns.push(column("seed", keys.iter().map(|k| k.seed).collect::<Vec<_>>()));
        Ok(columns)
    }
}

/// A Parquet file being written.
pub(super) struct Table {
    keys: KeyColumns,
    path: PathBuf,
    file: Shared,
    writer: BatchedWriter<Shared>,
    /// Rows that no group has yet.
    pending: DataFrame,
}

impl Table {
    /// Starts `path`, which will hold rows of `keys`. `columns` gives names and types of the columns after the key
    /// columns; it has no rows.
    pub(super) fn create<'a>(
        path: &Path,
        keys: impl IntoIterator<Item = &'a Key>,
        columns: Vec<Column>,
    ) -> Result<Table, ReportError> {
        let keys = KeyColumns::of(keys)?;
        let refused = |cause| ReportError::Parquet { path: path.to_path_buf(), cause };
        let mut all = keys.columns(&[])?;
        all.extend(columns);
        let empty = DataFrame::new(0, all).map_err(refused)?;
        let file = Shared(Arc::new(Mutex::new(State { staged: Some(Staged::create(path)?), failed: None })));
        // One thread: columns are encoded in a fixed order and other cells may still be running on the others.
        let writer = ParquetWriter::new(file.clone())
            .with_compression(ParquetCompression::Zstd(None))
            .set_parallel(false)
            .batched(empty.schema());
        match writer {
            Ok(writer) => Ok(Table { keys, path: path.to_path_buf(), file, writer, pending: empty }),
            Err(cause) => Err(file.explain(path, cause)),
        }
    }

    /// Adds rows: one key and one entry of each column a row.
    pub(super) fn write(&mut self, keys: &[&Key], columns: Vec<Column>) -> Result<(), ReportError> {
        if self.pending.height() + keys.len() > ROWS {
            self.write_group()?;
        }
        let mut all = self.keys.columns(keys)?;
        all.extend(columns);
        let rows = DataFrame::new(keys.len(), all).and_then(|rows| self.pending.vstack_mut_owned(rows).map(|_| ()));
        rows.map_err(|cause| self.file.explain(&self.path, cause))?;
        if self.pending.height() >= GROUP { self.write_group() } else { Ok(()) }
    }

    /// Writes the pending rows as a row group; does nothing without rows.
    fn write_group(&mut self) -> Result<(), ReportError> {
        if self.pending.height() == 0 {
            return Ok(());
        }
        let none = self.pending.clear();
        let mut rows = std::mem::replace(&mut self.pending, none);
        self.writer.write_batch(rows.rechunk_mut()).map_err(|cause| self.file.explain(&self.path, cause))
    }

    /// Completes the file and gives it its name.
    pub(super) fn finish(mut self) -> Result<(), ReportError> {
        self.write_group()?;
        self.writer.finish().map_err(|cause| self.file.explain(&self.path, cause))?;
        self.file.lock().staged.take().expect("finished once").commit()
    }
}

/// The staged file, shared with polars' writer, which neither gives it back nor keeps the cause of an I/O error.
#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

struct State {
    staged: Option<Staged>,
    failed: Option<io::Error>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics while it writes")
    }

    /// The operating system's error if there was one, else the error of polars.
    fn explain(&self, path: &Path, cause: PolarsError) -> ReportError {
        let path = path.to_path_buf();
        match self.lock().failed.take() {
            Some(cause) => ReportError::Write { path, cause },
            None => ReportError::Parquet { path, cause },
        }
    }

    fn attempt<T>(&self, what: impl FnOnce(&mut Staged) -> io::Result<T>) -> io::Result<T> {
        let State { staged, failed } = &mut *self.lock();
        what(staged.as_mut().expect("not written after its end")).map_err(|cause| {
            let kind = cause.kind();
            *failed = Some(cause);
            kind.into()
        })
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(|file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt(|file| file.flush())
    }
}
