//! Predicts one cell of a comparison, that is, one draft length at one load. Each observed run of the cell (a repeat)
//! is predicted.

use crate::calibrate::costs::rows;
use crate::calibrate::fit::CostFit;
use crate::calibrate::interval::draws;
use crate::calibrate::kept::Kept;
use crate::calibrate::predict::{AcceptanceFrom, Prediction};
use crate::calibrate::simple_predictions::{by_formula, interpolated};
use crate::calibrate::source::Source;
use crate::compare::numbers::{Numbers, RunRecords};
use crate::compare::over_time::in_flight_error;
use crate::compare::server_runs::{Cell, PredictedNumbers};
use foretoken_profiler::{Calibrated, median};
use foretoken_run::spec::problem::Result;
use foretoken_sim::Run;

/// The prediction of a run is the mean over this number of simulations. Each simulation has its own seed, with which it
/// draws the acceptance of its requests.
const DRAWS: u64 = 5;

/// The latencies and the throughput of a run, observed or simulated, with the mean number of accepted draft tokens of a
/// request in a step.
#[derive(Clone, Copy)]
struct RunNumbers {
    numbers: Numbers,
    /// Mean number of accepted draft tokens of a request in a step; `None` if nothing was drafted.
    accepted: Option<f64>,
}

/// Compares the repeats of a cell (one draft length at one load) with their predictions. A repeat counts only if
/// requests of several tokens finished, on the server and in all predictions. `None` if no repeat counts.
pub(crate) fn predict_cell(
    kept: &Kept,
    fitted: &[Source],
    load: String,
    k: u32,
    repeats: &[&Source],
) -> Result<Option<Cell>> {
    let calibrated = match (&kept.table, k) {
        (_, 0) => AcceptanceFrom::None,
        (Some(table), _) => AcceptanceFrom::Table(table),
        (None, _) => AcceptanceFrom::Rates(&kept.rates),
    };
    let own = if k == 0 { AcceptanceFrom::None } else { AcceptanceFrom::Own(&kept.rates) };
    let mut all = PredictedNumbers { misfit: kept.numbers, ..PredictedNumbers::default() };
    let (mut accepted_observed, mut accepted_predicted, mut in_flight) = (Vec::new(), Vec::new(), Vec::new());
    for source in repeats {
        let Some(observed) = numbers(&source.run.run) else { continue };
        let own_cost = own_cost(source, kept);
        let with = |cost, acceptance| Prediction { cost, acceptance, engine: &kept.engine, seed: 1 };
        let predicted = mean(&with(&kept.cost, calibrated), source, k)?;
        let own_acceptance = mean(&with(&kept.cost, own), source, k)?;
        let own_both = mean(&with(&own_cost, own), source, k)?;
        let (Some(predicted), Some(own_acceptance), Some(own_both)) = (predicted, own_acceptance, own_both) else {
            continue;
        };
        let run = with(&kept.cost, calibrated).serve(source, k)?;
        in_flight.extend(in_flight_error(&source.run.run.records, &run.records));
        accepted_observed.extend(observed.accepted);
        accepted_predicted.extend(predicted.accepted);
        all.observed.push(observed.numbers);
        all.calibrated.push(predicted.numbers);
        all.own_acceptance.push(own_acceptance.numbers);
        all.own_acceptance_and_cost.push(own_both.numbers);
        all.interpolated.extend(interpolated(source, k, fitted, kept));
        all.formula.extend(by_formula(source, k, kept));
    }
    if all.observed.is_empty() {
        return Ok(None);
    }
    all.draws = draws(kept, repeats, k)?;
    let middle = |values: Vec<f64>| (!values.is_empty()).then(|| median(values));
    let made_from = repeats.iter().any(|s| kept.is_made_from(&s.digest));
    let cell = Cell::new(k, load, all.observed.len(), made_from, all.rows());
    Ok(Some(Cell {
        accepted: (middle(accepted_observed), middle(accepted_predicted)),
        in_flight: (!in_flight.is_empty()).then(|| in_flight.iter().sum::<f64>() / in_flight.len() as f64),
        ..cell
    }))
}

/// The latencies, throughput and accepted draft tokens of a run. `None` if no request with several output tokens
/// finished.
fn numbers(run: &Run) -> Option<RunNumbers> {
    let rounds = run.totals.rounds();
    let accepted = (rounds > 0).then(|| run.totals.accepted() as f64 / rounds as f64);
    let numbers = Numbers::of(&[RunRecords::requests_only(&run.records)]);
    numbers.tpot.is_some().then_some(RunNumbers { numbers, accepted })
}

/// The mean, over [`DRAWS`] seeds, of the predicted latencies and throughput of a run with draft length `k`. Seeds
/// with which no request of several tokens finished are left out; `None` if all seeds are of this kind.
fn mean(prediction: &Prediction, source: &Source, k: u32) -> Result<Option<RunNumbers>> {
    let (mut all, mut accepted) = (Vec::new(), Vec::new());
    for seed in 1..=DRAWS {
        if let Some(one) = numbers(&Prediction { seed, ..*prediction }.serve(source, k)?) {
            all.push(one.numbers);
            accepted.extend(one.accepted);
        }
    }
    let accepted = (!accepted.is_empty()).then(|| accepted.iter().sum::<f64>() / accepted.len() as f64);
    Ok((!all.is_empty()).then(|| RunNumbers { numbers: Numbers::mean(&all), accepted }))
}

/// Costs fitted to the steps of the predicted run itself. The run has one draft length, so its target passes get the
/// whole time of a step and its draft passes cost nothing. Returns the calibrated costs if the run has no timed
/// steps.
fn own_cost(source: &Source, kept: &Kept) -> Calibrated {
    let rows = rows(std::slice::from_ref(source), &kept.engine);
    let mut own = kept.cost.clone();
    if !rows.is_empty() {
        let fit = CostFit::together(&rows);
        own.target.cost = fit.target();
        own.draft.cost = fit.draft_model();
        (own.step_overhead_s, own.host.request_s) = (fit.host_s, fit.host_request_s);
    }
    own
}
