//! What a comparison says: cells with their numbers, and what is judged of them.

use crate::replay::Replayed;
use crate::spread::median;
use serde::Serialize;

/// Repeats within this of each other decide a cell.
pub const DECIDED: f64 = 0.05;
/// Errors that a decided cell may have: of throughput, TPOT and E2E, and of TTFT.
pub const BOUND: f64 = 0.05;
/// Of TTFT.
pub const BOUND_TTFT: f64 = 0.10;
/// What is judged: means.
pub const JUDGED: [(&str, f64); 4] =
    [("throughput", BOUND), ("tpot mean", BOUND), ("e2e mean", BOUND), ("ttft mean", BOUND_TTFT)];

/// A comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// Always `observed against simulated on a calibration`.
    pub source: &'static str,
    /// The cells: a draft length at a load.
    pub cells: Vec<Cell>,
    /// How many numbers of the held-out cells are predicted within 5 and 10 %, and the one that is predicted worst.
    pub held_out: HeldOutNumbers,
    /// Mean absolute errors on held-out cells, by what predicted.
    pub mean_absolute: Vec<(String, Vec<(String, f64)>)>,
    /// The order of the draft lengths at a load, observed and predicted.
    pub order: Vec<Order>,
    /// The schedule of each run, made again.
    pub replayed: Vec<Replayed>,
    /// Notes for its reader.
    pub warnings: Vec<String>,
}

/// The judged numbers of the cells that the calibration was not made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeldOutNumbers {
    /// Count of judged numbers: one for each quantity of [`JUDGED`] in each cell.
    pub numbers: usize,
    /// Of these, those with an error of at most 5 %.
    pub within_5_percent: usize,
    /// Of these, those with an error of at most 10 %.
    pub within_10_percent: usize,
    /// The number with the largest error.
    pub worst: Option<Worst>,
}

/// The number with the largest error, and what the error is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// Which number.
    pub metric: String,
    /// The draft length of its cell.
    pub k: u32,
    /// The load of its cell.
    pub load: String,
    /// Predicted over observed, less 1: the sum of the three parts.
    pub error: f64,
    /// The part of calibrated acceptance.
    pub of_acceptance: f64,
    /// The part of calibrated costs.
    pub of_cost: f64,
    /// The rest.
    pub of_schedule: f64,
}

impl HeldOutNumbers {
    /// Of the cells that are held out.
    pub fn of(cells: &[Cell]) -> HeldOutNumbers {
        let held = cells.iter().filter(|c| !c.fitted);
        let all: Vec<(&Cell, &Row)> =
            held.flat_map(|c| JUDGED.iter().filter_map(move |(metric, _)| Some((c, c.row(metric)?)))).collect();
        let within = |bound: f64| all.iter().filter(|(_, r)| r.error.abs() <= bound).count();
        let worst = all.iter().max_by(|a, b| a.1.error.abs().total_cmp(&b.1.error.abs()));
        HeldOutNumbers {
            numbers: all.len(),
            within_5_percent: within(0.05),
            within_10_percent: within(0.10),
            worst: worst.map(|(cell, row)| Worst {
                metric: row.metric.clone(),
                k: cell.k,
                load: cell.load.clone(),
                error: row.error,
                of_acceptance: row.of_acceptance,
                of_cost: row.of_cost,
                of_schedule: row.of_schedule,
            }),
        }
    }
}

/// A draft length at a load, with its repeats.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Draft length.
    pub k: u32,
    /// The load, in words.
    pub load: String,
    /// Runs of it.
    pub repeats: usize,
    /// Was the calibration made from one of its runs?
    pub fitted: bool,
    /// Do two thirds of its repeats (at least three, if there are three) lie within [`DECIDED`] in
    /// throughput, mean TPOT and mean E2E?
    pub decided: bool,
    /// The numbers.
    pub rows: Vec<Row>,
    /// Accepted a round: observed, predicted.
    pub accepted: (Option<f64>, Option<f64>),
    /// How far apart the requests in flight are over time, relative to the observed mean.
    pub in_flight: Option<f64>,
    /// What the largest error of a judged number is of, where one is beyond its bound.
    pub cause: Option<&'static str>,
}

/// A number of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub metric: String,
    /// Observed in each repeat.
    pub observed: Vec<f64>,
    /// The least distance within which two thirds of these lie (all of three), over their median.
    pub spread: f64,
    /// Predicted: the median over the repeats' requests.
    pub predicted: f64,
    /// Predicted over observed, less 1.
    pub error: f64,
    /// Of the error, what calibrated acceptance does in the place of the observed one.
    pub of_acceptance: f64,
    /// Of the error, what calibrated costs do in the place of the run's own.
    pub of_cost: f64,
    /// What is left with both observed: the schedule, and what no mean cost has.
    pub of_schedule: f64,
    /// The error of the line between two lengths; `None` where these were not observed.
    pub interpolated: Option<f64>,
    /// The error of the formula.
    pub formula: Option<f64>,
}

impl Row {
    /// What was observed: the median of the repeats. Neighbours on a shared machine make some runs slower and none
    /// faster.
    pub fn median(&self) -> f64 {
        median(self.observed.clone())
    }
}

impl Cell {
    /// The row of a number.
    pub fn row(&self, metric: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.metric == metric)
    }

    /// The judged numbers that are beyond their bounds.
    pub fn beyond(&self) -> Vec<&Row> {
        let of = |&(metric, bound): &(&str, f64)| self.row(metric).filter(|r| r.error.abs() > bound);
        JUDGED.iter().filter_map(of).collect()
    }
}

/// The draft lengths at a load, by mean E2E.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Order {
    /// The load.
    pub load: String,
    /// Lengths, the fastest first, as observed.
    pub observed: Vec<u32>,
    /// Lengths, the fastest first, as predicted.
    pub predicted: Vec<u32>,
    /// Pairs of lengths that lie further apart than their repeats do.
    pub told_apart: usize,
    /// Of these, predicted in their order.
    pub kept: usize,
}

impl Against {
    /// Is every decided cell that is held out within its bounds? `None`: there is none.
    pub fn holds(&self) -> Option<bool> {
        let mut held = self.cells.iter().filter(|c| c.decided && !c.fitted).peekable();
        held.peek().is_some().then(|| held.all(|c| c.beyond().is_empty()))
    }
}
