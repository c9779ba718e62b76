//! `steps.parquet`: one row per step and run; only for experiments that set `output.steps`.

use super::column::{Column, column};
use super::writer::{ROWS, Table};
use crate::{Key, ReportError};
use foretoken_sim::{StepRecord, Time};
use std::path::Path;

/// Writes `steps.parquet` run by run, so that only one run is in memory at a time.
///
/// Columns after the key columns (policy, swept settings, seed): `step`, `start_s`, `end_s`, `draft_time_s`,
/// `verify_time_s`, `batch_size`, `chunks`, `chunk_tokens`, `context_tokens`, `waiting`, `draft_passes`, `drafted`,
/// `verified`, `accepted`, `emitted`, `used_blocks` and `preempted`, as [`StepRecord`] defines them. If a run has a
/// fleet, also `replica`, the index of the replica that made the step.
pub struct StepsWriter {
    table: Table,
    is_fleet: bool,
}

impl StepsWriter {
    /// Starts the file. `keys` are the keys of all runs that will be pushed. `is_fleet`: does one of these runs have a
    /// fleet?
    pub fn create<'a>(
        path: &Path,
        keys: impl IntoIterator<Item = &'a Key>,
        is_fleet: bool,
    ) -> Result<StepsWriter, ReportError> {
        let table = Table::create(path, keys, columns(&[], is_fleet.then_some(&[])))?;
        Ok(StepsWriter { table, is_fleet })
    }

    /// Adds the steps of a run. `replicas` has the number of steps of each replica of a fleet; it is empty without a
    /// fleet. `steps` must have all steps of replica 0 first, then all steps of replica 1, and so on.
    pub fn push(&mut self, key: &Key, steps: &[StepRecord], replicas: &[u64]) -> Result<(), ReportError> {
        let by = (0u32..).zip(replicas).flat_map(|(replica, &steps)| (0..steps).map(move |_| Some(replica)));
        let by: Vec<Option<u32>> = by.chain(std::iter::repeat(None)).take(steps.len()).collect();
        steps.chunks(ROWS).zip(by.chunks(ROWS)).try_for_each(|(rows, by)| {
            self.table.write(&vec![key; rows.len()], columns(rows, self.is_fleet.then_some(by)))
        })
    }

    /// Completes the file. If the writer is dropped without this call, no new file is left, and an earlier file stays.
    pub fn finish(self) -> Result<(), ReportError> {
        self.table.finish()
    }
}

/// The columns of some steps. `by` is the replica that made each step; `None` if no run of the table has a fleet.
fn columns(steps: &[StepRecord], by: Option<&[Option<u32>]>) -> Vec<Column> {
    let time = |name, of: fn(&StepRecord) -> Time| column(name, steps.iter().map(|s| of(s).as_s()));
    let long = |name, of: fn(&StepRecord) -> u64| column(name, steps.iter().map(of));
    let count = |name, of: fn(&StepRecord) -> u32| column(name, steps.iter().map(of));
    let mut all = vec![
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
    ];
    all.extend(by.map(|by| column("replica", by.iter().copied())));
    all
}
