//! How uncertain a prediction is. The uncertainty has five sources:
//!
//! - **Which requests come.** Requests differ in acceptance, and a run has few requests. Each random draw assigns
//!   other observed answers of the truth table to the run's requests.
//! - **Acceptance from finitely many requests.** Each random draw resamples the calibration's recordings (a bootstrap
//!   by request).
//! - **Draft positions at which nothing was drafted.** Their acceptance rates are extrapolated; each random draw
//!   moves all these rates up, or all of them down.
//! - **The form of the costs.** Each random draw multiplies all times of passes by a factor. The factor's deviation is
//!   the misfit of the form (`held_out.rs`): an error of costs changes each number as it changes it at this load.
//! - **Costs and schedule.** The error with which the calibration predicts the same number of its own runs is added,
//!   or a fixed one if that is larger (`crate::compare::server_runs::interval`).
//!
//! The run's arrivals, prompts and lengths are given, so they add no uncertainty.

use crate::calibrate::kept::Kept;
use crate::calibrate::predict::{AcceptanceFrom, Prediction};
use crate::calibrate::source::Source;
use crate::compare::numbers::{Numbers, RunRecords};
use foretoken_profiler::Calibrated;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_run::spec::problem::Result;
use foretoken_sim::{Draws, Luck, Stream};
use foretoken_traces::truth::TruthTable;
use rand_distr::{Distribution, StandardNormal};

/// Number of random draws of acceptance from which a prediction's interval is computed. A standard deviation over 32
/// draws is itself uncertain by 13 %.
const DRAWS: u64 = 32;

/// Assumed standard deviation of the log-odds of an acceptance rate that was extrapolated to depths at which nothing
/// was drafted.
const EXTRAPOLATED: f64 = 0.2;

/// Predictions of the numbers (latencies, throughput) of one draft length at one load, with randomly drawn
/// acceptance and random costs. `[i][j]` is the prediction for observed run j of `repeats` with random draw i.
pub(crate) fn draws(kept: &Kept, repeats: &[&Source], k: u32) -> Result<Vec<Vec<Numbers>>> {
    let one = |draw: u64| {
        let normal = |stream: Stream| -> f64 { StandardNormal.sample(&mut Draws::new(draw, stream, 0)) };
        let by = normal(Stream::Belief);
        let cost = slower(&kept.cost, (kept.misfit * normal(Stream::Noise)).exp());
        let table = kept.table.as_ref().map(|table| resampled(table, draw, EXTRAPOLATED * by));
        let deepest = kept.cost.draft_lengths.iter().max().map_or(0, |&deepest| deepest as usize);
        let rates = moved(&kept.rates, deepest, EXTRAPOLATED * by);
        let acceptance = match (&table, k) {
            (_, 0) => AcceptanceFrom::None,
            (Some(table), _) => AcceptanceFrom::Table(table),
            (None, _) => AcceptanceFrom::Rates(&rates),
        };
        let mut numbers = Vec::with_capacity(repeats.len());
        for (repeat, source) in repeats.iter().enumerate() {
            let seed = 1_000_000 + 1000 * draw + repeat as u64;
            let run = Prediction { cost: &cost, acceptance, engine: &kept.engine, seed }.serve(source, k)?;
            numbers.push(Numbers::of(&[RunRecords::requests_only(&run.records)]));
        }
        Ok(numbers)
    };
    (0..DRAWS).map(one).collect()
}

fn slower(cost: &Calibrated, factor: f64) -> Calibrated {
    let mut slower = cost.clone();
    for cost in [&mut slower.target.cost, &mut slower.draft.cost] {
        match cost {
            LatencySpec::Measured(m) => {
                let curves = [&mut m.batched, &mut m.pairs, &mut m.context, &mut m.requests];
                curves.into_iter().flatten().for_each(|point| point.1 *= factor);
            }
            LatencySpec::Linear(c) => {
                [&mut c.alpha_s, &mut c.gamma_s, &mut c.delta_s].into_iter().for_each(|s| *s *= factor);
            }
            // A calibration to runs fits a table and a line.
            LatencySpec::Staircase(_) | LatencySpec::Roofline(_) | LatencySpec::Kernels(_) => {}
        }
    }
    slower
}

/// Returns a truth table with as many answers as `table`. The answers are drawn at random from `table`, with
/// replacement; `draw` is the seed. `by` is added to the log-odds of extrapolated acceptance rates.
fn resampled(table: &TruthTable, draw: u64, by: f64) -> TruthTable {
    let (n, luck) = (table.outputs.len(), Luck::new(draw, Stream::Request, 0));
    let drawn = (0..n as u64).map(|i| {
        let mut output = table.outputs[(luck.unit(i) * n as f64) as usize].clone();
        output.move_chances(by);
        output
    });
    let mut header = table.header.clone();
    if let Some(observed) = &mut header.observed {
        observed.hazards = moved(&observed.hazards, observed.seen, by);
    }
    TruthTable { header, outputs: drawn.collect() }
}

/// Adds `by` to the log-odds of each acceptance rate after the first `seen` draft positions. Earlier rates, and rates
/// of 0 and 1, stay unchanged.
fn moved(rates: &[f64], seen: usize, by: f64) -> Vec<f64> {
    let shifted = |rate: f64| {
        let odds = (rate / (1.0 - rate)) * by.exp();
        if rate > 0.0 && rate < 1.0 { odds / (1.0 + odds) } else { rate }
    };
    rates.iter().enumerate().map(|(i, &rate)| if i < seen { rate } else { shifted(rate) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_odds_move_behind_the_seen_positions_and_not_at_the_ends() {
        // Odds of 1 and of 1/3 are doubled.
        let all = moved(&[0.5, 0.5, 0.25, 0.0, 1.0], 1, 2.0_f64.ln());
        for (rate, wanted) in all.iter().zip([0.5, 2.0 / 3.0, 0.4, 0.0, 1.0]) {
            assert!((rate - wanted).abs() < 1e-12, "{all:?}");
        }
    }
}
