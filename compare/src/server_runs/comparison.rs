//! The comparison of a server's runs with their predictions, and the content of its `validation.json`.

use super::cell::{Calibrated, Cell, JUDGED};
use super::length_order::{LengthOrder, orders};
use crate::bounds::{Check, Tally};
use crate::row::Row;
use foretoken_profiler::median;
use serde::Serialize;

/// A comparison.
#[derive(Clone, Debug, Serialize)]
pub struct ServerComparison {
    /// Always `observed against simulated on a calibration`.
    pub source: &'static str,
    /// The cells: a draft length at a load.
    pub cells: Vec<Cell>,
    /// How many numbers of the held-out cells are predicted within 5 and 10 %, and the one with the largest error.
    pub held_out: HeldOutNumbers,
    /// Mean absolute errors on held-out cells, by prediction.
    pub mean_absolute: Vec<MeanErrors>,
    /// The order of the draft lengths at a load, observed and predicted.
    pub order: Vec<LengthOrder>,
    /// The schedule of each run, made again.
    pub replayed: Vec<Replayed>,
    /// Notes for the reader.
    pub warnings: Vec<String>,
}

/// The mean absolute errors of one kind of prediction on held-out cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeanErrors {
    /// `simulated`, `interpolated` or `formula`.
    pub prediction: &'static str,
    /// (name of the number, mean of its errors without sign), for the numbers that have bounds.
    pub errors: Vec<(String, f64)>,
}

/// The result of making the schedule of an observed run again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// The run's name.
    pub run: String,
    /// Number of steps in its log.
    pub steps: usize,
    /// Number of equal steps, from the first step on: the same requests and tokens.
    pub equal_steps: usize,
    /// Number of requests. Each has a free parameter: its place among the steps.
    pub placed: usize,
    /// Number of compared rounds.
    pub rounds: usize,
    /// The first difference as text; `None` if there is none.
    pub difference: Option<String>,
}

/// The bounded numbers of the cells that the calibration was not made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeldOutNumbers {
    /// Count of numbers: one for each entry of [`JUDGED`] in each cell.
    pub numbers: usize,
    /// Count of numbers with an error of at most 5 %.
    pub within_5_percent: usize,
    /// Count of numbers with an error of at most 10 %.
    pub within_10_percent: usize,
    /// Count of numbers that lie within the 95 % interval of their prediction.
    pub within_interval: usize,
    /// Median of half the widths of these intervals, as a share.
    pub median_half_width: Option<f64>,
    /// The number with the largest error.
    pub worst: Option<Worst>,
}

/// The number with the largest error, and what the error is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The number's name.
    pub quantity: String,
    /// The draft length of its cell.
    pub k: u32,
    /// The load of its cell.
    pub load: String,
    /// Predicted over observed, minus 1: the sum of the three parts.
    pub error: f64,
    /// The part of calibrated acceptance.
    pub of_acceptance: f64,
    /// The part of calibrated costs.
    pub of_cost: f64,
    /// The rest.
    pub of_schedule: f64,
}

impl HeldOutNumbers {
    /// Counts the numbers of the cells that are held out.
    pub fn of(cells: &[Cell]) -> HeldOutNumbers {
        let held = cells.iter().filter(|c| !c.fitted);
        let all: Vec<(&Cell, &Row<Calibrated>)> =
            held.flat_map(|c| JUDGED.iter().filter_map(move |(name, _)| Some((c, c.row(name)?)))).collect();
        let size = |(_, row): &(&Cell, &Row<Calibrated>)| row.predicted.error.abs();
        let within = |bound: f64| all.iter().filter(|one| size(one) <= bound).count();
        let widths: Vec<f64> = all.iter().filter_map(|(_, row)| row.predicted.half_width).collect();
        let worst = all.iter().max_by(|a, b| size(a).total_cmp(&size(b)));
        HeldOutNumbers {
            numbers: all.len(),
            within_5_percent: within(0.05),
            within_10_percent: within(0.10),
            within_interval: all.iter().filter(|(_, row)| row.predicted.covers(row.reference()) == Some(true)).count(),
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
    /// A comparison of these cells.
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

    /// The bounds of the cells that are held out.
    pub fn held_out_checks(&self) -> impl Iterator<Item = &Check> {
        self.cells.iter().filter(|c| !c.fitted).flat_map(|c| &c.checks)
    }

    /// True if every decided number of the held-out cells is within its bound. `None` if no number is decided.
    pub fn holds(&self) -> Option<bool> {
        let tally = Tally::of(self.held_out_checks());
        (tally.decided() > 0).then_some(tally.broken == 0)
    }

    /// The comparison as JSON, with a line end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data always serialises") + "\n"
    }
}

/// The place of a load in a list: closed loops by their clients, open traffic by its rate.
struct Place<'a> {
    /// `closed` or `open`.
    kind: &'a str,
    number: f64,
}

fn place(load: &str) -> Place<'_> {
    let (kind, rest) = load.split_once(' ').unwrap_or((load, ""));
    let number = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or("");
    Place { kind, number: number.parse().unwrap_or(f64::INFINITY) }
}

/// Mean absolute errors on held-out cells, without predictions that do not exist.
fn mean_absolute(cells: &[Cell]) -> Vec<MeanErrors> {
    let held: Vec<&Cell> = cells.iter().filter(|c| !c.fitted).collect();
    let of = |prediction, error: fn(&Calibrated) -> Option<f64>| {
        let mean = |&(name, _): &(&str, f64)| {
            let errors: Vec<f64> = held.iter().filter_map(|c| error(&c.row(name)?.predicted)).map(f64::abs).collect();
            (!errors.is_empty()).then(|| (name.to_owned(), errors.iter().sum::<f64>() / errors.len() as f64))
        };
        MeanErrors { prediction, errors: JUDGED.iter().filter_map(mean).collect() }
    };
    let all =
        [of("simulated", |p| Some(p.error)), of("interpolated", |p| p.interpolated), of("formula", |p| p.formula)];
    all.into_iter().filter(|one| !one.errors.is_empty()).collect()
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
