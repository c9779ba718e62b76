//! The writer of a Parquet file: key columns first, row groups in the order of writing. The file gets its final name
//! when it is complete.

use super::column::{Column, column, texts};
use crate::{Key, ReportError, Staged};
use foretoken_sim::metrics::PIECE;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::{ParquetError, Result as Encoded};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most rows of a row group. This number bounds the memory for a run with millions of requests. It is also the
/// number of requests in a piece. A run therefore gives the same bytes whether its records come in pieces or as a
/// whole.
pub(super) const ROWS: usize = PIECE;

/// A row group is written when it has at least this many rows, or earlier if the next rows would exceed [`ROWS`]. Each
/// group takes some 80 kB of memory until the file is complete, and a sweep may have 100,000 runs of a few rows each.
const GROUP: usize = 1 << 16;

/// Number of runs whose rows are built in memory together. Used for tables with at most some thousand rows a run.
pub(super) const CELLS: usize = 128;

/// The compression level of the Parquet files. It is zstd's own default level.
const ZSTD_LEVEL: i32 = 3;

/// The key columns (policy, swept settings, seed), with which every table starts.
pub(super) struct KeyColumns {
    /// For each swept setting: (its path, are all its values numbers?).
    paths: Vec<(String, bool)>,
}

impl KeyColumns {
    /// The key columns (policy, swept settings, seed) for runs with these keys. The first key gives the paths of the
    /// swept settings; it is an error if another key has other paths.
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

    /// The key columns (policy, swept settings, seed) for some rows. `keys` has the key of each row's run.
    pub(super) fn columns(&self, keys: &[&Key]) -> Result<Vec<Column>, ReportError> {
        keys.iter().try_for_each(|key| Self::check(&self.paths, key))?;
        let mut columns = vec![column("policy", texts(keys, |k| &k.policy))];
        for (i, (path, numbers)) in self.paths.iter().enumerate() {
            let name = format!("sweep.{path}");
            columns.push(if *numbers {
                column(&name, keys.iter().map(|k| k.sweep[i].number))
            } else {
                column(&name, texts(keys, |k| &k.sweep[i].value))
            });
        }
        columns.push(column("seed", keys.iter().map(|k| k.seed)));
        Ok(columns)
    }
}

/// Writes a table whose rows are all in memory. `keys` are the keys of all runs, also of runs without rows; `of` has
/// the key of each row's run, and `columns` are the columns after the key columns.
pub fn write_rows<'a>(
    path: &Path,
    keys: impl IntoIterator<Item = &'a Key>,
    of: &[&Key],
    columns: Vec<Column>,
) -> Result<(), ReportError> {
    let mut table = Table::create(path, keys, columns.iter().map(Column::without_rows).collect())?;
    table.write(of, columns)?;
    table.finish()
}

/// A Parquet file being written.
pub(super) struct Table {
    keys: KeyColumns,
    path: PathBuf,
    writer: SerializedFileWriter<Staged>,
    /// All columns of the table, with the rows that are not written to a row group yet.
    pending: Vec<Column>,
}

impl Table {
    /// Starts the file at `path`, for rows of runs with the keys `keys`. `columns` are the columns after the key
    /// columns (policy, swept settings, seed). They have names and types, but no rows yet.
    pub(super) fn create<'a>(
        path: &Path,
        keys: impl IntoIterator<Item = &'a Key>,
        columns: Vec<Column>,
    ) -> Result<Table, ReportError> {
        let keys = KeyColumns::of(keys)?;
        let mut pending = keys.columns(&[])?;
        pending.extend(columns);
        let file = Staged::create(path)?;
        match start(file, &pending) {
            Ok(writer) => Ok(Table { keys, path: path.to_path_buf(), writer, pending }),
            Err(cause) => Err(refused(path, cause)),
        }
    }

    /// Adds rows to the table. `keys` has the key (policy, swept values, seed) of each row's run; each column of
    /// `columns` has one entry per row.
    pub(super) fn write(&mut self, keys: &[&Key], columns: Vec<Column>) -> Result<(), ReportError> {
        if self.rows() + keys.len() > ROWS {
            self.write_group()?;
        }
        let mut all = self.keys.columns(keys)?;
        all.extend(columns);
        self.pending.iter_mut().zip(all).for_each(|(pending, more)| pending.append(more));
        if self.rows() >= GROUP { self.write_group() } else { Ok(()) }
    }

    /// Number of rows that are not written to a row group yet.
    fn rows(&self) -> usize {
        self.pending.iter().map(Column::rows).max().unwrap_or(0)
    }

    /// Writes the pending rows as a row group; does nothing without rows.
    fn write_group(&mut self) -> Result<(), ReportError> {
        if self.rows() == 0 {
            return Ok(());
        }
        write_group(&mut self.writer, &self.pending).map_err(|cause| refused(&self.path, cause))?;
        self.pending.iter_mut().for_each(Column::clear);
        Ok(())
    }

    /// Writes the remaining rows, completes the file and gives it its final name.
    pub(super) fn finish(mut self) -> Result<(), ReportError> {
        self.write_group()?;
        self.writer.finish().map_err(|cause| refused(&self.path, cause))?;
        self.writer.inner_mut().complete()
    }
}

/// Makes the Parquet writer of a file with the schema of these columns.
fn start(file: Staged, columns: &[Column]) -> Encoded<SerializedFileWriter<Staged>> {
    let fields = columns.iter().map(Column::field).collect::<Encoded<_>>()?;
    let schema = Type::group_type_builder("results").with_fields(fields).build()?;
    // Texts repeat, so their columns get a dictionary. Numbers get none and are only compressed.
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(ROWS);
    for text in columns.iter().filter(|column| column.is_text()) {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(text.name()), true);
    }
    SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build()))
}

fn write_group(writer: &mut SerializedFileWriter<Staged>, columns: &[Column]) -> Encoded<()> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let to = group.next_column()?.expect("the schema has all columns");
        column.write(to)?;
    }
    group.close().map(drop)
}

/// Converts an error of the Parquet writer: to the operating system's error if there was one, else to an error of the
/// encoder.
fn refused(path: &Path, cause: ParquetError) -> ReportError {
    let path = path.to_path_buf();
    match cause {
        ParquetError::External(cause) if cause.is::<std::io::Error>() => {
            let cause = *cause.downcast().expect("just looked");
            ReportError::Write { path, cause }
        }
        cause => ReportError::Parquet { path, cause },
    }
}
