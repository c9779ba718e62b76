//! `replica_series.parquet`: the requests on each replica of a fleet over time, one row per bin, replica and run.

use super::column::{Column, column};
use super::frame::Frame;
use super::writer::Table;
use crate::{Entry, Key, ReportError};
use foretoken_sim::Time;
use foretoken_sim::metrics::{Flow, FlowBin};
use std::path::Path;

/// A replica of a run: the run's key, the replica's index, and its requests over time.
pub type FlowRow<'a> = (&'a Key, u32, &'a Flow);

/// A row for a bin of time: the replica's index, the bin's start and width in seconds, the mean numbers of running and
/// of waiting requests, and the bin's counts (requests sent, their prompt tokens, their cached tokens).
type BinRow = (u32, f64, f64, f64, f64, FlowBin);

/// Writes `replica_series.parquet`. `keys` are the keys of all runs, also of runs without rows.
///
/// Columns after the key columns (policy, swept settings, seed): `replica` (index), `start_s`, `width_s` (start and
/// width of the bin), `running`, `waiting` (mean numbers of requests in the bin), `sent` (requests that the router sent
/// in the bin), `prompt_tokens`, `cached_tokens` (of the sent requests). Bins without requests are left out, except the
/// last bin of a replica.
pub fn write_flows<'a>(
    path: &Path,
    keys: impl IntoIterator<Item = &'a Key>,
    rows: &[FlowRow],
) -> Result<(), ReportError> {
    let mut table = Table::create(path, keys, columns(&[]))?;
    for (key, replica, flow) in rows {
        let last = flow.bins.len().saturating_sub(1);
        let width = flow.width.as_s();
        let bins = flow.bins.iter().enumerate().filter(|(i, bin)| *i == last || **bin != FlowBin::default());
        let row = |(i, bin): (usize, &FlowBin)| {
            (*replica, i as f64 * width, width, flow.running(bin), flow.waiting(bin), *bin)
        };
        let bins: Vec<BinRow> = bins.map(row).collect();
        table.write(&vec![*key; bins.len()], columns(&bins))?;
    }
    table.finish()
}

fn columns(rows: &[BinRow]) -> Vec<Column> {
    let number = |name, of: fn(&BinRow) -> f64| column(name, rows.iter().map(of));
    let count = |name, of: fn(&FlowBin) -> u64| column(name, rows.iter().map(|r| of(&r.5)));
    vec![
        column("replica", rows.iter().map(|r| r.0)),
        number("start_s", |r| r.1),
        number("width_s", |r| r.2),
        number("running", |r| r.3),
        number("waiting", |r| r.4),
        count("sent", |bin| bin.sent),
        count("prompt_tokens", |bin| bin.prompt_tokens),
        count("cached_tokens", |bin| bin.cached_tokens),
    ]
}

/// Reads the requests on each replica over time, for each run in `entries`; empty for a run without rows. A row of the
/// file has the mean numbers of running and of waiting requests in a bin. A [`Flow`] has these means times the bin's
/// width, exact to a relative error of 1e-15.
pub(super) fn read_flows(folder: &Path, entries: &[Entry]) -> Result<Vec<Vec<Flow>>, ReportError> {
    let table = Frame::open(&folder.join("replica_series.parquet"))?;
    let (start, width) = (table.reals("start_s")?, table.reals("width_s")?);
    let (running, waiting) = (table.reals("running")?, table.reals("waiting")?);
    let (replica, sent) = (table.small("replica")?, table.counts("sent")?);
    let (prompt_tokens, cached_tokens) = (table.counts("prompt_tokens")?, table.counts("cached_tokens")?);
    let mut flows = vec![Vec::new(); entries.len()];
    for (row, cell) in table.rows_of(entries)?.into_iter().enumerate() {
        let (Some(cell), Some(start), Some(width)) = (cell, start[row], width[row]) else { continue };
        let all: &mut Vec<Flow> = &mut flows[cell];
        let (own, i) = (replica[row] as usize, (start / width).round() as usize);
        all.resize(all.len().max(own + 1), Flow::default());
        let flow = &mut all[own];
        flow.width = Time::from_s(width);
        flow.bins.resize(flow.bins.len().max(i + 1), FlowBin::default());
        let time = |mean: Option<f64>| (mean.unwrap_or_default() * flow.width.0 as f64).round() as u128;
        flow.bins[i] = FlowBin {
            running: time(running[row]),
            waiting: time(waiting[row]),
            sent: sent[row],
            prompt_tokens: prompt_tokens[row],
            cached_tokens: cached_tokens[row],
        };
    }
    Ok(flows)
}
