//! One draft length at one load: what was observed in its repeats, what is predicted, and what the error is made of.

use super::interval::half_width;
use crate::bounds::Check;
use crate::numbers::{E2E, Numbers, QUANTITIES, Quantity, THROUGHPUT, TPOT, TTFT};
use crate::row::Row;
use foretoken_spec::validate::REPEATS_AGREE;
use serde::Serialize;

/// Largest error of throughput, mean TPOT and mean E2E, as a share.
pub const BOUND: f64 = 0.05;
/// Largest error of mean TTFT, as a share.
pub const BOUND_TTFT: f64 = 0.10;
/// The numbers that have bounds, with their bounds.
pub const JUDGED: [(&str, f64); 4] = [(THROUGHPUT, BOUND), (TPOT, BOUND), (E2E, BOUND), (TTFT, BOUND_TTFT)];

/// A draft length at a load, with its repeats.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Draft length.
    pub k: u32,
    /// The load as text.
    pub load: String,
    /// Number of observed runs.
    pub repeats: usize,
    /// True if the calibration was made from one of these runs.
    pub fitted: bool,
    /// The numbers.
    pub rows: Vec<Row<Calibrated>>,
    /// The bounds on errors of means.
    pub checks: Vec<Check>,
    /// Accepted drafts per round: observed, then predicted. `None` if nothing was drafted.
    pub accepted: (Option<f64>, Option<f64>),
    /// Error of the number of requests in flight over time, relative to the observed mean.
    pub in_flight: Option<f64>,
    /// What most of the largest error beyond its bound comes from; `None` if no error is beyond its bound.
    pub cause: Option<&'static str>,
}

/// A number predicted from a calibration, and what its error is made of. Errors are predicted over observed, minus 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calibrated {
    /// The predicted value: the median over the repeats' requests.
    pub predicted: f64,
    /// Half the width of its 95 % interval, as a share of it; `None` for numbers that are shares themselves.
    pub half_width: Option<f64>,
    /// Its error: the sum of the next three parts.
    pub error: f64,
    /// The part of the error that disappears if the observed acceptance replaces the calibrated one.
    pub of_acceptance: f64,
    /// The part of the error that disappears if the run's own costs replace the calibrated ones.
    pub of_cost: f64,
    /// The error that remains with both observed: the schedule, and what no mean cost has.
    pub of_schedule: f64,
    /// Error of interpolating between two draft lengths; `None` if these were not observed.
    pub interpolated: Option<f64>,
    /// Error of the closed formula; `None` if it has no answer.
    pub formula: Option<f64>,
}

/// The numbers of a cell: a list has one entry per repeat.
#[derive(Clone, Debug, Default)]
pub struct PredictedNumbers {
    /// As observed.
    pub observed: Vec<Numbers>,
    /// Predicted from the calibration.
    pub calibrated: Vec<Numbers>,
    /// Predicted with the observed acceptance.
    pub own_acceptance: Vec<Numbers>,
    /// Predicted with the observed acceptance and the run's own costs.
    pub own_acceptance_and_cost: Vec<Numbers>,
    /// Interpolated between two draft lengths, where that is possible.
    pub interpolated: Vec<Numbers>,
    /// By the closed formula, where it has an answer.
    pub formula: Vec<Numbers>,
    /// `[i][j]`: draw i of what the calibration does not know, for repeat j.
    pub draws: Vec<Vec<Numbers>>,
}

impl PredictedNumbers {
    /// The rows of all numbers that the runs show.
    pub fn rows(&self) -> Vec<Row<Calibrated>> {
        let median = Numbers::median;
        let (calibrated, own, both) =
            (median(&self.calibrated), median(&self.own_acceptance), median(&self.own_acceptance_and_cost));
        // A simple prediction counts if it exists for every repeat.
        let whole = |all: &[Numbers]| (all.len() == self.observed.len()).then(|| median(all));
        let (interpolated, formula) = (whole(&self.interpolated), whole(&self.formula));
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
    /// Whether the observed number lies within the interval; `None` without one.
    pub fn covers(&self, observed: f64) -> Option<bool> {
        self.half_width.map(|half| (observed / self.predicted).ln().abs() <= half)
    }
}

impl Cell {
    /// A cell with these rows. The bounds and the cause are found here.
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

    /// Finds the row with this name.
    pub fn row(&self, quantity: &str) -> Option<&Row<Calibrated>> {
        self.rows.iter().find(|r| r.quantity == quantity)
    }

    /// True if this number is decided.
    pub fn decided(&self, quantity: &str) -> bool {
        self.row(quantity).is_some_and(|row| row.decided(REPEATS_AGREE))
    }

    /// The numbers that are beyond their bounds, whether decided or not.
    pub fn beyond(&self) -> Vec<&Row<Calibrated>> {
        let beyond = |&(quantity, bound): &(&str, f64)| self.row(quantity).filter(|r| r.predicted.error.abs() > bound);
        JUDGED.iter().filter_map(beyond).collect()
    }
}

/// What most of the largest error beyond its bound comes from: the part that moves the prediction most in the direction
/// of the error.
fn cause(cell: &Cell) -> Option<&'static str> {
    let by_size =
        |a: &&Row<Calibrated>, b: &&Row<Calibrated>| a.predicted.error.abs().total_cmp(&b.predicted.error.abs());
    let worst = cell.beyond().into_iter().max_by(by_size)?.predicted;
    let parts = [("cost", worst.of_cost), ("acceptance", worst.of_acceptance), ("schedule", worst.of_schedule)];
    let sign = worst.error.signum();
    parts.into_iter().max_by(|a, b| (a.1 * sign).total_cmp(&(b.1 * sign))).map(|part| part.0)
}
