//! `summary.parquet`: one row per run with all numbers of the run's [`Summary`].

use super::column::{Column, column};
use super::writer::{CELLS, Table};
use crate::{Cell, ReportError};
use foretoken_sim::metrics::{Overload, PARTS, Quantiles, Slo, Totals};
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
    let nothing = Summary::new(&RequestRecords::default(), &Totals::default(), Slo::default(), &[], 1, 1);
    let names: Vec<_> = numbers(&nothing).into_iter().map(|(name, n)| (name, n.is_count())).collect();
    let mut table = Table::create(path, cells.iter().map(Cell::key), columns(&names, &[]))?;
    for cells in cells.chunks(CELLS) {
        table.write(&cells.iter().map(Cell::key).collect::<Vec<_>>(), columns(&names, cells))?;
    }
    table.finish()
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

/// The columns about the overload of a run. They are null for runs that kept up with their arrivals.
pub(super) const OVERLOAD: [&str; 5] = [
    "overload_offered_req_s",
    "overload_completed_req_s",
    "overload_waiting_half",
    "overload_waiting_three_quarters",
    "overload_waiting_end",
];

/// The name of the column for a part of the mean E2E, such as waiting.
pub(super) fn lived_column(part: &str) -> String {
    format!("lived_{part}_s")
}

/// A number of a run's summary. A real number is `None` if the summary does not have it.
enum Number {
    Count(u64),
    Real(Option<f64>),
}

impl Number {
    fn is_count(&self) -> bool {
        matches!(self, Number::Count(_))
    }
}

/// Every number of a summary with the name of its column, in the order of the columns. The pattern lists every field of
/// [`Summary`], so that the compiler reports a new field that is missing here.
fn numbers(summary: &Summary) -> Vec<(String, Number)> {
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
    let count = |name: &str, n: &u64| (name.to_owned(), Number::Count(*n));
    let real = |name: &str, x: Option<f64>| (name.to_owned(), Number::Real(x));
    let mut all = vec![
        count("requests", requests),
        count("finished", finished),
        count("rejected", rejected),
        count("in_flight", in_flight),
        count("preemptions", preemptions),
        count("steps", steps),
        count("request_steps", request_steps),
        real("duration_s", Some(*duration_s)),
        real("busy_s", Some(*busy_s)),
        real("draft_time_share", Some(*draft_time_share)),
    ];
    for (metric, q) in [("queue", queue), ("ttft", ttft), ("tpot", tpot), ("itl", itl), ("e2e", e2e)] {
        let parts = |q: &Quantiles| [q.mean, q.p50, q.p90, q.p99];
        let values = q.as_ref().map_or([None; 4], |q| parts(q).map(Some));
        let named = ["mean", "p50", "p90", "p99"].into_iter().zip(values);
        all.extend(named.map(|(part, value)| real(&format!("{metric}_{part}_s"), value)));
    }
    all.extend([
        count("output_tokens", output_tokens),
        real("token_goodput_tok_s", Some(*token_goodput_tok_s)),
        real("busy_token_goodput_tok_s", Some(*busy_token_goodput_tok_s)),
        real("slo_goodput_req_s", *slo_goodput_req_s),
        real("slo_token_goodput_tok_s", *slo_token_goodput_tok_s),
        real("slo_attainment", *slo_attainment),
        real("slo_ttft_s", *ttft_s),
        real("slo_tpot_s", *tpot_s),
        real("slo_e2e_s", *e2e_s),
        count("drafted", drafted),
        count("verified", verified),
        count("accepted", accepted),
        count("rounds", rounds),
        real("drafted_per_step", Some(*drafted_per_step)),
        real("verified_per_step", Some(*verified_per_step)),
        real("accepted_per_step", Some(*accepted_per_step)),
        real("acceptance_rate", *acceptance_rate),
        real("mean_acceptance_length", *mean_acceptance_length),
        real("mean_batch_size", Some(*mean_batch_size)),
        real("kv_use_mean", Some(*kv_use_mean)),
        real("kv_use_peak", Some(*kv_use_peak)),
    ]);
    let numbers = |o: &Overload| {
        let [half, three_quarters, end] = o.waiting.map(|n| n as f64);
        [o.offered_req_s, o.completed_req_s, half, three_quarters, end]
    };
    let values = overload.as_ref().map_or([None; 5], |o| numbers(o).map(Some));
    all.extend(OVERLOAD.into_iter().zip(values).map(|(name, value)| real(name, value)));
    all.extend(PARTS.iter().map(|(part, of)| real(&lived_column(part), lived.as_ref().map(of))));
    all
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
