//! A cell: what was observed in its repeats, what is predicted of each, and whose the error is.

use super::comparison::{Cell, DECIDED, Row};
use super::simpler::{by_formula, interpolated};
use crate::costs::rows;
use crate::fit::CostFit;
use crate::kept::Kept;
use crate::numbers::{COMPARED, Numbers, in_flight_error};
use crate::predict::{AcceptanceFrom, World};
use crate::source::Source;
use crate::spread::spread;
use foretoken_profiler::Calibrated;
use foretoken_spec::problem::Result;

/// Draws of the calibrated truth that a prediction is the mean of.
const DRAWS: u64 = 5;

/// A cell of its repeats; `None` where none of them finished a request.
pub(super) fn cell(kept: &Kept, fitted: &[Source], load: String, k: u32, repeats: &[&Source]) -> Result<Option<Cell>> {
    let table = match (&kept.table, k) {
        (_, 0) => AcceptanceFrom::None,
        (Some(table), _) => AcceptanceFrom::Table(table),
        (None, _) => AcceptanceFrom::Rates(&kept.rates),
    };
    let mut sets: [Vec<Numbers>; 6] = Default::default();
    let mut in_flight = Vec::new();
    for source in repeats {
        let Some(observed) = Numbers::of(&source.run.run) else { continue };
        let own = if k == 0 { AcceptanceFrom::None } else { AcceptanceFrom::Own(&kept.rates) };
        let own_cost = own_cost(source, kept);
        let world = |cost, acceptance| World { cost, acceptance, engine: &kept.engine, seed: 1 };
        let predicted = mean(&world(&kept.cost, table), source, k)?;
        let with_own = mean(&world(&kept.cost, own), source, k)?;
        let with_both = mean(&world(&own_cost, own), source, k)?;
        let (Some(predicted), Some(with_own), Some(with_both)) = (predicted, with_own, with_both) else { continue };
        let run = world(&kept.cost, table).serve(source, k)?;
        in_flight.extend(in_flight_error(&source.run.run.records, &run.records));
        for (set, numbers) in sets.iter_mut().zip([observed, predicted, with_own, with_both]) {
            set.push(numbers);
        }
        sets[4].extend(interpolated(source, k, fitted, kept));
        sets[5].extend(by_formula(source, k, kept));
    }
    let [observed, predicted, with_own, with_both, interpolated, formula] = &sets;
    let all = [observed, predicted, with_own, with_both].map(|s| Numbers::median(s));
    let [Some(middle), Some(p), Some(a), Some(ac)] = all else { return Ok(None) };
    let whole = |set: &Vec<Numbers>| Numbers::median(set).filter(|_| set.len() == observed.len());
    let (line, formula) = (whole(interpolated), whole(formula));
    let row = |(name, of): &crate::numbers::Metric| {
        let (is, each): (f64, Vec<f64>) = (of(&middle), observed.iter().map(of).collect());
        let relative = |x: f64| x / is - 1.0;
        Row {
            metric: (*name).to_owned(),
            spread: spread(each.clone()),
            observed: each,
            predicted: of(&p),
            error: relative(of(&p)),
            of_acceptance: relative(of(&p)) - relative(of(&a)),
            of_cost: relative(of(&a)) - relative(of(&ac)),
            of_schedule: relative(of(&ac)),
            interpolated: line.as_ref().map(|x| relative(of(x))),
            formula: formula.as_ref().map(|x| relative(of(x))),
        }
    };
    let rows: Vec<Row> = COMPARED.iter().map(row).collect();
    let close = |metric: &str| rows.iter().any(|r| r.metric == metric && r.spread <= DECIDED);
    let decided = ["throughput", "tpot mean", "e2e mean"].into_iter().all(close);
    let mut cell = Cell {
        k,
        load,
        repeats: observed.len(),
        fitted: repeats.iter().any(|s| kept.is_made_from(&s.digest)),
        decided,
        rows,
        accepted: (middle.accepted, p.accepted),
        in_flight: (!in_flight.is_empty()).then(|| in_flight.iter().sum::<f64>() / in_flight.len() as f64),
        cause: None,
    };
    cell.cause = cause(&cell);
    Ok(Some(cell))
}

/// The mean over several ways of dealing acceptance out.
fn mean(world: &World, source: &Source, k: u32) -> Result<Option<Numbers>> {
    let mut all = Vec::new();
    for seed in 1..=DRAWS {
        all.extend(Numbers::of(&World { seed, ..*world }.serve(source, k)?));
    }
    Ok(Numbers::mean(&all))
}

/// The calibrated costs, replaced by the costs of a run's own steps. At one draft length draft passes are not told
/// apart, and need not be.
fn own_cost(source: &Source, kept: &Kept) -> Calibrated {
    let rows = rows(std::slice::from_ref(source), &kept.engine);
    let mut own = kept.cost.clone();
    if !rows.is_empty() {
        let fit = CostFit::together(&rows);
        (own.target.cost, own.draft.cost, own.step_overhead_s) = (fit.target(), fit.draft_model(), fit.host_s);
    }
    own
}

/// What most of the worst judged error is of.
fn cause(cell: &Cell) -> Option<&'static str> {
    let worst = cell.beyond().into_iter().max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()))?;
    let parts = [("cost", worst.of_cost), ("acceptance", worst.of_acceptance), ("schedule", worst.of_schedule)];
    // The part that moves the prediction most in the direction in which it is off.
    let sign = worst.error.signum();
    parts.into_iter().max_by(|a, b| (a.1 * sign).total_cmp(&(b.1 * sign))).map(|p| p.0)
}
