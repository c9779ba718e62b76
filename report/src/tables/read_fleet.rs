//! Reads what the replicas of each run did from the tables of a results folder.

use super::flows::read_flows;
use super::frame::Frame;
use crate::fleet::FleetCell;
use crate::{Cell, Entry, ReportError};
use foretoken_sim::Time;
use foretoken_sim::metrics::{ReplicaLife, ReplicaSummary, Scaled, ScalingDecision};
use std::path::Path;

/// Fills `Cell::fleet` of the runs that have rows in `replicas.parquet`. Does nothing if this table is missing. Earlier
/// versions did not write `replica_series.parquet`; their runs get no requests over time.
pub(super) fn fill_fleets(folder: &Path, entries: &[Entry], cells: &mut [Option<Cell>]) -> Result<(), ReportError> {
    let has = |name: &str| folder.join(name).is_file();
    if !has("replicas.parquet") {
        return Ok(());
    }
    let each = read_replicas(folder, entries)?;
    let flows = match has("replica_series.parquet") {
        true => read_flows(folder, entries)?,
        false => vec![Vec::new(); entries.len()],
    };
    let scaled = match has("lives.parquet") {
        true => read_scaled(folder, entries)?,
        false => vec![None; entries.len()],
    };
    for (cell, ((each, flows), scaled)) in cells.iter_mut().zip(each.into_iter().zip(flows).zip(scaled)) {
        if let (Some(cell), false) = (cell.as_mut(), each.is_empty()) {
            cell.fleet = Some(Box::new(FleetCell { each, flows, scaled }));
        }
    }
    Ok(())
}

fn read_replicas(folder: &Path, entries: &[Entry]) -> Result<Vec<Vec<ReplicaSummary>>, ReportError> {
    let table = Frame::open(&folder.join("replicas.parquet"))?;
    let (requests, finished, rejected) =
        (table.counts("requests")?, table.counts("finished")?, table.counts("rejected")?);
    let (prompt_tokens, cached_tokens) = (table.counts("prompt_tokens")?, table.counts("cached_tokens")?);
    let (emitted, steps, busy_s) = (table.counts("emitted")?, table.counts("steps")?, table.reals("busy_s")?);
    let (mean_batch_size, kv_use_peak) = (table.reals("mean_batch_size")?, table.reals("kv_use_peak")?);
    let (verified, accepted) = (table.counts("verified")?, table.counts("accepted")?);
    let preemptions = table.counts("preemptions")?;
    let mut each = vec![Vec::new(); entries.len()];
    for (row, cell) in table.rows_of(entries)?.into_iter().enumerate() {
        let Some(cell) = cell else { continue };
        each[cell].push(ReplicaSummary {
            requests: requests[row],
            finished: finished[row],
            rejected: rejected[row],
            prompt_tokens: prompt_tokens[row],
            cached_tokens: cached_tokens[row],
            emitted: emitted[row],
            steps: steps[row],
            busy_s: busy_s[row].unwrap_or_default(),
            mean_batch_size: mean_batch_size[row].unwrap_or_default(),
            verified: verified[row],
            accepted: accepted[row],
            preemptions: preemptions[row],
            kv_use_peak: kv_use_peak[row].unwrap_or_default(),
        });
    }
    Ok(each)
}

/// For each run, when each of its replicas was ordered, was ready, drained and ended, and the decisions of its scaling
/// rule. `None` for a run that no rule scaled. The end of a run is the time of the last row in
/// `replica_counts.parquet`.
pub(super) fn read_scaled(folder: &Path, entries: &[Entry]) -> Result<Vec<Option<Scaled>>, ReportError> {
    let at = |seconds: Option<f64>| seconds.map_or(Time::MAX, Time::from_s);
    let mut scaled: Vec<Option<Scaled>> = vec![None; entries.len()];
    let lives = Frame::open(&folder.join("lives.parquet"))?;
    let (ordered, ready) = (lives.reals("ordered_s")?, lives.reals("ready_s")?);
    let (drained, ended) = (lives.reals("drained_s")?, lives.reals("ended_s")?);
    for (row, cell) in lives.rows_of(entries)?.into_iter().enumerate() {
        let Some(cell) = cell else { continue };
        scaled[cell].get_or_insert_default().lives.push(ReplicaLife {
            ordered: at(ordered[row]),
            ready: at(ready[row]),
            drained: at(drained[row]),
            ended: at(ended[row]),
        });
    }
    let counts = Frame::open(&folder.join("replica_counts.parquet"))?;
    let t_s = counts.reals("t_s")?;
    for (row, cell) in counts.rows_of(entries)?.into_iter().enumerate() {
        if let Some(scaled) = cell.and_then(|cell| scaled[cell].as_mut()) {
            scaled.end = scaled.end.max(Time::from_s(t_s[row].unwrap_or_default()));
        }
    }
    let decisions = Frame::open(&folder.join("decisions.parquet"))?;
    let (t_s, reason) = (decisions.reals("t_s")?, decisions.texts("reason")?);
    let [serving, booting, wished] = ["serving", "booting", "wished"].map(|name| decisions.small(name));
    let (serving, booting, wished) = (serving?, booting?, wished?);
    for (row, cell) in decisions.rows_of(entries)?.into_iter().enumerate() {
        if let Some(scaled) = cell.and_then(|cell| scaled[cell].as_mut()) {
            scaled.decisions.push(ScalingDecision {
                at: at(t_s[row]),
                serving: serving[row],
                booting: booting[row],
                wished: wished[row],
                reason: reason[row].clone(),
            });
        }
    }
    Ok(scaled)
}
