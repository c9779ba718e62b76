//! The comparison of a server's observed runs with their predictions; it is the content of `validation.json`.

use super::cell::{Calibrated, Cell, JUDGED};
use super::length_order::{LengthOrder, orders};
use crate::compare::bounds::{Check, Tally};
use crate::compare::row::Row;
use foretoken_profiler::median;
use serde::Serialize;

/// The comparison of a server's observed runs with their predictions by simulation.
#[derive(Clone, Debug, Serialize)]
pub struct ServerComparison {
    /// Where the numbers come from. The value is always `observed against simulated on a calibration`; a calibration is
    /// the costs and the acceptance that were fitted to a server.
    pub source: &'static str,
    /// The compared cells; each is one draft length at one load.
    pub cells: Vec<Cell>,
    /// How many numbers of the held-out cells are predicted within 5 %, within 10 % and within their intervals. Also
    /// the number with the largest error.
    pub held_out: HeldOutNumbers,
    /// Mean absolute errors on held-out cells, of the simulation and of each simple prediction.
    pub mean_absolute: Vec<MeanErrors>,
    /// For each load, the order of the draft lengths by mean E2E, observed and predicted.
    pub order: Vec<LengthOrder>,
    /// For each run with a step log: how many steps of Foretoken's scheduler equal the steps of the server's log.
    pub replayed: Vec<Replayed>,
    pub warnings: Vec<String>,
}

/// The mean absolute errors of one kind of prediction on held-out cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeanErrors {
    /// The kind of prediction: `simulated`, `interpolated` or `formula`.
    pub prediction: &'static str,
    /// For each number that has a bound: (name, mean over the held-out cells of its absolute error).
    pub errors: Vec<(String, f64)>,
}

/// The schedule of an observed run, repeated by Foretoken's scheduler with the run's requests: how many of its steps
/// equal the steps in the server's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// The name of the observed run whose schedule is repeated.
    pub run: String,
    /// Number of steps in the server's log of the run.
    pub steps: usize,
    /// Number of steps of the repeated schedule before the first step whose requests or tokens differ from the log's.
    pub equal_steps: usize,
    /// Number of requests that were placed at a step of the log. The log does not say at which step a request reached
    /// the scheduler. So this step is a free parameter of the replay, one for each request.
    pub placed: usize,
    /// Number of rounds that were compared between the server's log and the repeated schedule.
    pub rounds: usize,
    /// The first difference between the server's log and the repeated schedule, as text; `None` if all steps are equal.
    pub difference: Option<String>,
}

/// How well the numbers with bounds are predicted in held-out cells. The calibration was not made from the runs of
/// these cells.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeldOutNumbers {
    /// Number of predicted numbers: one for each entry of [`JUDGED`] in each held-out cell, if the cell has it.
    pub numbers: usize,
    /// How many of the predicted numbers (such as mean TPOT of a draft length at a load) have an error of at most 5 %.
    pub within_5_percent: usize,
    /// How many of the predicted numbers (such as mean TPOT of a draft length at a load) have an error of at most 10 %.
    pub within_10_percent: usize,
    /// How many of the observed numbers (such as mean TPOT of a draft length at a load) lie within the 95 % interval of
    /// their prediction.
    pub within_interval: usize,
    /// Median half width of the 95 % intervals of the predictions, as a share of the prediction.
    pub median_half_width: Option<f64>,
    /// The predicted number with the largest absolute error; `None` without held-out cells.
    pub worst: Option<Worst>,
}

/// The predicted number with the largest error, and the parts of this error that come from acceptance, from costs and
/// from the schedule (see [`Calibrated`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The name of the number, such as mean TPOT.
    pub quantity: String,
    /// The draft length, in tokens, with which the number was observed.
    pub k: u32,
    /// The load at which the number was observed, such as `closed 4` (four clients).
    pub load: String,
    /// The error of the prediction: predicted / observed − 1. It is the sum of `of_acceptance`, `of_cost` and
    /// `of_schedule`.
    pub error: f64,
    /// The part of the prediction's error that comes from the calibrated acceptance.
    pub of_acceptance: f64,
    /// The part of the prediction's error that comes from the calibrated costs.
    pub of_cost: f64,
    /// The rest of the prediction's error. Its causes are steps that the simulated scheduler composes differently, and
    /// pass times that vary around the fitted mean.
    pub of_schedule: f64,
}

impl HeldOutNumbers {
    /// Counts how well the numbers of the held-out cells among `cells` are predicted. A cell is a draft length at a
    /// load; it is held out if nothing was fitted to its runs.
    pub fn of(cells: &[Cell]) -> HeldOutNumbers {
        let held_out = cells.iter().filter(|c| !c.fitted);
        let judged: Vec<(&Cell, &Row<Calibrated>)> =
            held_out.flat_map(|c| JUDGED.iter().filter_map(move |(name, _)| Some((c, c.row(name)?)))).collect();
        let size = |(_, row): &(&Cell, &Row<Calibrated>)| row.predicted.error.abs();
        let within = |bound: f64| judged.iter().filter(|one| size(one) <= bound).count();
        let widths: Vec<f64> = judged.iter().filter_map(|(_, row)| row.predicted.half_width).collect();
        let worst = judged.iter().max_by(|a, b| size(a).total_cmp(&size(b)));
        let is_covered = |row: &Row<Calibrated>| row.predicted.covers(row.reference()) == Some(true);
        HeldOutNumbers {
            numbers: judged.len(),
            within_5_percent: within(0.05),
            within_10_percent: within(0.10),
            within_interval: judged.iter().filter(|(_, row)| is_covered(row)).count(),
            median_half_width: (!widths.is_empty()).then(|| median(widths)),
            worst: worst.map(|(cell, row)| Worst {
                quantity: row.quantity.clone(),
                k: cell.k,
                load: cell.load.clone(),
                error: row.predicted.error,
                of_acceptance: row.predicted.of_acceptance,
                of_cost: row.predicted.of_cost,
                of_schedule: row.predicted.of_schedule,
            }),
        }
    }
}

impl ServerComparison {
    /// Makes a comparison from `cells` (draft lengths at loads), sorted by load and draft length.
    pub fn new(mut cells: Vec<Cell>, replayed: Vec<Replayed>, warnings: Vec<String>) -> ServerComparison {
        cells.sort_by(|a, b| {
            let (place, other) = (place(&a.load), place(&b.load));
            let by_place = place.kind.cmp(other.kind).then(place.number.total_cmp(&other.number));
            by_place.then(a.load.cmp(&b.load)).then(a.k.cmp(&b.k))
        });
        ServerComparison {
            source: "observed against simulated on a calibration",
            held_out: HeldOutNumbers::of(&cells),
            mean_absolute: mean_absolute(&cells),
            order: orders(&cells),
            cells,
            replayed,
            warnings,
        }
    }

    pub fn held_out_checks(&self) -> impl Iterator<Item = &Check> {
        self.cells.iter().filter(|c| !c.fitted).flat_map(|c| &c.checks)
    }

    /// True if every decided number of the held-out cells has an error within its bound. A number is decided if it was
    /// observed at least twice and its repeats agree. `None` if no number is decided.
    pub fn holds(&self) -> Option<bool> {
        let tally = Tally::of(self.held_out_checks());
        (tally.decided() > 0).then_some(tally.broken == 0)
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data always serialises") + "\n"
    }
}

/// The key by which loads are sorted: closed loops by their number of clients, then open traffic by its rate.
struct Place<'a> {
    /// The first word of the load: `closed` for a closed loop or `open` for open traffic.
    kind: &'a str,
    number: f64,
}

fn place(load: &str) -> Place<'_> {
    let (kind, rest) = load.split_once(' ').unwrap_or((load, ""));
    let number = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or("");
    Place { kind, number: number.parse().unwrap_or(f64::INFINITY) }
}

/// Mean absolute errors on held-out cells, by kind of prediction. Kinds without any prediction are left out.
fn mean_absolute(cells: &[Cell]) -> Vec<MeanErrors> {
    let held_out: Vec<&Cell> = cells.iter().filter(|c| !c.fitted).collect();
    let mean_errors = |prediction, error: fn(&Calibrated) -> Option<f64>| {
        let mean = |&(name, _): &(&str, f64)| {
            let errors: Vec<f64> =
                held_out.iter().filter_map(|c| error(&c.row(name)?.predicted)).map(f64::abs).collect();
            (!errors.is_empty()).then(|| (name.to_owned(), errors.iter().sum::<f64>() / errors.len() as f64))
        };
        MeanErrors { prediction, errors: JUDGED.iter().filter_map(mean).collect() }
    };
    let kinds = [
        mean_errors("simulated", |p| Some(p.error)),
        mean_errors("interpolated", |p| p.interpolated),
        mean_errors("formula", |p| p.formula),
    ];
    kinds.into_iter().filter(|kind| !kind.errors.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_in_the_order_of_their_numbers() {
        let mut loads = ["open 10.50 req/s, seed 1", "closed 12", "closed 4", "open 3.00 req/s, seed 1", "closed 1"];
        loads.sort_by(|a, b| place(a).kind.cmp(place(b).kind).then(place(a).number.total_cmp(&place(b).number)));
        let wanted = ["closed 1", "closed 4", "closed 12", "open 3.00 req/s, seed 1", "open 10.50 req/s, seed 1"];
        assert_eq!(loads, wanted);
    }
}
