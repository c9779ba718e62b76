//! Predictions against observed runs: every error beside the distance of repeats, its causes told apart by putting the observed cost, acceptance
//! or both in the place of the calibrated ones, and two simpler predictions beside it.

use crate::baselines::{Fluid, through, tokens_a_round};
use crate::costs::rows;
use crate::fit::CostFit;
use crate::kept::Kept;
use crate::numbers::{COMPARED, Numbers, in_flight_error};
use crate::predict::{AcceptanceFrom, World};
use crate::source::Source;
use foretoken_observed::recording::Recording;
use foretoken_profiler::Calibrated;
use foretoken_sim::PassShape;
use foretoken_spec::problem::Result;
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// Mean absolute errors on decided cells that are held out, by what predicted.
    pub mean_absolute: Vec<(String, Vec<(String, f64)>)>,
    /// What whoever reads it should know.
    pub warnings: Vec<String>,
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
    /// Do its repeats lie within [`DECIDED`]?
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
    /// Largest less least of these, over their mean.
    pub spread: f64,
    /// Predicted: the mean over the repeats' requests.
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
    /// The observed mean.
    pub fn mean(&self) -> f64 {
        self.observed.iter().sum::<f64>() / self.observed.len() as f64
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

/// The load of a run, in words: what its repeats share.
fn load(recording: &Recording) -> String {
    match recording.head.clients {
        Some(clients) => format!("closed {clients}"),
        None => {
            let last = recording.head.asked.last().map_or(0.0, |a| a.due.as_s());
            let rate = if last > 0.0 { recording.head.asked.len() as f64 / last } else { 0.0 };
            format!("open {rate:.2} req/s, seed {}", recording.head.seed)
        }
    }
}

/// Compares observed runs with what a calibration predicts of them. `fitted` are the runs that the calibration was made from, where they are at
/// hand: what the simpler predictions are made from.
pub fn compare(kept: &Kept, runs: &[Source], fitted: &[Source]) -> Result<Against> {
    let mut cells: BTreeMap<(String, u32), Vec<&Source>> = BTreeMap::new();
    let mut warnings = Vec::new();
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
    for ((load, k), repeats) in cells {
        all.extend(cell(kept, fitted, load, k, &repeats)?);
    }
    let deeper = kept.table.as_ref().and_then(|t| t.header.observed.as_ref()).map_or(0, |o| o.seen as u32);
    if all.iter().any(|c| c.k > deeper) && deeper > 0 {
        warnings.push(format!("acceptance beyond position {deeper} of a round is extrapolated"));
    }
    let mean_absolute = mean_absolute(&all);
    Ok(Against { source: "observed against simulated on a calibration", cells: all, mean_absolute, warnings })
}

/// Draws of the calibrated truth that a prediction is the mean of.
const DRAWS: u64 = 5;

fn cell(kept: &Kept, fitted: &[Source], load: String, k: u32, repeats: &[&Source]) -> Result<Option<Cell>> {
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
        let own_cost = own_cost(source, &kept.cost);
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
    let all = [observed, predicted, with_own, with_both].map(|s| Numbers::mean(s));
    let [Some(mean), Some(p), Some(a), Some(ac)] = all else { return Ok(None) };
    let whole = |set: &Vec<Numbers>| Numbers::mean(set).filter(|_| set.len() == observed.len());
    let (line, formula) = (whole(interpolated), whole(formula));
    let row = |(name, of): &crate::numbers::Metric| {
        let (is, each): (f64, Vec<f64>) = (of(&mean), observed.iter().map(of).collect());
        let relative = |x: f64| x / is - 1.0;
        let most = each.iter().copied().fold(f64::MIN, f64::max);
        let least = each.iter().copied().fold(f64::MAX, f64::min);
        Row {
            metric: (*name).to_owned(),
            spread: (most - least) / is,
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
    let decided = observed.len() > 1 && ["throughput", "tpot mean", "e2e mean"].into_iter().all(close);
    let mut cell = Cell {
        k,
        load,
        repeats: observed.len(),
        fitted: repeats.iter().any(|s| kept.is_made_from(&s.digest)),
        decided,
        rows,
        accepted: (mean.accepted, p.accepted),
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

/// The calibrated costs with those of a run's own steps in their place. At one draft length draft passes are not told apart, and need not be.
fn own_cost(source: &Source, calibrated: &Calibrated) -> Calibrated {
    let rows = rows(std::slice::from_ref(source));
    let mut own = calibrated.clone();
    if !rows.is_empty() {
        let fit = CostFit::to(&rows);
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

/// The line in K through what closed loops showed at the least and the greatest length that was fitted to.
fn interpolated(source: &Source, k: u32, fitted: &[Source], kept: &Kept) -> Option<Numbers> {
    let lengths: Vec<u32> = fitted.iter().filter_map(|s| s.k).collect();
    let ends = [*lengths.iter().min()?, *lengths.iter().max()?];
    // At each length: requests in flight, TTFT and TPOT, closed loop by closed loop.
    let curve = |k: u32| {
        let mut points: Vec<(f64, Numbers)> = Vec::new();
        for s in fitted.iter().filter(|s| s.k == Some(k)) {
            if let (Some(clients), Some(numbers)) = (s.recording.head.clients, Numbers::of(&s.run.run)) {
                points.push((f64::from(clients), numbers));
            }
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Repeats of a loop are one point.
        let mut merged: Vec<(f64, Vec<Numbers>)> = Vec::new();
        for (n, numbers) in points {
            match merged.last_mut() {
                Some((same, all)) if *same == n => all.push(numbers),
                _ => merged.push((n, vec![numbers])),
            }
        }
        merged.into_iter().filter_map(|(n, all)| Some((n, Numbers::mean(&all)?))).collect::<Vec<_>>()
    };
    let [low, high] = ends.map(curve);
    if ends[0] == ends[1] || low.is_empty() || high.is_empty() {
        return None;
    }
    let at = |of: fn(&Numbers) -> f64, n: f64| {
        let value = |curve: &[(f64, Numbers)]| through(&curve.iter().map(|(n, x)| (*n, of(x))).collect::<Vec<_>>(), n);
        through(&[(f64::from(ends[0]), value(&low)), (f64::from(ends[1]), value(&high))], f64::from(k)).max(1e-6)
    };
    fluid(source, kept, &|n, _| at(|x| x.ttft.mean, n), &|n| at(|x| x.tpot.mean, n))
}

/// (1 − a^(k+1)) / (1 − a) tokens in the fitted time of a step.
fn by_formula(source: &Source, k: u32, kept: &Kept) -> Option<Numbers> {
    // One rate for all positions, as the formula has it: of the observed ones, the mean over what was reached.
    let a = kept.table.as_ref().map_or_else(
        || kept.rates.first().copied().unwrap_or(0.0),
        |t| {
            let known = t.outputs.iter().flat_map(|o| &o.ranks).filter(|r| **r != foretoken_traces::truth::NOT_DRAFTED);
            let (right, all) = known.fold((0u64, 0u64), |(r, n), rank| (r + u64::from(*rank == 1), n + 1));
            if all > 0 { right as f64 / all as f64 } else { 0.0 }
        },
    );
    let (target, draft) = (kept.cost.target.cost.build(), kept.cost.draft.cost.build());
    let shape = |tokens: f64| PassShape { batched: tokens.round() as u64, ..PassShape::default() };
    let step = |n: f64, prompt: f64| {
        let verified = n * f64::from(k + 1);
        let mut seconds = target.pass(shape(verified + prompt)).as_s() + kept.cost.step_overhead_s;
        if k > 0 {
            seconds += draft.pass(shape(verified + prompt + n)).as_s() + f64::from(k - 1) * draft.pass(shape(n)).as_s();
        }
        seconds
    };
    let tpot = |n: f64| step(n.max(1.0), 0.0) / tokens_a_round(a, k);
    fluid(source, kept, &|n, prompt| step((n - 1.0).max(0.0), f64::from(prompt)) + step(n, 0.0) / 2.0, &tpot)
}

fn fluid(source: &Source, kept: &Kept, ttft: &dyn Fn(f64, u32) -> f64, tpot: &dyn Fn(f64) -> f64) -> Option<Numbers> {
    let fluid = Fluid { ttft, tpot, most: kept.engine.max_num_seqs as usize };
    Numbers::of_records(&fluid.serve(&source.run.workload, source.recording.head.clients), None)
}

/// Mean absolute errors on decided cells that are held out.
fn mean_absolute(cells: &[Cell]) -> Vec<(String, Vec<(String, f64)>)> {
    let held: Vec<&Cell> = cells.iter().filter(|c| c.decided && !c.fitted).collect();
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

impl Against {
    /// The comparison in words.
    pub fn in_words(&self) -> String {
        let percent = |x: f64| format!("{:+.1} %", 100.0 * x);
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header([
            "K",
            "load",
            "metric",
            "observed",
            "repeats",
            "simulated",
            "error",
            "acceptance",
            "cost",
            "schedule",
            "interp.",
            "formula",
            "",
        ]);
        for cell in &self.cells {
            for (i, (metric, bound)) in JUDGED.iter().enumerate() {
                let Some(r) = cell.row(metric) else { continue };
                let number = |x: f64| {
                    if *metric == "throughput" { format!("{x:.0} tok/s") } else { format!("{:.1} ms", 1e3 * x) }
                };
                let word = match (cell.decided, cell.fitted, r.error.abs() <= *bound) {
                    (false, ..) => "undecided",
                    (true, true, true) => "fitted",
                    (true, false, true) => "kept",
                    (true, _, false) => "BEYOND",
                };
                let maybe = |x: Option<f64>| x.map_or("-".to_owned(), percent);
                table.add_row([
                    if i == 0 { cell.k.to_string() } else { String::new() },
                    if i == 0 { cell.load.clone() } else { String::new() },
                    (*metric).to_owned(),
                    number(r.mean()),
                    format!("{} of {}", percent(r.spread), r.observed.len()),
                    number(r.predicted),
                    percent(r.error),
                    percent(r.of_acceptance),
                    percent(r.of_cost),
                    percent(r.of_schedule),
                    maybe(r.interpolated),
                    maybe(r.formula),
                    word.to_owned(),
                ]);
            }
        }
        let mut text = table.to_string() + "\n\n";
        let held: Vec<&Cell> = self.cells.iter().filter(|c| !c.fitted).collect();
        let decided = held.iter().filter(|c| c.decided).count();
        let kept = held.iter().filter(|c| c.decided && c.beyond().is_empty()).count();
        text += &format!(
            "held out: {} cells, {decided} decided (repeats within {:.0} %), {kept} of these within all bounds\n",
            held.len(),
            100.0 * DECIDED
        );
        for (name, errors) in &self.mean_absolute {
            let words: Vec<String> = errors.iter().map(|(metric, e)| format!("{metric} {:.1} %", 100.0 * e)).collect();
            text += &format!("mean absolute error there, {name}: {}\n", words.join(", "));
        }
        for cell in self.cells.iter().filter(|c| c.decided) {
            if let Some(cause) = cell.cause {
                let which: Vec<&str> = cell.beyond().iter().map(|r| r.metric.as_str()).collect();
                text += &format!(
                    "beyond its bound: K = {}, {}: {} (mostly {cause})\n",
                    cell.k,
                    cell.load,
                    which.join(", ")
                );
            }
        }
        text
    }

    /// Is every decided cell that is held out within its bounds? `None`: there is none.
    pub fn holds(&self) -> Option<bool> {
        let mut held = self.cells.iter().filter(|c| c.decided && !c.fitted).peekable();
        held.peek().is_some().then(|| held.all(|c| c.beyond().is_empty()))
    }
}
