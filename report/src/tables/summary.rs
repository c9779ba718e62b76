//! `summary.parquet`: one row per run with all numbers of the run's [`Summary`]. One list of the columns serves to
//! write the table and to read it.

use super::column::{Column, column};
use super::frame::Frame;
use super::writer::{CELLS, Table};
use crate::{Cell, ReportError};
use foretoken_sim::metrics::{Lived, Overload, PARTS, Quantiles, Slo, Totals};
use foretoken_sim::{RequestRecords, Summary};
use std::path::Path;

/// Writes `summary.parquet`.
///
/// Columns after the key columns (policy, swept settings, seed): `implied` (did the program add this autoregressive
/// run?), `speedup`, then the fields of [`Summary`] under their own names. Latencies (queue, ttft, tpot, itl, e2e) have
/// columns `<metric>_{mean,p50,p90,p99}_s`; SLO bounds have `slo_{ttft,tpot,e2e}_s`. Overloaded runs have
/// `overload_{offered,completed}_req_s` and `overload_waiting_{half,three_quarters,end}`. `lived_<part>_s` are the
/// parts of the mean E2E. A number that a run does not have is null. Counts by draft position are in
/// `positions.parquet`.
pub fn write_summary(path: &Path, cells: &[Cell]) -> Result<(), ReportError> {
    let names: Vec<_> = numbers(&nothing()).into_iter().map(|(name, n)| (name, n.is_count())).collect();
    let mut table = Table::create(path, cells.iter().map(Cell::key), columns(&names, &[]))?;
    for cells in cells.chunks(CELLS) {
        table.write(&cells.iter().map(Cell::key).collect::<Vec<_>>(), columns(&names, cells))?;
    }
    table.finish()
}

/// The summary of each row. The counts by draft position are missing, because another table has them. Tables of earlier
/// versions lack the columns about overload and about the parts of the mean E2E; their rows have neither.
pub(super) fn read_summaries(frame: &Frame) -> Result<Vec<Summary>, ReportError> {
    let nothing = nothing();
    let may_lack = |name: &str| name.starts_with("overload_") || name.starts_with("lived_");
    let read = |(name, number): (String, Number)| -> Result<Vec<Number>, ReportError> {
        Ok(match number {
            Number::Count(_) => frame.counts(&name)?.into_iter().map(Number::Count).collect(),
            Number::Real(_) if may_lack(&name) && !frame.has(&name) => vec![Number::Real(None); frame.height()],
            Number::Real(_) => frame.reals(&name)?.into_iter().map(Number::Real).collect(),
        })
    };
    let columns = numbers(&nothing).into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let summary = |row: usize| {
        let (mut summary, mut columns) = (nothing.clone(), columns.iter());
        each(&mut summary, |_, number| *number = columns.next().expect("a number of each column")[row]);
        summary
    };
    Ok((0..frame.height()).map(summary).collect())
}

/// The summary of a run without requests.
fn nothing() -> Summary {
    Summary::new(&RequestRecords::default(), &Totals::default(), Slo::default(), &[], 1, 1)
}

/// The first number of a run's summary that is infinite or not a number, as (name of its column, the number). `None` if
/// all numbers are finite.
pub fn not_finite(summary: &Summary) -> Option<(String, f64)> {
    let broken = |number: Number| match number {
        Number::Real(x) => x.filter(|x| !x.is_finite()),
        Number::Count(_) => None,
    };
    numbers(summary).into_iter().find_map(|(name, number)| Some((name, broken(number)?)))
}

/// A number of a run's summary. A real number is `None` if the summary does not have it.
#[derive(Clone, Copy)]
enum Number {
    Count(u64),
    Real(Option<f64>),
}

impl Number {
    fn is_count(&self) -> bool {
        matches!(self, Number::Count(_))
    }
}

/// Every number of a summary with the name of its column, in the order of the columns.
fn numbers(summary: &Summary) -> Vec<(String, Number)> {
    let mut all = Vec::new();
    each(&mut summary.clone(), |name, number| all.push((name.to_owned(), *number)));
    all
}

/// Shows every number of a summary with the name of its column to `visit`, in the order of the columns, and keeps what
/// `visit` makes of it. The pattern lists every field of [`Summary`], so that the compiler reports a new field that is
/// missing here.
fn each(summary: &mut Summary, visit: impl FnMut(&str, &mut Number)) {
    let Summary {
        requests,
        finished,
        rejected,
        in_flight,
        preemptions,
        steps,
        request_steps,
        duration_s,
        busy_s,
        draft_time_share,
        queue,
        ttft,
        tpot,
        itl,
        e2e,
        output_tokens,
        token_goodput_tok_s,
        busy_token_goodput_tok_s,
        slo_goodput_req_s,
        slo_token_goodput_tok_s,
        slo_attainment,
        slo: Slo { ttft_s, tpot_s, e2e_s },
        drafted,
        verified,
        accepted,
        rounds,
        drafted_per_step,
        verified_per_step,
        accepted_per_step,
        acceptance_rate,
        mean_acceptance_length,
        positions: _,
        mean_batch_size,
        kv_use_mean,
        kv_use_peak,
        overload,
        lived,
    } = summary;
    let mut c = Columns(visit);
    c.count("requests", requests);
    c.count("finished", finished);
    c.count("rejected", rejected);
    c.count("in_flight", in_flight);
    c.count("preemptions", preemptions);
    c.count("steps", steps);
    c.count("request_steps", request_steps);
    c.real("duration_s", duration_s);
    c.real("busy_s", busy_s);
    c.real("draft_time_share", draft_time_share);
    for (metric, q) in [("queue", queue), ("ttft", ttft), ("tpot", tpot), ("itl", itl), ("e2e", e2e)] {
        let names = ["mean", "p50", "p90", "p99"].map(|part| format!("{metric}_{part}_s"));
        let parts = c.together(names, q.map(|q| [q.mean, q.p50, q.p90, q.p99]));
        *q = parts.map(|[mean, p50, p90, p99]| Quantiles { mean, p50, p90, p99 });
    }
    c.count("output_tokens", output_tokens);
    c.real("token_goodput_tok_s", token_goodput_tok_s);
    c.real("busy_token_goodput_tok_s", busy_token_goodput_tok_s);
    c.maybe("slo_goodput_req_s", slo_goodput_req_s);
    c.maybe("slo_token_goodput_tok_s", slo_token_goodput_tok_s);
    c.maybe("slo_attainment", slo_attainment);
    c.maybe("slo_ttft_s", ttft_s);
    c.maybe("slo_tpot_s", tpot_s);
    c.maybe("slo_e2e_s", e2e_s);
    c.count("drafted", drafted);
    c.count("verified", verified);
    c.count("accepted", accepted);
    c.count("rounds", rounds);
    c.real("drafted_per_step", drafted_per_step);
    c.real("verified_per_step", verified_per_step);
    c.real("accepted_per_step", accepted_per_step);
    c.maybe("acceptance_rate", acceptance_rate);
    c.maybe("mean_acceptance_length", mean_acceptance_length);
    c.real("mean_batch_size", mean_batch_size);
    c.real("kv_use_mean", kv_use_mean);
    c.real("kv_use_peak", kv_use_peak);
    let names = ["offered_req_s", "completed_req_s", "waiting_half", "waiting_three_quarters", "waiting_end"];
    let parts = overload.map(|o| {
        let [half, three_quarters, end] = o.waiting.map(|n| n as f64);
        [o.offered_req_s, o.completed_req_s, half, three_quarters, end]
    });
    let parts = c.together(names.map(|name| format!("overload_{name}")), parts);
    *overload = parts.map(|[offered_req_s, completed_req_s, waiting @ ..]| {
        let waiting = waiting.map(|n| n as u64);
        Overload { offered_req_s, completed_req_s, waiting }
    });
    let names = PARTS.map(|(part, _)| format!("lived_{part}_s"));
    let parts = c.together(names, lived.map(|lived| PARTS.map(|(_, of)| of(&lived))));
    // The order is that of `PARTS`.
    *lived = parts.map(|[decoding_s, drafting_s, verifying_s, rejected_s, prompts_s, host_s, waiting_s, kv_lost_s]| {
        Lived { waiting_s, prompts_s, decoding_s, drafting_s, verifying_s, rejected_s, host_s, kv_lost_s }
    });
}

/// Shows numbers to the function, and puts its numbers in their place.
struct Columns<F>(F);

impl<F: FnMut(&str, &mut Number)> Columns<F> {
    fn count(&mut self, name: &str, n: &mut u64) {
        let mut number = Number::Count(*n);
        (self.0)(name, &mut number);
        if let Number::Count(own) = number {
            *n = own;
        }
    }

    fn maybe(&mut self, name: &str, x: &mut Option<f64>) {
        let mut number = Number::Real(*x);
        (self.0)(name, &mut number);
        if let Number::Real(own) = number {
            *x = own;
        }
    }

    fn real(&mut self, name: &str, x: &mut f64) {
        let mut number = Some(*x);
        self.maybe(name, &mut number);
        *x = number.unwrap_or(f64::NAN);
    }

    /// Numbers that a summary has all or none of.
    fn together<const N: usize>(&mut self, names: [String; N], numbers: Option<[f64; N]>) -> Option<[f64; N]> {
        let mut parts = numbers.map_or([None; N], |numbers| numbers.map(Some));
        names.iter().zip(&mut parts).for_each(|(name, part)| self.maybe(name, part));
        parts.iter().all(Option::is_some).then(|| parts.map(Option::unwrap_or_default))
    }
}

/// The columns of `summary.parquet` after the key columns. `names` has (the column's name, is the number a count?) for
/// each number of a summary.
fn columns(names: &[(String, bool)], cells: &[Cell]) -> Vec<Column> {
    let rows: Vec<_> = cells.iter().map(|c| numbers(&c.summary)).collect();
    let mut columns = vec![
        column("implied", cells.iter().map(|c| c.entry.implied)),
        column("speedup", cells.iter().map(|c| c.speedup)),
    ];
    for (i, (name, is_count)) in names.iter().enumerate() {
        let values = rows.iter().map(|row| &row[i].1);
        columns.push(if *is_count {
            let counts = values.filter_map(|n| if let Number::Count(n) = n { Some(*n) } else { None });
            column(name, counts)
        } else {
            let reals = values.filter_map(|n| if let Number::Real(x) = n { Some(*x) } else { None });
            column(name, reals)
        });
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::report;

    #[test]
    fn every_number_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut cell = report(1, &[], &[], 1, 20).cells.remove(0);
        let mut n = 0;
        each(&mut cell.summary, |_, number| {
            n += 1;
            *number = if number.is_count() { Number::Count(n) } else { Number::Real(Some(n as f64)) };
        });
        assert!(n > 50 && cell.summary.overload.is_some() && cell.summary.lived.is_some(), "{:?}", cell.summary);
        cell.summary.positions.clear();
        let path = dir.path().join("summary.parquet");
        write_summary(&path, std::slice::from_ref(&cell)).unwrap();
        let read = read_summaries(&Frame::open(&path).unwrap()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", [cell.summary]));
    }
}
