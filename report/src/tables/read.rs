//! Reads the tables of a results folder back, so that a report can be made without running the experiment again.

use super::frame::Frame;
use super::read_fleet::fill_fleets;
use super::summary::{OVERLOAD, lived_column};
use crate::{Cdf, Cell, Entry, ReportError};
use foretoken_sim::metrics::{
    Bin, CalibrationBin, LengthRow, LengthSums, Lived, Overload, PARTS, PositionCounts, Quantiles, Series, Slo,
};
use foretoken_sim::{Summary, Time};
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

/// The overload of each row's run: the rates at which requests arrived and finished, and the numbers of waiting
/// requests. `None` if the run kept up with its arrivals. Tables of earlier versions lack these columns; all rows of
/// such tables get `None`.
fn read_overload(frame: &Frame) -> Result<Vec<Option<Overload>>, ReportError> {
    let there = OVERLOAD.iter().all(|name| frame.has(name));
    let columns: Vec<Vec<Option<f64>>> = match there {
        true => OVERLOAD.iter().map(|name| frame.reals(name)).collect::<Result<_, _>>()?,
        false => vec![vec![None; frame.height()]; OVERLOAD.len()],
    };
    let overload = |i: usize| {
        let value = |column: usize| columns[column][i];
        let waiting = [value(2)? as u64, value(3)? as u64, value(4)? as u64];
        Some(Overload { offered_req_s: value(0)?, completed_req_s: value(1)?, waiting })
    };
    Ok((0..frame.height()).map(overload).collect())
}

/// The parts of the mean end-to-end latency for each row, such as waiting or draft passes. `None` for runs on a device.
/// Also `None` for results of earlier versions, because these versions did not write the parts.
fn read_lived(frame: &Frame) -> Result<Vec<Option<Lived>>, ReportError> {
    let names = PARTS.map(|(part, _)| lived_column(part));
    if !names.iter().all(|name| frame.has(name)) {
        return Ok(vec![None; frame.height()]);
    }
    let columns: Vec<Vec<Option<f64>>> = names.iter().map(|name| frame.reals(name)).collect::<Result<_, _>>()?;
    let lived = |i: usize| {
        let part_s = |part: &str| columns[PARTS.iter().position(|p| p.0 == part)?][i];
        Some(Lived {
            waiting_s: part_s("waiting")?,
            prompts_s: part_s("prompts")?,
            decoding_s: part_s("plain")?,
            drafting_s: part_s("drafts")?,
            verifying_s: part_s("verify")?,
            rejected_s: part_s("rejected")?,
            host_s: part_s("host")?,
            kv_lost_s: part_s("kv_lost")?,
        })
    };
    Ok((0..frame.height()).map(lived).collect())
}

/// The summary of each row. The counts by draft position are missing, because another table has them.
fn read_summaries(frame: &Frame) -> Result<Vec<Summary>, ReportError> {
    let quantiles = |metric: &str| -> Result<Vec<Option<Quantiles>>, ReportError> {
        let part = |name: &str| frame.reals(&format!("{metric}_{name}_s"));
        let (mean, p50, p90, p99) = (part("mean")?, part("p50")?, part("p90")?, part("p99")?);
        let quantiles_of = |i: usize| Some(Quantiles { mean: mean[i]?, p50: p50[i]?, p90: p90[i]?, p99: p99[i]? });
        Ok((0..mean.len()).map(quantiles_of).collect())
    };
    let real = |name: &str| -> Result<Vec<f64>, ReportError> {
        Ok(frame.reals(name)?.into_iter().map(|x| x.unwrap_or(f64::NAN)).collect())
    };
    let (count, maybe) = (|name: &str| frame.counts(name), |name: &str| frame.reals(name));
    let (requests, finished, rejected) = (count("requests")?, count("finished")?, count("rejected")?);
    let (in_flight, preemptions, steps) = (count("in_flight")?, count("preemptions")?, count("steps")?);
    let (request_steps, output_tokens) = (count("request_steps")?, count("output_tokens")?);
    let (drafted, verified) = (count("drafted")?, count("verified")?);
    let (accepted, rounds) = (count("accepted")?, count("rounds")?);
    let (duration_s, busy_s, draft_time_share) = (real("duration_s")?, real("busy_s")?, real("draft_time_share")?);
    let (queue, ttft, tpot) = (quantiles("queue")?, quantiles("ttft")?, quantiles("tpot")?);
    let (itl, e2e) = (quantiles("itl")?, quantiles("e2e")?);
    let (goodput, busy_goodput) = (real("token_goodput_tok_s")?, real("busy_token_goodput_tok_s")?);
    let (slo_goodput, slo_tokens) = (maybe("slo_goodput_req_s")?, maybe("slo_token_goodput_tok_s")?);
    let slo_attainment = maybe("slo_attainment")?;
    let (slo_ttft, slo_tpot, slo_e2e) = (maybe("slo_ttft_s")?, maybe("slo_tpot_s")?, maybe("slo_e2e_s")?);
    let (drafted_per, verified_per) = (real("drafted_per_step")?, real("verified_per_step")?);
    let accepted_per = real("accepted_per_step")?;
    let (rate, length) = (maybe("acceptance_rate")?, maybe("mean_acceptance_length")?);
    let (batch, kv_mean, kv_peak) = (real("mean_batch_size")?, real("kv_use_mean")?, real("kv_use_peak")?);
    let (overload, lived) = (read_overload(frame)?, read_lived(frame)?);
    let summary = |i: usize| Summary {
        requests: requests[i],
        finished: finished[i],
        rejected: rejected[i],
        in_flight: in_flight[i],
        preemptions: preemptions[i],
        steps: steps[i],
        request_steps: request_steps[i],
        duration_s: duration_s[i],
        busy_s: busy_s[i],
        draft_time_share: draft_time_share[i],
        queue: queue[i],
        ttft: ttft[i],
        tpot: tpot[i],
        itl: itl[i],
        e2e: e2e[i],
        output_tokens: output_tokens[i],
        token_goodput_tok_s: goodput[i],
        busy_token_goodput_tok_s: busy_goodput[i],
        slo_goodput_req_s: slo_goodput[i],
        slo_token_goodput_tok_s: slo_tokens[i],
        slo_attainment: slo_attainment[i],
        slo: Slo { ttft_s: slo_ttft[i], tpot_s: slo_tpot[i], e2e_s: slo_e2e[i] },
        drafted: drafted[i],
        verified: verified[i],
        accepted: accepted[i],
        rounds: rounds[i],
        drafted_per_step: drafted_per[i],
        verified_per_step: verified_per[i],
        accepted_per_step: accepted_per[i],
        acceptance_rate: rate[i],
        mean_acceptance_length: length[i],
        positions: Vec::new(),
        mean_batch_size: batch[i],
        kv_use_mean: kv_mean[i],
        kv_use_peak: kv_peak[i],
        overload: overload[i],
        lived: lived[i],
    };
    Ok((0..requests.len()).map(summary).collect())
}
