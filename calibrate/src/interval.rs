//! How uncertain a prediction is. The uncertainty has four sources:
//!
//! - **Which requests come.** They differ in acceptance, and a run has few of them. Each draw assigns other observed
//!   answers of the truth table to the run's requests.
//! - **Acceptance from finitely many requests.** Each draw resamples the calibration's recordings (a bootstrap by
//!   request).
//! - **Depths that were never drafted.** Their rates are extrapolated; each draw moves them all in one direction.
//! - **Costs and schedule.** A fixed share (`foretoken_compare::server_runs::interval`), which includes steps that the
//!   calibration has not seen.
//!
//! The run's arrivals, prompts and lengths are given, so they add no uncertainty.

use crate::kept::Kept;
use crate::predict::{AcceptanceFrom, Prediction};
use crate::source::Source;
use foretoken_compare::numbers::{Numbers, RunRecords};
use foretoken_sim::{Draws, Luck, Stream};
use foretoken_spec::problem::Result;
use foretoken_traces::truth::TruthTable;
use rand_distr::{Distribution, StandardNormal};

/// Number of draws. A standard deviation over 32 draws is itself uncertain by 13 %.
const DRAWS: u64 = 32;

/// Standard deviation of the log-odds of an extrapolated acceptance rate, assumed.
const EXTRAPOLATED: f64 = 0.2;

/// The predicted numbers of a cell (latencies, throughput): `[i][j]` is draw i of repeat j. Empty if nothing is
/// drafted.
pub(crate) fn draws(kept: &Kept, repeats: &[&Source], k: u32) -> Result<Vec<Vec<Numbers>>> {
    if k == 0 {
        return Ok(Vec::new());
    }
    let one = |draw: u64| {
        let by: f64 = StandardNormal.sample(&mut Draws::new(draw, Stream::Belief, 0));
        let table = kept.table.as_ref().map(|table| resampled(table, draw, EXTRAPOLATED * by));
        let deepest = kept.cost.draft_lengths.iter().max().map_or(0, |&deepest| deepest as usize);
        let rates = moved(&kept.rates, deepest, EXTRAPOLATED * by);
        let acceptance = table.as_ref().map_or(AcceptanceFrom::Rates(&rates), AcceptanceFrom::Table);
        let mut numbers = Vec::with_capacity(repeats.len());
        for (repeat, source) in repeats.iter().enumerate() {
            let seed = 1_000_000 + 1000 * draw + repeat as u64;
            let run = Prediction { cost: &kept.cost, acceptance, engine: &kept.engine, seed }.serve(source, k)?;
            numbers.push(Numbers::of(&[RunRecords::requests_only(&run.records)]));
        }
        Ok(numbers)
    };
    (0..DRAWS).map(one).collect()
}

/// A truth table with as many outputs as `table`, drawn from `table` with replacement. The log-odds of extrapolated
/// rates are moved by `by`.
fn resampled(table: &TruthTable, draw: u64, by: f64) -> TruthTable {
    let (n, luck) = (table.outputs.len(), Luck::new(draw, Stream::Request, 0));
    let drawn = (0..n as u64).map(|i| table.outputs[(luck.unit(i) * n as f64) as usize].clone());
    let mut header = table.header.clone();
    if let Some(observed) = &mut header.observed {
        observed.hazards = moved(&observed.hazards, observed.seen, by);
    }
    TruthTable { header, outputs: drawn.collect() }
}

/// The rates by position. After the first `seen` positions the log-odds of each rate are moved by `by`.
fn moved(rates: &[f64], seen: usize, by: f64) -> Vec<f64> {
    let shifted = |rate: f64| {
        let odds = (rate / (1.0 - rate)) * by.exp();
        if rate > 0.0 && rate < 1.0 { odds / (1.0 + odds) } else { rate }
    };
    rates.iter().enumerate().map(|(i, &rate)| if i < seen { rate } else { shifted(rate) }).collect()
}
