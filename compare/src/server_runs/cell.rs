//! A cell of a comparison with a server: one draft length at one load. It has the observed runs, their predictions, and
//! the parts of the errors.

use super::interval::half_width;
use crate::bounds::Check;
use crate::numbers::{E2E, Numbers, QUANTITIES, Quantity, THROUGHPUT, TPOT, TTFT};
use crate::row::Row;
use foretoken_spec::validate::REPEATS_AGREE;
use serde::Serialize;

/// Largest allowed error of throughput, mean TPOT and mean E2E, as a share.
pub const BOUND: f64 = 0.05;
/// Largest allowed error of mean TTFT, as a share.
pub const BOUND_TTFT: f64 = 0.10;
/// The numbers that have bounds on their errors, as (name, bound).
pub const JUDGED: [(&str, f64); 4] = [(THROUGHPUT, BOUND), (TPOT, BOUND), (E2E, BOUND), (TTFT, BOUND_TTFT)];

/// One draft length at one load: observed numbers against predicted ones.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The draft length, tokens.
    pub k: u32,
    /// The load as text, such as `closed 4` (four clients) or `open 3.00 req/s, seed 1`.
    pub load: String,
    /// Number of observed runs.
    pub repeats: usize,
    /// True if the calibration was made from one of the cell's runs, so that the cell is not held out.
    pub fitted: bool,
    /// The compared numbers, each with its prediction and the parts of the error.
    pub rows: Vec<Row<Calibrated>>,
    /// The bounds on the errors of the numbers in [`JUDGED`].
    pub checks: Vec<Check>,
    /// Mean number of accepted drafts per round, as (observed, predicted). `None` if nothing was drafted.
    pub accepted: (Option<f64>, Option<f64>),
    /// Mean absolute error of the number of requests in flight over time, relative to the observed mean.
    pub in_flight: Option<f64>,
    /// The part (`cost`, `acceptance` or `schedule`) that contributes most to the cell's largest error beyond its
    /// bound. `None` if no error is beyond its bound.
    pub cause: Option<&'static str>,
}

/// A number predicted from a calibration, and the parts of its error. Errors are predicted / observed − 1, or the
/// difference for shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calibrated {
    /// The predicted value. Each observed run is predicted from the run's own requests; this is the median of these
    /// predictions.
    pub predicted: f64,
    /// Half the width of the prediction's 95 % interval, as a share of the prediction; `None` for numbers that are
    /// shares themselves.
    pub half_width: Option<f64>,
    /// The error of the prediction: the sum of the next three parts.
    pub error: f64,
    /// The part of the error that disappears if the acceptance observed in the run replaces the calibrated acceptance.
    pub of_acceptance: f64,
    /// The part of the error that disappears if costs fitted to the run itself replace the calibrated costs.
    pub of_cost: f64,
    /// The error that remains with the run's own acceptance and costs: errors of the schedule, and variations of cost
    /// around the mean.
    pub of_schedule: f64,
    /// The error of a simple prediction, the interpolation between two draft lengths; `None` if these were not
    /// observed.
    pub interpolated: Option<f64>,
    /// The error of a simple prediction, the formula for tokens per round; `None` if the formula gives no value.
    pub formula: Option<f64>,
}

/// The observed and the predicted numbers of a cell. Each list except `draws` has one entry per observed run.
#[derive(Clone, Debug, Default)]
pub struct PredictedNumbers {
    /// The observed numbers.
    pub observed: Vec<Numbers>,
    /// The numbers predicted from the calibration.
    pub calibrated: Vec<Numbers>,
    /// The numbers predicted with the run's observed acceptance.
    pub own_acceptance: Vec<Numbers>,
    /// The numbers predicted with the run's observed acceptance and with costs fitted to the run.
    pub own_acceptance_and_cost: Vec<Numbers>,
    /// The numbers interpolated between two draft lengths. The list has fewer entries if this is not possible for all
    /// runs.
    pub interpolated: Vec<Numbers>,
    /// The numbers by the formula for tokens per round. The list has fewer entries if the formula gives no value for
    /// some runs.
    pub formula: Vec<Numbers>,
    /// `[i][j]`: the prediction of run j with random draw i of the calibration's uncertain values.
    pub draws: Vec<Vec<Numbers>>,
}

impl PredictedNumbers {
    /// One row for each number that all observed runs and all predictions from the calibration have.
    pub fn rows(&self) -> Vec<Row<Calibrated>> {
        let median = Numbers::median;
        let (calibrated, own, both) =
            (median(&self.calibrated), median(&self.own_acceptance), median(&self.own_acceptance_and_cost));
        // A simple prediction counts only if it exists for every observed run.
        let if_whole = |runs: &[Numbers]| (runs.len() == self.observed.len()).then(|| median(runs));
        let (interpolated, formula) = (if_whole(&self.interpolated), if_whole(&self.formula));
        let row = |quantity: &Quantity| {
            let &Quantity { name, unit, read } = quantity;
            let observed = self.observed.iter().map(read).collect::<Option<Vec<f64>>>()?;
            let predicted = read(&calibrated)?;
            let (own, both) = (read(&own)?, read(&both)?);
            let row = Row::new(name, unit, observed, |reference| {
                let error = |value: f64| unit.error(value, reference);
                Some(Calibrated {
                    predicted,
                    half_width: half_width(quantity, &self.draws),
                    error: error(predicted)?,
                    of_acceptance: error(predicted)? - error(own)?,
                    of_cost: error(own)? - error(both)?,
                    of_schedule: error(both)?,
                    interpolated: interpolated.as_ref().and_then(read).and_then(error),
                    formula: formula.as_ref().and_then(read).and_then(error),
                })
            });
            let Row { quantity, unit, observed, spread, predicted } = row;
            Some(Row { quantity, unit, observed, spread, predicted: predicted? })
        };
        QUANTITIES.iter().filter_map(row).collect()
    }
}

impl Calibrated {
    /// True if the observed value lies within the prediction's interval; `None` without an interval.
    pub fn covers(&self, observed: f64) -> Option<bool> {
        self.half_width.map(|half| (observed / self.predicted).ln().abs() <= half)
    }
}

impl Cell {
    /// Makes a cell from its rows. Checks the bounds and finds the cause of the largest error.
    pub fn new(k: u32, load: String, repeats: usize, fitted: bool, rows: Vec<Row<Calibrated>>) -> Cell {
        let empty = Vec::new();
        let mut cell = Cell {
            k,
            load,
            repeats,
            fitted,
            rows,
            checks: empty,
            accepted: (None, None),
            in_flight: None,
            cause: None,
        };
        cell.checks = JUDGED
            .iter()
            .filter_map(|&(quantity, bound)| {
                let row = cell.row(quantity)?;
                let what = format!("K = {}, {}: {quantity}", cell.k, cell.load);
                Some(Check::of_error(what, row, row.predicted.error, bound, REPEATS_AGREE))
            })
            .collect();
        cell.cause = cause(&cell);
        cell
    }

    /// The row of the number called `quantity`; `None` if the runs do not show this number.
    pub fn row(&self, quantity: &str) -> Option<&Row<Calibrated>> {
        self.rows.iter().find(|r| r.quantity == quantity)
    }

    /// True if the number called `quantity` is decided: it was observed at least twice, and its repeats agree.
    pub fn decided(&self, quantity: &str) -> bool {
        self.row(quantity).is_some_and(|row| row.decided(REPEATS_AGREE))
    }

    /// The numbers with bounds whose errors are beyond the bounds. Numbers that are not decided are included.
    pub fn beyond(&self) -> Vec<&Row<Calibrated>> {
        let beyond = |&(quantity, bound): &(&str, f64)| self.row(quantity).filter(|r| r.predicted.error.abs() > bound);
        JUDGED.iter().filter_map(beyond).collect()
    }
}

/// The main part of the cell's largest error beyond its bound: the part that moves the prediction most in the direction
/// of this error. `None` if no error is beyond its bound.
fn cause(cell: &Cell) -> Option<&'static str> {
    let by_size =
        |a: &&Row<Calibrated>, b: &&Row<Calibrated>| a.predicted.error.abs().total_cmp(&b.predicted.error.abs());
    let worst = cell.beyond().into_iter().max_by(by_size)?.predicted;
    let parts = [("cost", worst.of_cost), ("acceptance", worst.of_acceptance), ("schedule", worst.of_schedule)];
    let sign = worst.error.signum();
    parts.into_iter().max_by(|a, b| (a.1 * sign).total_cmp(&(b.1 * sign))).map(|part| part.0)
}
