//! A cell of a comparison with a server: one draft length at one load. For each number, such as mean TPOT, it has the
//! observed values, the prediction, and the parts of the error that come from acceptance, from pass costs and from the
//! schedule.

use super::interval::{Misfit, half_width};
use crate::compare::bounds::Check;
use crate::compare::numbers::{E2E, Numbers, QUANTITIES, Quantity, THROUGHPUT, TPOT, TTFT};
use crate::compare::row::Row;
use foretoken_run::spec::validate::REPEATS_AGREE;
use serde::Serialize;

/// Largest allowed error of throughput, mean TPOT and mean E2E, as a share.
pub const BOUND: f64 = 0.05;
/// Largest allowed error of mean TTFT, as a share.
pub const BOUND_TTFT: f64 = 0.10;
/// The numbers that have bounds on their errors, as (name, largest allowed error as a share).
pub const JUDGED: [(&str, f64); 4] = [(THROUGHPUT, BOUND), (TPOT, BOUND), (E2E, BOUND), (TTFT, BOUND_TTFT)];

/// The comparison of a server's observed numbers (such as mean TPOT) with predicted ones, for one draft length at one
/// load.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The draft length with which the server ran, tokens.
    pub k: u32,
    /// The load as text, such as `closed 4` (four clients) or `open 3.00 req/s, seed 1`.
    pub load: String,
    /// Number of observed runs of the server with this draft length at this load.
    pub repeats: usize,
    /// True if the calibration was made from one of the runs of this cell, so that the cell is not held out.
    pub fitted: bool,
    /// The compared numbers, such as mean TPOT. Each has its prediction, and the parts of the prediction's error that
    /// come from acceptance, from pass costs and from the schedule.
    pub rows: Vec<Row<Calibrated>>,
    /// The bounds on the errors of the numbers in [`JUDGED`] (such as mean TPOT), and whether this cell's predictions
    /// keep them.
    pub checks: Vec<Check>,
    /// Mean number of accepted draft tokens of a request in a step, as (observed, predicted). `None` if nothing was
    /// drafted.
    pub accepted: (Option<f64>, Option<f64>),
    /// Mean absolute error of the simulated number of requests in flight over time, relative to the observed mean.
    pub in_flight: Option<f64>,
    /// The part (`cost`, `acceptance` or `schedule`) that contributes most to the largest error of the cell beyond its
    /// bound. `None` if no error is beyond its bound.
    pub cause: Option<&'static str>,
}

/// A number predicted with the costs and the acceptance that were fitted to a server (its calibration), and its error:
/// predicted / observed − 1, or the difference for shares. The error is the sum of three parts, from acceptance, costs
/// and schedule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calibrated {
    /// The predicted value of the compared number (such as mean TPOT). Each observed run is predicted from the run's
    /// own requests; this is the median of these predictions.
    pub predicted: f64,
    /// Half the width of the prediction's 95 % interval, as a share of the prediction; `None` for numbers that are
    /// shares themselves.
    pub half_width: Option<f64>,
    /// The error of the predicted number: predicted / observed − 1, or the difference for shares. It is the sum of
    /// `of_acceptance`, `of_cost` and `of_schedule`.
    pub error: f64,
    /// The part of the prediction's error that disappears if the acceptance observed in the run replaces the calibrated
    /// acceptance.
    pub of_acceptance: f64,
    /// The part of the prediction's error that disappears if costs fitted to the run itself replace the calibrated
    /// costs.
    pub of_cost: f64,
    /// The part of the prediction's error that remains with the run's own acceptance and costs. Its causes are steps
    /// that the simulated scheduler composes differently, and pass times that vary around the fitted mean.
    pub of_schedule: f64,
    /// The error of a prediction without simulation, which interpolates between the observed runs of two draft lengths.
    /// `None` if these draft lengths were not observed.
    pub interpolated: Option<f64>,
    /// The error of a second prediction without simulation, by a formula for the mean number of tokens that a request
    /// gets in a step. `None` if the formula gives no value.
    pub formula: Option<f64>,
}

/// The observed and the predicted numbers of a cell. Each list except `draws` has one entry per observed run.
#[derive(Clone, Debug, Default)]
pub struct PredictedNumbers {
    pub observed: Vec<Numbers>,
    /// The latencies and rates of each run, predicted with the calibrated costs and acceptance.
    pub calibrated: Vec<Numbers>,
    /// The latencies and rates of each run, predicted with calibrated costs and with the acceptance that was observed
    /// in the run.
    pub own_acceptance: Vec<Numbers>,
    /// The latencies and rates of each run, predicted with the acceptance that was observed in the run and with costs
    /// fitted to the run.
    pub own_acceptance_and_cost: Vec<Numbers>,
    /// The latencies and rates of each run, interpolated between two observed draft lengths without simulation. The
    /// list has fewer entries if this is not possible for all runs.
    pub interpolated: Vec<Numbers>,
    /// The latencies and rates of each run by a formula for the mean number of tokens that a request gets in a step,
    /// without simulation. The list has fewer entries if the formula gives no value for some runs.
    pub formula: Vec<Numbers>,
    /// `[i][j]`: the prediction of run j with random draw i of the acceptance rates and of the costs, which the
    /// calibration knows with an uncertainty.
    pub draws: Vec<Vec<Numbers>>,
    /// The errors with which the calibration predicts the numbers of its own runs.
    pub misfit: Misfit,
}

impl PredictedNumbers {
    /// One row for each number (such as mean TPOT) that all observed runs and all predictions have.
    pub fn rows(&self) -> Vec<Row<Calibrated>> {
        let median = Numbers::median;
        let (calibrated, own, both) =
            (median(&self.calibrated), median(&self.own_acceptance), median(&self.own_acceptance_and_cost));
        // A prediction without simulation is used only if it exists for every observed run.
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
                    half_width: half_width(quantity, &self.draws, &self.misfit),
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
    /// True if the value `observed` lies within the 95 % interval of this prediction; `None` without an interval.
    pub fn covers(&self, observed: f64) -> Option<bool> {
        self.half_width.map(|half| (observed / self.predicted).ln().abs() <= half)
    }
}

impl Cell {
    /// Makes the comparison of draft length `k` at one load from its compared numbers. Checks the bounds on errors.
    /// Among the errors beyond their bounds, takes the largest and finds its main cause: `cost`, `acceptance` or
    /// `schedule`.
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

    /// The row of the compared number called `quantity`, such as mean TPOT; `None` if the runs do not show this number.
    pub fn row(&self, quantity: &str) -> Option<&Row<Calibrated>> {
        self.rows.iter().find(|r| r.quantity == quantity)
    }

    /// True if the number called `quantity`, such as mean TPOT, was observed in at least two runs whose values agree.
    pub fn decided(&self, quantity: &str) -> bool {
        self.row(quantity).is_some_and(|row| row.decided(REPEATS_AGREE))
    }

    /// The numbers of this cell whose prediction errors are beyond their bounds. Numbers whose observed runs do not
    /// agree are included.
    pub fn beyond(&self) -> Vec<&Row<Calibrated>> {
        let beyond = |&(quantity, bound): &(&str, f64)| self.row(quantity).filter(|r| r.predicted.error.abs() > bound);
        JUDGED.iter().filter_map(beyond).collect()
    }
}

/// The main cause (`cost`, `acceptance` or `schedule`) of the largest error that is beyond its bound, among all numbers
/// of the cell. It moves the prediction most in the direction of this error. `None` if no error is beyond its bound.
fn cause(cell: &Cell) -> Option<&'static str> {
    let by_size =
        |a: &&Row<Calibrated>, b: &&Row<Calibrated>| a.predicted.error.abs().total_cmp(&b.predicted.error.abs());
    let worst = cell.beyond().into_iter().max_by(by_size)?.predicted;
    let parts = [("cost", worst.of_cost), ("acceptance", worst.of_acceptance), ("schedule", worst.of_schedule)];
    let sign = worst.error.signum();
    parts.into_iter().max_by(|a, b| (a.1 * sign).total_cmp(&(b.1 * sign))).map(|part| part.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::numbers::THROUGHPUT;

    fn throughput(tok_s: f64) -> Numbers {
        Numbers { throughput_tok_s: Some(tok_s), ..Numbers::default() }
    }

    /// Observed acceptance, then observed costs, replace calibrated ones. The prediction moves from 10 % too much to
    /// 6 % and to 3 %.
    #[test]
    fn an_error_is_divided_by_what_was_replaced() {
        let twice = |tok_s: f64| vec![throughput(tok_s); 2];
        let predicted = PredictedNumbers {
            observed: twice(100.0),
            calibrated: twice(110.0),
            own_acceptance: twice(106.0),
            own_acceptance_and_cost: twice(103.0),
            interpolated: twice(120.0),
            formula: vec![throughput(90.0)],
            draws: vec![],
            misfit: Misfit::default(),
        };
        let rows = predicted.rows();
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.quantity.as_str(), row.reference()), (THROUGHPUT, 100.0));
        let p = row.predicted;
        let parts = [p.error, p.of_acceptance, p.of_cost, p.of_schedule, p.interpolated.unwrap()];
        for (part, wanted) in parts.iter().zip([0.10, 0.04, 0.03, 0.03, 0.20]) {
            assert!((part - wanted).abs() < 1e-12, "{parts:?}");
        }
        assert_eq!((p.predicted, p.formula), (110.0, None), "the formula has no value for one run");
    }

    #[test]
    fn an_interval_covers_what_is_within_its_half_width() {
        let prediction = Calibrated {
            predicted: 2.0,
            half_width: Some(0.1),
            error: 0.0,
            of_acceptance: 0.0,
            of_cost: 0.0,
            of_schedule: 0.0,
            interpolated: None,
            formula: None,
        };
        let covered = [1.7, 1.9, 2.1, 2.3].map(|observed| prediction.covers(observed));
        assert_eq!(covered, [Some(false), Some(true), Some(true), Some(false)]);
        assert_eq!(Calibrated { half_width: None, ..prediction }.covers(2.0), None);
    }
}
