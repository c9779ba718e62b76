//! The tables of one results folder.

use crate::TableError;
use polars::prelude::{ChunkedArray, DataFrame, Float64Type, ParquetReader, SerReader, StringType};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A results folder, as `foretoken run -o FOLDER` writes it.
#[derive(Clone, Debug)]
pub struct Results {
    folder: PathBuf,
}

impl Results {
    /// The results in `folder`. Nothing is read yet.
    pub fn at(folder: &Path) -> Results {
        Results { folder: folder.to_path_buf() }
    }

    /// Reads the table `name` (`summary`, `requests`, `steps`, `positions`, `series`, `lengths`, …): a row for each
    /// run, request, step or position. Columns whose names end in `_s` are seconds.
    ///
    /// # Errors
    /// The file is missing, or it is no Parquet table.
    pub fn table(&self, name: &str) -> Result<DataFrame, TableError> {
        let path = self.path(name);
        let file = File::open(&path).map_err(|cause| TableError::Open { path: path.clone(), cause })?;
        ParquetReader::new(file).finish().map_err(|cause| TableError::Content { path, cause })
    }

    /// A column of real numbers of the table `name`, null as `None`.
    ///
    /// # Errors
    /// As [`Results::table`], and if the column is missing or has another type.
    pub fn numbers(&self, name: &str, column: &str) -> Result<Vec<Option<f64>>, TableError> {
        let frame = self.table(name)?;
        let wrong = |cause| TableError::Content { path: self.path(name), cause };
        let column: &ChunkedArray<Float64Type> = frame.column(column).and_then(|c| c.f64()).map_err(wrong)?;
        Ok(column.iter().collect())
    }

    /// A column of texts of the table `name`; null is an empty text.
    ///
    /// # Errors
    /// As [`Results::table`], and if the column is missing or has another type.
    pub fn texts(&self, name: &str, column: &str) -> Result<Vec<String>, TableError> {
        let frame = self.table(name)?;
        let wrong = |cause| TableError::Content { path: self.path(name), cause };
        let column: &ChunkedArray<StringType> = frame.column(column).and_then(|c| c.str()).map_err(wrong)?;
        Ok(column.iter().map(|text| text.unwrap_or_default().to_owned()).collect())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.parquet"))
    }
}
