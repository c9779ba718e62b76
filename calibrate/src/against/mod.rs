//! Predictions against observed runs: every error beside the distance of repeats, its causes told apart by putting
//! the observed cost, acceptance or both in the place of the calibrated ones, and two simpler predictions beside it.

mod cell;
mod comparison;
mod kept;
mod order;
mod simpler;
mod words;

pub use comparison::{Against, BOUND, BOUND_TTFT, Cell, DECIDED, HeldOutNumbers, JUDGED, Order, Row, Worst};

use crate::kept::Kept;
use crate::replay::replay;
use crate::source::{Source, load};
use foretoken_spec::problem::Result;
use std::collections::BTreeMap;

/// Where a load stands among others: closed loops by their clients, open traffic by its rate.
fn place(load: &str) -> (&str, f64) {
    let (kind, rest) = load.split_once(' ').unwrap_or((load, ""));
    let number = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or("");
    (kind, number.parse().unwrap_or(f64::INFINITY))
}

/// Compares observed runs with what a calibration predicts of them. `fitted` are the runs that the calibration was
/// made from, where they are at hand: what the simpler predictions are made from.
pub fn compare(kept: &Kept, runs: &[Source], fitted: &[Source]) -> Result<Against> {
    let mut cells: BTreeMap<(String, u32), Vec<&Source>> = BTreeMap::new();
    let mut warnings = kept.warnings.clone();
    for run in runs {
        let Some(k) = run.k else {
            warnings.push(format!("{}: it drafted several lengths, which no fixed length predicts", run.name()));
            continue;
        };
        if !kept.cost.separated && !kept.cost.draft_lengths.contains(&k) {
            warnings.push(format!("{}: K = {k} cannot be predicted from a calibration at one K", run.name()));
            continue;
        }
        cells.entry((load(&run.recording), k)).or_default().push(run);
    }
    let mut all = Vec::new();
    let mut replayed = Vec::new();
    for ((load, k), repeats) in cells {
        for source in &repeats {
            replayed.extend(replay(source, source.engine.as_ref().unwrap_or(&kept.engine), &kept.cost, k)?);
        }
        all.extend(cell::cell(kept, fitted, load, k, &repeats)?);
    }
    let deeper = kept.table.as_ref().and_then(|t| t.header.observed.as_ref()).map_or(0, |o| o.seen as u32);
    if all.iter().any(|c| c.k > deeper) && deeper > 0 {
        warnings.push(format!("acceptance beyond position {deeper} of a round is extrapolated"));
    }
    all.sort_by(|a, b| {
        let ((kind, number), (other, others)) = (place(&a.load), place(&b.load));
        kind.cmp(other).then(number.total_cmp(&others)).then(a.load.cmp(&b.load)).then(a.k.cmp(&b.k))
    });
    let (held_out, mean_absolute) = (HeldOutNumbers::of(&all), mean_absolute(&all));
    Ok(Against {
        source: "observed against simulated on a calibration",
        order: order::orders(&all),
        replayed,
        cells: all,
        held_out,
        mean_absolute,
        warnings,
    })
}

/// Mean absolute errors on held-out cells.
fn mean_absolute(cells: &[Cell]) -> Vec<(String, Vec<(String, f64)>)> {
    let held: Vec<&Cell> = cells.iter().filter(|c| !c.fitted).collect();
    let of = |error: &dyn Fn(&Row) -> Option<f64>| {
        let metric = |&(metric, _): &(&str, f64)| {
            let errors: Vec<f64> = held.iter().filter_map(|c| error(c.row(metric)?)).map(f64::abs).collect();
            (!errors.is_empty()).then(|| (metric.to_owned(), errors.iter().sum::<f64>() / errors.len() as f64))
        };
        JUDGED.iter().filter_map(metric).collect::<Vec<_>>()
    };
    [("simulated", of(&|r| Some(r.error))), ("interpolated", of(&|r| r.interpolated)), ("formula", of(&|r| r.formula))]
        .into_iter()
        .filter(|(_, all)| !all.is_empty())
        .map(|(name, all)| (name.to_owned(), all))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_in_the_order_of_their_numbers() {
        let mut loads = ["open 10.50 req/s, seed 1", "closed 12", "closed 4", "open 3.00 req/s, seed 1", "closed 1"];
        loads.sort_by(|a, b| place(a).0.cmp(place(b).0).then(place(a).1.total_cmp(&place(b).1)));
        let wanted = ["closed 1", "closed 4", "closed 12", "open 3.00 req/s, seed 1", "open 10.50 req/s, seed 1"];
        assert_eq!(loads, wanted);
    }
}
