//! The tables of fleets that grow and shrink: when each replica was ordered, was ready, drained and ended; the number
//! of replicas over time; the decisions of the scaling rule.

use super::column::column;
use super::writer::write_rows;
use crate::{Key, ReportError};
use foretoken_sim::Time;
use foretoken_sim::metrics::{ReplicaLife, Scaled, ScalingDecision};
use std::path::Path;

/// A run with an autoscaling rule: the run's key, and how the run's fleet grew and shrank.
pub type ScaledRow<'a> = (&'a Key, &'a Scaled);

/// Writes `lives.parquet`: a row for each replica of a run.
///
/// Columns after the key columns (policy, swept settings, seed): `replica` (index), `ordered_s`, `ready_s`,
/// `drained_s`, `ended_s` (instants; null if the instant did not come), `booting_s`, `serving_s`, `draining_s` (time
/// that the replica spent booting, serving and draining until the end of the run).
pub fn write_lives<'a>(
    path: &Path,
    keys: impl IntoIterator<Item = &'a Key>,
    cells: &[ScaledRow],
) -> Result<(), ReportError> {
    let rows: Vec<(&Key, u32, ReplicaLife, Time)> = cells
        .iter()
        .flat_map(|(key, scaled)| (0..).zip(&scaled.lives).map(|(r, life)| (*key, r, *life, scaled.end)))
        .collect();
    let at = |name, of: fn(&ReplicaLife) -> Time| {
        column(
            name,
            rows.iter().map(|r| Some(of(&r.2)).filter(|at| *at < Time::MAX).map(Time::as_s)).collect::<Vec<_>>(),
        )
    };
    let spent = |name, i: usize| {
        let phases = |r: &(&Key, u32, ReplicaLife, Time)| r.2.phases(r.3);
        column(name, rows.iter().map(|r| (phases(r)[i + 1] - phases(r)[i]).as_s()).collect::<Vec<_>>())
    };
    let columns = vec![
        column("replica", rows.iter().map(|r| r.1)),
        at("ordered_s", |life| life.ordered),
        at("ready_s", |life| life.ready),
        at("drained_s", |life| life.drained),
        at("ended_s", |life| life.ended),
        spent("booting_s", 0),
        spent("serving_s", 1),
        spent("draining_s", 2),
    ];
    write_rows(path, keys, &rows.iter().map(|r| r.0).collect::<Vec<_>>(), columns)
}

/// Writes `replica_counts.parquet`: a row for each time at which the number of replicas of a run changes.
///
/// Columns after the key columns (policy, swept settings, seed): `t_s` (time of the change), `booting`, `serving`,
/// `draining` (numbers of replicas from then on).
pub fn write_replica_counts<'a>(
    path: &Path,
    keys: impl IntoIterator<Item = &'a Key>,
    cells: &[ScaledRow],
) -> Result<(), ReportError> {
    let rows: Vec<(&Key, (Time, [u32; 3]))> =
        cells.iter().flat_map(|(key, scaled)| scaled.over_time().into_iter().map(|row| (*key, row))).collect();
    let count = |name, i: usize| column(name, rows.iter().map(|r| r.1.1[i]).collect::<Vec<_>>());
    let columns = vec![
        column("t_s", rows.iter().map(|r| r.1.0.as_s())),
        count("booting", 0),
        count("serving", 1),
        count("draining", 2),
    ];
    write_rows(path, keys, &rows.iter().map(|r| r.0).collect::<Vec<_>>(), columns)
}

/// Writes `decisions.parquet`: a row for each decision that changed the number of replicas of a run.
///
/// Columns after the key columns (policy, swept settings, seed): `t_s` (time of the decision), `serving`, `booting`
/// (numbers of replicas before the decision), `wished` (number of replicas, serving or booting, that the scaling rule
/// wants), `reason` (text).
pub fn write_decisions<'a>(
    path: &Path,
    keys: impl IntoIterator<Item = &'a Key>,
    cells: &[ScaledRow],
) -> Result<(), ReportError> {
    let rows: Vec<(&Key, &ScalingDecision)> =
        cells.iter().flat_map(|(key, scaled)| scaled.decisions.iter().map(|row| (*key, row))).collect();
    let columns = vec![
        column("t_s", rows.iter().map(|r| r.1.at.as_s())),
        column("serving", rows.iter().map(|r| r.1.serving)),
        column("booting", rows.iter().map(|r| r.1.booting)),
        column("wished", rows.iter().map(|r| r.1.wished)),
        column("reason", rows.iter().map(|r| r.1.reason.as_str())),
    ];
    write_rows(path, keys, &rows.iter().map(|r| r.0).collect::<Vec<_>>(), columns)
}
