//! Reads the tables of a results folder back, so that a report can be made without running the experiment again.

use super::frame::Frame;
use super::read_fleet::fill_fleets;
use super::summary::read_summaries;
use crate::{Cdf, Cell, Entry, ReportError};
use foretoken_sim::Time;
use foretoken_sim::metrics::{Bin, CalibrationBin, LengthRow, LengthSums, PositionCounts, Series};
use std::path::Path;

/// Reads the runs of a results folder. `entries` are the runs to look for. Leaves out entries that have no row in
/// `summary.parquet`.
pub fn read_cells(folder: &Path, entries: &[Entry]) -> Result<Vec<Cell>, ReportError> {
    let summaries = Frame::open(&folder.join("summary.parquet"))?;
    let mut cells: Vec<Option<Cell>> = entries.iter().map(|_| None).collect();
    let (implied, speedup) = (summaries.flags("implied")?, summaries.reals("speedup")?);
    let all = read_summaries(&summaries)?;
    for (row, at) in summaries.rows_of(entries)?.into_iter().enumerate() {
        let Some(at) = at else { continue };
        let mut cell = Cell::new(entries[at].clone(), all[row].clone());
        (cell.entry.implied, cell.speedup) = (implied[row], speedup[row]);
        cells[at] = Some(cell);
    }
    fill_latencies(folder, entries, &mut cells)?;
    fill_positions(folder, entries, &mut cells)?;
    fill_series(folder, entries, &mut cells)?;
    fill_lengths(folder, entries, &mut cells)?;
    fill_calibration(folder, entries, &mut cells)?;
    fill_fleets(folder, entries, &mut cells)?;
    Ok(cells.into_iter().flatten().collect())
}

/// Calls `add(run, row index)` for each row of the table `frame` whose run is in `cells`.
fn for_each(
    frame: &Frame,
    entries: &[Entry],
    cells: &mut [Option<Cell>],
    mut add: impl FnMut(&mut Cell, usize),
) -> Result<(), ReportError> {
    for (row, at) in frame.rows_of(entries)?.into_iter().enumerate() {
        if let Some(cell) = at.and_then(|at| cells[at].as_mut()) {
            add(cell, row);
        }
    }
    Ok(())
}

fn fill_positions(folder: &Path, entries: &[Entry], cells: &mut [Option<Cell>]) -> Result<(), ReportError> {
    let frame = Frame::open(&folder.join("positions.parquet"))?;
    let (attempts, reached, accepted) =
        (frame.counts("attempts")?, frame.counts("reached")?, frame.counts("accepted")?);
    for_each(&frame, entries, cells, |cell, row| {
        let counts = PositionCounts { attempts: attempts[row], reached: reached[row], accepted: accepted[row] };
        cell.summary.positions.push(counts);
    })
}

fn fill_latencies(folder: &Path, entries: &[Entry], cells: &mut [Option<Cell>]) -> Result<(), ReportError> {
    let frame = Frame::open(&folder.join("requests.parquet"))?;
    let (ttft, tpot, e2e) = (frame.reals("ttft_s")?, frame.reals("tpot_s")?, frame.reals("e2e_s")?);
    let mut samples = vec![[const { Vec::new() }; 3]; entries.len()];
    for (row, at) in frame.rows_of(entries)?.into_iter().enumerate() {
        // Only finished requests have an E2E. Summaries count only finished requests, so other rows are left out.
        let (Some(at), Some(e2e)) = (at, e2e[row]) else { continue };
        samples[at][0].extend(ttft[row]);
        samples[at][1].extend(tpot[row]);
        samples[at][2].push(e2e);
    }
    for (cell, [ttft, tpot, e2e]) in cells.iter_mut().zip(samples) {
        if let Some(cell) = cell {
            (cell.ttft, cell.tpot, cell.e2e) = (Cdf::of(ttft), Cdf::of(tpot), Cdf::of(e2e));
        }
    }
    Ok(())
}

fn fill_series(folder: &Path, entries: &[Entry], cells: &mut [Option<Cell>]) -> Result<(), ReportError> {
    let frame = Frame::open(&folder.join("series.parquet"))?;
    let (start, width, batch_size) = (frame.reals("start_s")?, frame.reals("width_s")?, frame.reals("batch_size")?);
    let (busy, request_steps) = (frame.counts("busy_ps")?, frame.counts("request_steps")?);
    let (drafted, accepted, emitted) = (frame.counts("drafted")?, frame.counts("accepted")?, frame.counts("emitted")?);
    for_each(&frame, entries, cells, |cell, row| {
        let (Some(start), Some(width)) = (start[row], width[row]) else { return };
        let mut bins = std::mem::take(&mut cell.series.bins);
        bins.resize((start / width).round() as usize, Bin::default());
        bins.push(Bin {
            busy: busy[row],
            batch_time: (batch_size[row].unwrap_or(0.0) * busy[row] as f64) as u128,
            request_steps: request_steps[row],
            drafted: drafted[row],
            accepted: accepted[row],
            emitted: emitted[row],
        });
        cell.series = Series::of(Time::from_s(width), bins);
    })
}

fn fill_lengths(folder: &Path, entries: &[Entry], cells: &mut [Option<Cell>]) -> Result<(), ReportError> {
    let frame = Frame::open(&folder.join("lengths.parquet"))?;
    let (batch_size, batch_size_to) = (frame.small("batch_size")?, frame.small("batch_size_to")?);
    let (draft_len, prefilling) = (frame.small("draft_len")?, frame.flags("prefilling")?);
    let (steps, request_steps, busy) =
        (frame.counts("steps")?, frame.counts("request_steps")?, frame.counts("busy_ps")?);
    let (drafted, accepted, emitted) = (frame.counts("drafted")?, frame.counts("accepted")?, frame.counts("emitted")?);
    for_each(&frame, entries, cells, |cell, row| {
        cell.lengths.push(LengthRow {
            batch_size: batch_size[row],
            batch_size_to: batch_size_to[row],
            draft_len: draft_len[row],
            prefilling: prefilling[row],
            sums: LengthSums {
                steps: steps[row],
                request_steps: request_steps[row],
                busy: busy[row],
                drafted: drafted[row],
                accepted: accepted[row],
                emitted: emitted[row],
            },
        });
    })
}

fn fill_calibration(folder: &Path, entries: &[Entry], cells: &mut [Option<Cell>]) -> Result<(), ReportError> {
    let frame = Frame::open(&folder.join("calibration.parquet"))?;
    let (drafts, right, sum) = (frame.counts("drafts")?, frame.counts("right")?, frame.reals("confidence_sum")?);
    for_each(&frame, entries, cells, |cell, row| {
        let confidence = sum[row].unwrap_or(0.0);
        cell.calibration.push(CalibrationBin { drafts: drafts[row], right: right[row], confidence });
    })
}
