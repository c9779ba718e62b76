//! Reads the steps and the requests of one cell back from a results folder, to draw a timeline.

use crate::{Key, ReportError, Swept};
use foretoken_sim::{Outcome, RequestRecords, StepRecord, Time};
use polars::prelude::{Column, DataFrame, ParquetReader, SerReader};
use std::path::{Path, PathBuf};

/// The cells of a results folder, in its order; `summary.parquet` has a row for each.
///
/// # Errors
/// When the file is missing or is no table of results.
pub fn read_keys(folder: &Path) -> Result<Vec<Key>, ReportError> {
    let table = Frame::read(&folder.join("summary.parquet"), None, None)?;
    table.keys()
}

/// The steps of a cell, in order.
///
/// # Errors
/// When `steps.parquet` is missing, or lacks a column.
pub fn read_steps(folder: &Path, key: &Key) -> Result<Vec<StepRecord>, ReportError> {
    let table = Frame::of_cell(&folder.join("steps.parquet"), key)?;
    let (step, start, end) = (table.longs("step")?, table.instants("start_s")?, table.instants("end_s")?);
    let (draft_time, verify_time) = (table.instants("draft_time_s")?, table.instants("verify_time_s")?);
    let (batch_size, chunks) = (table.counts("batch_size")?, table.counts("chunks")?);
    let (chunk_tokens, context) = (table.longs("chunk_tokens")?, table.longs("context_tokens")?);
    let (waiting, draft_passes) = (table.counts("waiting")?, table.counts("draft_passes")?);
    let (drafted, verified) = (table.counts("drafted")?, table.counts("verified")?);
    let (accepted, emitted) = (table.counts("accepted")?, table.counts("emitted")?);
    let (used_blocks, preempted) = (table.counts("used_blocks")?, table.counts("preempted")?);
    let record = |i: usize| StepRecord {
        step: step[i],
        start: start[i],
        end: end[i],
        draft_time: draft_time[i],
        verify_time: verify_time[i],
        batch_size: batch_size[i],
        chunks: chunks[i],
        chunk_tokens: chunk_tokens[i],
        context: context[i],
        waiting: waiting[i],
        draft_passes: draft_passes[i],
        drafted: drafted[i],
        verified: verified[i],
        accepted: accepted[i],
        emitted: emitted[i],
        used_blocks: used_blocks[i],
        preempted: preempted[i],
    };
    Ok((0..step.len()).map(record).collect())
}

/// The requests of a cell, in order of arrival. Instants that never came are [`Time::MAX`].
///
/// # Errors
/// When `requests.parquet` is missing, or lacks a column.
pub fn read_requests(folder: &Path, key: &Key) -> Result<RequestRecords, ReportError> {
    let table = Frame::of_cell(&folder.join("requests.parquet"), key)?;
    let outcome = |text: &str| match text {
        "finished" => Outcome::Finished,
        "rejected" => Outcome::Rejected,
        _ => Outcome::InFlight,
    };
    Ok(RequestRecords {
        arrival: table.instants("arrival_s")?,
        first_scheduled: table.instants("first_scheduled_s")?,
        first_token: table.instants("first_token_s")?,
        finish: table.instants("finish_s")?,
        emitted: table.counts("emitted")?,
        rounds: table.counts("rounds")?,
        drafted: table.counts("drafted")?,
        verified: table.counts("verified")?,
        accepted: table.counts("accepted")?,
        preemptions: table.counts("preemptions")?,
        cached_tokens: table.counts("cached_tokens")?,
        outcome: table.texts("outcome")?.iter().map(|t| outcome(t)).collect(),
    })
}

/// The peak share of the KV blocks in use, of each cell in the order of [`read_keys`].
///
/// # Errors
/// As [`read_keys`].
pub fn read_kv_peaks(folder: &Path) -> Result<Vec<f64>, ReportError> {
    let table = Frame::read(&folder.join("summary.parquet"), None, None)?;
    let peaks = table.column("kv_use_peak")?.f64().map_err(|e| table.bad(e))?;
    Ok(peaks.iter().map(Option::unwrap_or_default).collect())
}

/// A table in memory.
struct Frame {
    frame: DataFrame,
    path: PathBuf,
}

impl Frame {
    /// Reads `columns` and `rows` (first row, number of rows) of a file; `None` reads all.
    fn read(path: &Path, columns: Option<Vec<String>>, rows: Option<(usize, usize)>) -> Result<Frame, ReportError> {
        let bad = |cause: String| ReportError::Read { path: path.to_path_buf(), cause };
        let file = std::fs::File::open(path).map_err(|e| bad(e.to_string()))?;
        let reader = ParquetReader::new(file).with_columns(columns).with_slice(rows);
        Ok(Frame { frame: reader.finish().map_err(|e| bad(e.to_string()))?, path: path.to_path_buf() })
    }

    /// The rows of a cell. Rows of a cell lie together, so the keys are read first, then only this cell's rows.
    fn of_cell(path: &Path, key: &Key) -> Result<Frame, ReportError> {
        let swept = key.sweep.iter().map(|s| format!("sweep.{}", s.path));
        let columns = ["policy", "seed"].map(str::to_owned).into_iter().chain(swept).collect();
        let keys = Frame::read(path, Some(columns), None)?;
        let mine = keys.is_of(key)?;
        let first = mine.iter().position(|&m| m).unwrap_or(0);
        let n = mine.iter().filter(|&&m| m).count();
        Frame::read(path, None, Some((first, n)))
    }

    fn bad(&self, cause: polars::error::PolarsError) -> ReportError {
        ReportError::Read { path: self.path.clone(), cause: cause.to_string() }
    }

    fn column(&self, name: &str) -> Result<&Column, ReportError> {
        let cause = || format!("it has no column `{name}`: another version of Foretoken wrote it");
        self.frame.column(name).map_err(|_| ReportError::Read { path: self.path.clone(), cause: cause() })
    }

    fn longs(&self, name: &str) -> Result<Vec<u64>, ReportError> {
        Ok(self.column(name)?.u64().map_err(|e| self.bad(e))?.iter().map(Option::unwrap_or_default).collect())
    }

    fn counts(&self, name: &str) -> Result<Vec<u32>, ReportError> {
        Ok(self.column(name)?.u32().map_err(|e| self.bad(e))?.iter().map(Option::unwrap_or_default).collect())
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, ReportError> {
        let texts = self.column(name)?.str().map_err(|e| self.bad(e))?;
        Ok(texts.iter().map(|t| t.unwrap_or_default().to_owned()).collect())
    }

    /// Seconds as times; a null is an instant that never came.
    fn instants(&self, name: &str) -> Result<Vec<Time>, ReportError> {
        let seconds = self.column(name)?.f64().map_err(|e| self.bad(e))?;
        Ok(seconds.iter().map(|s| s.map_or(Time::MAX, Time::from_s)).collect())
    }

    /// The swept settings of each row: path, then value as text and as number.
    fn sweep(&self) -> Result<Vec<Vec<Swept>>, ReportError> {
        let mut rows = vec![Vec::new(); self.frame.height()];
        for name in self.frame.get_column_names_owned() {
            let Some(path) = name.strip_prefix("sweep.") else { continue };
            let column = self.column(&name)?;
            let values: Vec<(String, Option<f64>)> = match column.f64() {
                Ok(numbers) => {
                    let number = |n: Option<f64>| (n.map_or_else(String::new, |n| n.to_string()), n);
                    numbers.iter().map(number).collect()
                }
                Err(_) => self.texts(&name)?.into_iter().map(|text| (text, None)).collect(),
            };
            for (row, (value, number)) in rows.iter_mut().zip(values) {
                row.push(Swept { path: path.to_owned(), value, number });
            }
        }
        Ok(rows)
    }

    fn keys(&self) -> Result<Vec<Key>, ReportError> {
        let rows = self.texts("policy")?.into_iter().zip(self.sweep()?).zip(self.longs("seed")?);
        Ok(rows.map(|((policy, sweep), seed)| Key { policy, sweep, seed }).collect())
    }

    fn is_of(&self, key: &Key) -> Result<Vec<bool>, ReportError> {
        let policy = self.column("policy")?.str().map_err(|e| self.bad(e))?;
        let seeds = self.longs("seed")?;
        let mut mine: Vec<bool> =
            policy.iter().zip(seeds).map(|(p, seed)| p == Some(key.policy.as_str()) && seed == key.seed).collect();
        for swept in &key.sweep {
            let name = format!("sweep.{}", swept.path);
            match self.column(&name)?.f64() {
                Ok(numbers) => mine.iter_mut().zip(numbers.iter()).for_each(|(m, n)| *m &= n == swept.number),
                Err(_) => {
                    let texts = self.column(&name)?.str().map_err(|e| self.bad(e))?;
                    mine.iter_mut().zip(texts.iter()).for_each(|(m, t)| *m &= t == Some(swept.value.as_str()));
                }
            }
        }
        Ok(mine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{records, report};
    use crate::{RequestsWriter, StepsWriter, write_summary};

    #[test]
    fn steps_and_requests_of_a_cell_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let cells = report(3, &[1.0, 2.5], &[], 2, 20).cells;
        let keys: Vec<Key> = cells.iter().map(|c| c.key().clone()).collect();
        write_summary(&dir.path().join("summary.parquet"), &cells).unwrap();
        let read = read_keys(dir.path()).unwrap();
        assert_eq!(read.len(), keys.len());
        assert_eq!(read_kv_peaks(dir.path()).unwrap().len(), keys.len());

        let step = |cell: usize, i: u64| StepRecord {
            step: i,
            start: Time::from_s(cell as f64 + i as f64 / 8.0),
            end: Time::from_s(cell as f64 + (i + 1) as f64 / 8.0),
            used_blocks: cell as u32,
            ..StepRecord::default()
        };
        let all: Vec<Vec<StepRecord>> = (0..keys.len()).map(|c| (0..c as u64).map(|i| step(c, i)).collect()).collect();
        let requests: Vec<RequestRecords> = (0..keys.len()).map(|c| records(5, 1.0, 2.0, c as u64)).collect();
        let mut steps = StepsWriter::create(&dir.path().join("steps.parquet"), &keys).unwrap();
        let mut table = RequestsWriter::create(&dir.path().join("requests.parquet"), &keys).unwrap();
        for (c, key) in keys.iter().enumerate() {
            steps.push(key, &all[c]).unwrap();
            table.push(key, &requests[c]).unwrap();
        }
        steps.finish().unwrap();
        table.finish().unwrap();
        for (c, key) in read.iter().enumerate() {
            assert_eq!((&key.policy, key.seed), (&keys[c].policy, keys[c].seed));
            assert_eq!(read_steps(dir.path(), key).unwrap(), all[c], "{key}");
            assert_eq!(read_requests(dir.path(), key).unwrap(), requests[c], "{key}");
        }
    }

    #[test]
    fn a_missing_file_and_a_foreign_one_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let message = |e: ReportError| e.to_string();
        assert!(message(read_keys(dir.path()).unwrap_err()).contains("summary.parquet"));
        std::fs::write(dir.path().join("summary.parquet"), "no table").unwrap();
        assert!(message(read_keys(dir.path()).unwrap_err()).contains("cannot read"));
    }
}
