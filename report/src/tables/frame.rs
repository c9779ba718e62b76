//! A Parquet table being read: columns by name and type, and the cell that each row belongs to.

use crate::{Entry, ReportError};
use polars::prelude::{Column, DataFrame, ParquetReader, SerReader};
use std::path::{Path, PathBuf};

/// A table in memory.
pub(super) struct Frame {
    frame: DataFrame,
    path: PathBuf,
}

impl Frame {
    /// Reads the key columns and `columns` of a file; `None` reads all columns.
    pub(super) fn read(path: &Path, columns: Option<&[&str]>) -> Result<Frame, ReportError> {
        let bad = |cause: String| ReportError::Read { path: path.to_path_buf(), cause };
        let file = std::fs::File::open(path).map_err(|e| bad(e.to_string()))?;
        let mut reader = ParquetReader::new(file);
        if let Some(columns) = columns {
            let schema = reader.schema().map_err(|e| bad(e.to_string()))?;
            let wanted = |name: &str| is_key(name) || columns.contains(&name);
            let names = schema.iter_names().map(|n| n.as_str()).filter(|n| wanted(n));
            let names = names.map(str::to_owned).collect();
            reader = reader.with_columns(Some(names));
        }
        let frame = reader.finish().map_err(|e| bad(e.to_string()))?;
        Ok(Frame { frame, path: path.to_path_buf() })
    }

    fn bad(&self, cause: String) -> ReportError {
        ReportError::Read { path: self.path.clone(), cause }
    }

    fn column(&self, name: &str) -> Result<&Column, ReportError> {
        let missing = |_| self.bad(format!("it has no column `{name}`: another version of Foretoken wrote it"));
        self.frame.column(name).map_err(missing)
    }

    /// Does the table have a column of this name?
    pub(super) fn has(&self, name: &str) -> bool {
        self.frame.column(name).is_ok()
    }

    /// Number of rows.
    pub(super) fn height(&self) -> usize {
        self.frame.height()
    }

    /// A column of numbers that may be absent.
    pub(super) fn reals(&self, name: &str) -> Result<Vec<Option<f64>>, ReportError> {
        let column = self.column(name)?.f64().map_err(|e| self.bad(e.to_string()))?;
        Ok(column.iter().collect())
    }

    /// A column of 64-bit counts; null reads as 0.
    pub(super) fn counts(&self, name: &str) -> Result<Vec<u64>, ReportError> {
        let column = self.column(name)?.u64().map_err(|e| self.bad(e.to_string()))?;
        Ok(column.iter().map(Option::unwrap_or_default).collect())
    }

    /// A column of 32-bit counts; null reads as 0.
    pub(super) fn small(&self, name: &str) -> Result<Vec<u32>, ReportError> {
        let column = self.column(name)?.u32().map_err(|e| self.bad(e.to_string()))?;
        Ok(column.iter().map(Option::unwrap_or_default).collect())
    }

    /// A column of booleans; null reads as false.
    pub(super) fn flags(&self, name: &str) -> Result<Vec<bool>, ReportError> {
        let column = self.column(name)?.bool().map_err(|e| self.bad(e.to_string()))?;
        Ok(column.iter().map(Option::unwrap_or_default).collect())
    }

    /// For each row the index of its entry; `None` for rows of other cells. Rows of a cell lie together.
    pub(super) fn rows_of(&self, entries: &[Entry]) -> Result<Vec<Option<usize>>, ReportError> {
        let bad = |e: polars::error::PolarsError| self.bad(e.to_string());
        let policy = self.column("policy")?.str().map_err(bad)?;
        let seed = self.column("seed")?.u64().map_err(bad)?;
        let sweep: Vec<SweepColumn> = match entries.first() {
            Some(first) => first.key.sweep.iter().map(|s| self.sweep(&s.path)).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let is = |row: usize, entry: &Entry| {
            let swept = || entry.key.sweep.iter().zip(&sweep).all(|(s, column)| column.is(row, s));
            policy.get(row) == Some(&entry.key.policy) && seed.get(row) == Some(entry.key.seed) && swept()
        };
        let mut current = None;
        let find = |row: usize| {
            if !current.is_some_and(|at: usize| is(row, &entries[at])) {
                current = entries.iter().position(|entry| is(row, entry));
            }
            current
        };
        Ok((0..self.frame.height()).map(find).collect())
    }

    fn sweep(&self, path: &str) -> Result<SweepColumn, ReportError> {
        let column = self.column(&format!("sweep.{path}"))?;
        match column.f64() {
            Ok(numbers) => Ok(SweepColumn::Numbers(numbers.iter().collect())),
            Err(_) => {
                let texts = column.str().map_err(|e| self.bad(e.to_string()))?;
                Ok(SweepColumn::Texts(texts.iter().map(|t| t.unwrap_or_default().to_owned()).collect()))
            }
        }
    }
}

fn is_key(name: &str) -> bool {
    name == "policy" || name == "seed" || name.starts_with("sweep.")
}

/// The values of a swept setting.
enum SweepColumn {
    Numbers(Vec<Option<f64>>),
    Texts(Vec<String>),
}

impl SweepColumn {
    fn is(&self, row: usize, swept: &crate::Swept) -> bool {
        match self {
            SweepColumn::Numbers(all) => all[row] == swept.number,
            SweepColumn::Texts(all) => all[row] == swept.value,
        }
    }
}
