//! Reads the steps and the requests of one run from a results folder, to draw a timeline.

use super::frame::Frame;
use crate::{Key, ReportError};
use foretoken_sim::{Outcome, RequestRecords, StepRecord, Time};
use std::path::Path;

/// The keys of the runs of a results folder, in the order of the rows of `summary.parquet`.
pub fn read_keys(folder: &Path) -> Result<Vec<Key>, ReportError> {
    Frame::open(&folder.join("summary.parquet"))?.keys()
}

/// The records of a run's steps, in order; empty if the run has no rows.
pub fn read_steps(folder: &Path, key: &Key) -> Result<Vec<StepRecord>, ReportError> {
    let table = Frame::open_cell(&folder.join("steps.parquet"), key)?;
    let (step, start, end) = (table.counts("step")?, instants(&table, "start_s")?, instants(&table, "end_s")?);
    let (draft_time, verify_time) = (instants(&table, "draft_time_s")?, instants(&table, "verify_time_s")?);
    let (batch_size, chunks) = (table.small("batch_size")?, table.small("chunks")?);
    let (chunk_tokens, context) = (table.counts("chunk_tokens")?, table.counts("context_tokens")?);
    let (waiting, draft_passes) = (table.small("waiting")?, table.small("draft_passes")?);
    let (drafted, verified) = (table.small("drafted")?, table.small("verified")?);
    let (accepted, emitted) = (table.small("accepted")?, table.small("emitted")?);
    let (used_blocks, preempted) = (table.small("used_blocks")?, table.small("preempted")?);
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

/// The records of a run's requests, in order of arrival. An instant that did not come is [`Time::MAX`].
pub fn read_requests(folder: &Path, key: &Key) -> Result<RequestRecords, ReportError> {
    let table = Frame::open_cell(&folder.join("requests.parquet"), key)?;
    let outcome = |text: &str| match text {
        "finished" => Outcome::Finished,
        "rejected" => Outcome::Rejected,
        _ => Outcome::InFlight,
    };
    Ok(RequestRecords {
        arrival: instants(&table, "arrival_s")?,
        first_scheduled: instants(&table, "first_scheduled_s")?,
        first_token: instants(&table, "first_token_s")?,
        finish: instants(&table, "finish_s")?,
        emitted: table.small("emitted")?,
        rounds: table.small("rounds")?,
        drafted: table.small("drafted")?,
        verified: table.small("verified")?,
        accepted: table.small("accepted")?,
        preemptions: table.small("preemptions")?,
        cached_tokens: table.small("cached_tokens")?,
        outcome: table.texts("outcome")?.iter().map(|t| outcome(t)).collect(),
    })
}

/// For each run, in the order of [`read_keys`], the largest share (0 to 1) of KV blocks that was in use at once.
pub fn read_kv_peaks(folder: &Path) -> Result<Vec<f64>, ReportError> {
    let peaks = Frame::open(&folder.join("summary.parquet"))?.reals("kv_use_peak")?;
    Ok(peaks.into_iter().map(Option::unwrap_or_default).collect())
}

/// A column of seconds as times. A null is an instant that did not come: [`Time::MAX`].
fn instants(table: &Frame, name: &str) -> Result<Vec<Time>, ReportError> {
    Ok(table.reals(name)?.into_iter().map(|s| s.map_or(Time::MAX, Time::from_s)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{records, report};
    use crate::{FleetColumns, RequestsWriter, StepsWriter, write_summary};

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
        let mut steps = StepsWriter::create(&dir.path().join("steps.parquet"), &keys, false).unwrap();
        let mut table =
            RequestsWriter::create(&dir.path().join("requests.parquet"), &keys, FleetColumns::None).unwrap();
        for (c, key) in keys.iter().enumerate() {
            steps.push(key, &all[c], &[]).unwrap();
            table.push(key, &requests[c], &Default::default()).unwrap();
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
