//! `steps.parquet`: one row per step and cell; only for experiments that set `output.steps`.

use super::column::{Column, column};
use super::writer::{ROWS, Table};
use crate::{Key, ReportError};
use foretoken_sim::{StepRecord, Time};
use std::path::Path;

/// Writes `steps.parquet` cell by cell, so that only one cell is in memory at a time.
///
/// Columns after the key: `step`, `start_s`, `end_s`, `draft_time_s`, `verify_time_s`, `batch_size`, `chunks`,
/// `chunk_tokens`, `context_tokens`, `waiting`, `draft_passes`, `drafted`, `verified`, `accepted`, `emitted`,
/// `used_blocks` and `preempted`, as [`StepRecord`] defines them.
pub struct StepsWriter(Table);

impl StepsWriter {
    /// Starts the file. `keys` are the keys of all cells that will be pushed.
    ///
    /// # Errors
    /// When the file cannot be created, or the keys differ in their swept paths.
    pub fn create<'a>(path: &Path, keys: impl IntoIterator<Item = &'a Key>) -> Result<StepsWriter, ReportError> {
        Table::create(path, keys, columns(&[])).map(StepsWriter)
    }

    /// Adds the steps of a cell.
    ///
    /// # Errors
    /// When they cannot be written (disk full).
    pub fn push(&mut self, key: &Key, steps: &[StepRecord]) -> Result<(), ReportError> {
        steps.chunks(ROWS).try_for_each(|rows| self.0.write(&vec![key; rows.len()], columns(rows)))
    }

    /// Completes the file. If the writer is dropped without this call, no new file is left, and an earlier file stays.
    ///
    /// # Errors
    /// When the last bytes cannot be written (disk full).
    pub fn finish(self) -> Result<(), ReportError> {
        self.0.finish()
    }
}

fn columns(steps: &[StepRecord]) -> Vec<Column> {
    let time = |name, of: fn(&StepRecord) -> Time| column(name, steps.iter().map(|s| of(s).as_s()));
    let long = |name, of: fn(&StepRecord) -> u64| column(name, steps.iter().map(of));
    let count = |name, of: fn(&StepRecord) -> u32| column(name, steps.iter().map(of));
    vec![
        long("step", |s| s.step),
        time("start_s", |s| s.start),
        time("end_s", |s| s.end),
        time("draft_time_s", |s| s.draft_time),
        time("verify_time_s", |s| s.verify_time),
        count("batch_size", |s| s.batch_size),
        count("chunks", |s| s.chunks),
        long("chunk_tokens", |s| s.chunk_tokens),
        long("context_tokens", |s| s.context),
        count("waiting", |s| s.waiting),
        count("draft_passes", |s| s.draft_passes),
        count("drafted", |s| s.drafted),
        count("verified", |s| s.verified),
        count("accepted", |s| s.accepted),
        count("emitted", |s| s.emitted),
        count("used_blocks", |s| s.used_blocks),
        count("preempted", |s| s.preempted),
    ]
}
