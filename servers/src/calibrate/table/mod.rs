//! A calibration from a table of benchmark results: a row has a load, a draft length, throughput and mean latencies.
//! A table has no step times, so the costs of passes and of the host are fitted to the results of whole runs.

mod accepted;
mod cell;
mod determined;
mod files;
mod fit;
mod law;
mod limits;
mod read;
mod results;
mod simulate;
#[cfg(test)]
mod tests;
mod words;

pub use cell::{Cell, CellLoad};
pub use fit::{Fit, Quantity};
pub use law::{Law, Term};
pub use read::read;
pub use results::{ResultFile, Results};
pub use simulate::Base;

use crate::calibrate::acceptance::Position;
use crate::calibrate::kept::Input;
use crate::calibrate::unknown_costs::{CostFactors, normal};
use crate::calibrate::verdict::{TRUSTED, Verdict, within};
use determined::Drafter;
use fit::Solution;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::{Coefficients, DraftMethod, Luck, PassShape, Stream};
use limits::SHORTEST_PASS_S;
use nalgebra::{DMatrix, DVector};
use simulate::{Server, deep, workload};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

/// A measured number of a row of the table of benchmark results, such as its TPOT, with its prediction by the fitted
/// costs.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The row of the table of benchmark results to which the measured number belongs.
    pub cell: Cell,
    /// Which number was measured: time per token of the server, TTFT or TPOT.
    pub quantity: Quantity,
    /// The measured value of the number (such as TPOT), seconds.
    pub measured_s: f64,
    /// The value that the fitted costs predict for the measured number (such as TPOT), seconds.
    pub predicted_s: f64,
    /// Half the width of the 95 % interval in which a measurement is expected, as a share of the prediction. The
    /// prediction is the middle of the interval. `None` if there are too few measured numbers to estimate the errors.
    pub half_width: Option<f64>,
    /// True if the costs were fitted to this measured number, false if it was held out.
    pub fitted: bool,
}

impl Judged {
    /// The error of the predicted speed: measured time / predicted time − 1, which is predicted speed / measured
    /// speed − 1.
    pub fn error(&self) -> f64 {
        self.measured_s / self.predicted_s - 1.0
    }

    /// True if the measured value lies within the 95 % interval around the prediction; `None` without an interval.
    pub fn is_covered(&self) -> Option<bool> {
        Some((self.measured_s / self.predicted_s - 1.0).abs() <= self.half_width?)
    }
}

/// Mean absolute errors of the predictions for one load, by costs that were fitted without the rows of this load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorsWithoutLoad {
    /// The load (clients or request rate) that was left out of the fit.
    pub load: CellLoad,
    /// The mean absolute error, as a share, of the predictions for this load. All predicting costs, with the size of
    /// the largest captured CUDA graph, are fitted to the other loads alone.
    pub error: f64,
    /// The mean absolute error, as a share, of the predictions for this load. The predicting costs are fitted to the
    /// other loads, but the size of the largest captured CUDA graph comes from the fit to all loads.
    pub with_graphs: f64,
}

/// The costs and the acceptance fitted to a table of benchmark results, with the errors of their predictions.
#[derive(Debug)]
pub struct TableCalibration {
    /// The name of the table of benchmark results in messages.
    pub name: String,
    /// The files that the rows of the table of benchmark results come from.
    pub inputs: Vec<Input>,
    /// The experiment that describes the server.
    pub base: Base,
    /// All rows of the table of benchmark results: one draft length at one load each.
    pub cells: Vec<Cell>,
    /// The costs of passes and of the host, fitted to the rows of the table of benchmark results.
    pub fit: Fit,
    /// Every measured number, such as TPOT of a row, with its prediction: the fitted numbers, then the held-out ones.
    pub judged: Vec<Judged>,
    /// For each measured number to which the costs were fitted: the error of its prediction by costs that were fitted
    /// without the number's row. Empty with fewer than three rows.
    pub left_out: Vec<f64>,
    /// For each load, the errors of predictions by costs that were fitted without the load. Empty with fewer than three
    /// loads.
    pub by_load: Vec<ErrorsWithoutLoad>,
    /// How often draft tokens were accepted, by position in a round.
    pub positions: Vec<Position>,
    /// Random draws of factors by which the true costs of passes and of the host may differ from the fitted ones, from
    /// the covariance of the fit.
    pub costs: Vec<CostFactors>,
    /// True if the fit has separate costs for draft passes and target passes.
    pub separated: bool,
    /// Whether the fitted costs may be trusted.
    pub verdict: Verdict,
    /// What the table of benchmark results does not determine, one sentence each, for the user.
    pub warnings: Vec<String>,
}

impl TableCalibration {
    /// Calibrates on the table of benchmark results `text`, called `name`. The costs are fitted to the rows with the
    /// draft lengths `only`, or to all rows if `only` is `None`. The other rows are held out.
    pub fn of(
        name: &str,
        text: &str,
        base: Base,
        only: Option<&[u32]>,
        interrupt: &AtomicBool,
    ) -> Result<TableCalibration> {
        let cells = read(name, text)?;
        let inputs = vec![Input {
            path: name.to_owned(),
            blake3: blake3::hash(text.as_bytes()).to_hex().to_string(),
            what: format!("a table of {} cells", cells.len()),
        }];
        TableCalibration::of_cells(name, inputs, cells, base, only, interrupt)
    }

    /// Calibrates on runs of load generators. The costs are fitted to the runs with the draft lengths `only`, or to
    /// all runs if `only` is `None`. The other runs are held out.
    pub fn of_results(
        results: Results,
        base: Base,
        only: Option<&[u32]>,
        interrupt: &AtomicBool,
    ) -> Result<TableCalibration> {
        let Results { name, inputs, cells, warnings } = results;
        let mut found = TableCalibration::of_cells(&name, inputs, cells, base, only, interrupt)?;
        found.warnings.splice(0..0, warnings);
        Ok(found)
    }

    fn of_cells(
        name: &str,
        inputs: Vec<Input>,
        cells: Vec<Cell>,
        base: Base,
        only: Option<&[u32]>,
        interrupt: &AtomicBool,
    ) -> Result<TableCalibration> {
        let is_fitted = |c: &Cell| only.is_none_or(|only| only.contains(&c.k));
        let (fitted, held): (Vec<Cell>, Vec<Cell>) = cells.iter().cloned().partition(is_fitted);
        if fitted.is_empty() {
            return Err(Problem::bad_input(format!("{name}: no row has a draft length to fit to"))
                .help("give lengths that the table has"));
        }
        let survivals = accepted::survivals(&cells);
        if fitted.iter().any(|c| c.k > 0) && survivals.is_empty() {
            return Err(unaccepted(name, &fitted, &cells));
        }
        let rates = deep(&accepted::hazards(&survivals));
        let plan = base.plan()?;
        let experiment = &plan.variants[0].experiment;
        let lengths = experiment.workload.lengths.clone();
        let draft = Some(experiment.hardware.draft.clone()).filter(|draft| base.given && !is_free(draft));
        let alpha_s = if base.given { law::context_s(&experiment.hardware.target) } else { 0.0 };
        let known = Law::known(alpha_s, draft.clone());
        let num_gpu_blocks = match base.given {
            true => experiment.engine.num_gpu_blocks,
            false => most_tokens(&cells).div_ceil(u64::from(experiment.engine.block_size)) as u32 + 1024,
        };
        let target = experiment.hardware.target.clone();
        let stated_target = Some(target).filter(|target| base.given && matches!(target, LatencySpec::Roofline(_)));
        let server = Server { base: &base, rates: &rates, num_gpu_blocks, lengths: lengths.clone(), interrupt };
        let drafter = match (draft.is_some(), experiment.engine.method) {
            (true, _) => Drafter::Stated,
            (false, DraftMethod::Dflash | DraftMethod::Dspark | DraftMethod::DsparkFillIn) => Drafter::Block,
            (false, _) => Drafter::PassesByLength,
        };
        let fit = Fit::to(&server, &fitted, &known, drafter)?;
        let left_out = left_out(&fit, &fitted);
        let mut judged = judge(&fit, &fit.slopes, &fitted, true, &left_out);
        let mut further = None;
        if !held.is_empty() {
            let of_held = fit.slopes_of(&server, &held)?;
            judged.extend(judge(&fit, &of_held, &held, false, &left_out));
            further = Some((of_held, held.as_slice()));
        }
        let by_load = by_load(&fit, &fitted, further.as_ref().map(|(slopes, cells)| (slopes, *cells)));
        let drafting: BTreeSet<u32> = fitted.iter().map(|c| c.k).filter(|&k| k > 0).collect();
        let has_plain = fitted.iter().any(|c| c.k == 0);
        let separated = match drafting.len() {
            0 => false,
            1 => has_plain && draft.is_some(),
            _ => true,
        };
        let requests = |c: &Cell| c.requests.or(workload(lengths.as_ref(), c).requests).unwrap_or(0);
        let positions = accepted::positions(&survivals, &rates, &cells, requests);
        let mut found = TableCalibration {
            name: name.to_owned(),
            inputs,
            verdict: verdict(&fit, stated_target.as_ref(), &judged, &left_out),
            warnings: vec![],
            base,
            cells,
            costs: Spread::of(&fit).map_or(vec![], |spread| spread.draws(&fit.solution, draft.is_some())),
            fit,
            judged,
            left_out,
            by_load,
            positions,
            separated,
        };
        found.warnings = found.cannot_tell(&fitted, draft.is_some());
        Ok(found)
    }

    /// (Mean, largest) absolute error of the predictions of held-out measured numbers; `None` if no number was held
    /// out.
    pub fn held_out(&self) -> Option<(f64, f64)> {
        let errors: Vec<f64> = self.judged.iter().filter(|j| !j.fitted).map(|j| j.error().abs()).collect();
        let largest = errors.iter().copied().reduce(f64::max)?;
        Some((errors.iter().sum::<f64>() / errors.len() as f64, largest))
    }
}

/// The error for rows of the table with a draft length above 0 if no row says how many draft tokens were accepted.
fn unaccepted(name: &str, fitted: &[Cell], cells: &[Cell]) -> Box<Problem> {
    const HOW: &str = "the mean number of accepted drafts of a round, or shares by position: 0.7;0.45;0.3";
    let first = fitted.iter().find(|c| c.k > 0);
    if let Some(place) = first.and_then(|c| c.from.as_deref()) {
        let table = results::as_table(cells);
        return Problem::bad_input(format!("{place}: drafts, and no file says what was accepted of them")).help(format!(
            "take acceptance from the server's metrics, and calibrate on this table (a CSV file) with it: `accepted` is \
             {HOW}\n{table}"
        ));
    }
    let line = first.map_or(0, |c| c.line);
    Problem::bad_input(format!("{name}, line {line}: drafts without `accepted`: nothing says what a round gives"))
        .help(format!("add the column: {HOW}"))
}

fn is_free(draft: &LatencySpec) -> bool {
    *draft == LatencySpec::Linear(Coefficients::FREE)
}

/// A generous upper estimate of the number of tokens that the largest load of the table of benchmark results has in
/// KV at once.
fn most_tokens(cells: &[Cell]) -> u64 {
    let tokens_of = |c: &Cell| {
        let clients = match c.load {
            CellLoad::Clients(n) => f64::from(n),
            CellLoad::Rate(_) => 512.0,
        };
        (clients * (c.input + 2.0 * c.output)) as u64
    };
    cells.iter().map(tokens_of).max().unwrap_or(0)
}

/// Every measured number of `slopes`, such as TPOT of a row, with its prediction by the costs of `fit`. `left_out` has
/// the errors of fitted numbers that were predicted by the other rows. An interval is at least as wide as these errors
/// are: they contain what the form of the costs cannot say.
fn judge(fit: &Fit, slopes: &fit::Slopes, cells: &[Cell], fitted: bool, left_out: &[f64]) -> Vec<Judged> {
    let spread = Spread::of(fit);
    let square = left_out.iter().map(|e| e * e).sum::<f64>() / left_out.len().max(1) as f64;
    let half_width = |s: &Spread, row: &[f64]| Some(s.half_width(row)?.max(NORMAL * square.sqrt()));
    let judged = |at: usize| {
        let m = slopes.measured()[at];
        let predicted_s = slopes.seconds(at, &fit.solution);
        Judged {
            cell: cells[m.cell].clone(),
            quantity: m.quantity,
            measured_s: m.seconds,
            predicted_s,
            half_width: spread.as_ref().and_then(|s| half_width(s, &slopes.row(at, &fit.solution, predicted_s))),
            fitted,
        }
    };
    (0..slopes.measured().len()).map(judged).collect()
}

/// Number of random sets of factors by which the true costs of passes and of the host may differ from the fitted ones.
const DRAWS: u64 = 32;
/// The 97.5th percentile of the standard normal distribution, for 95 % intervals.
const NORMAL: f64 = 1.96;
/// Assumed standard deviation of the factor by which the true cost of a draft pass differs from the cost that the
/// experiment states.
const STATED: f64 = 0.2;
/// Least random factor on the cost of a pass, so that no pass is free.
const LEAST: f64 = 0.1;

/// The uncertainty of predictions by fitted costs. It has two sources: errors of measurements, and the uncertainty of
/// the fitted costs.
struct Spread {
    /// The inverse of the least-squares normal matrix of the costs in `active`.
    inverse: DMatrix<f64>,
    /// Indices of the costs whose fitted value is not 0.
    active: Vec<usize>,
    /// Standard deviation of the relative errors of the measured numbers.
    sigma: f64,
    /// The 97.5 % quantile of Student's t, for a 95 % interval.
    t: f64,
}

impl Spread {
    fn of(fit: &Fit) -> Option<Spread> {
        let (sigma, t) = (fit.solution.sigma()?, fit.solution.t()?);
        let active: Vec<usize> = (0..fit.solution.values.len()).filter(|&j| fit.solution.values[j] > 0.0).collect();
        let rows = fit.slopes.measured().len();
        let a = DMatrix::from_fn(rows, active.len(), |i, j| {
            let measured = fit.slopes.measured()[i].seconds;
            fit.slopes.row(i, &fit.solution, measured)[active[j]]
        });
        let inverse = (a.transpose() * a).try_inverse()?;
        Some(Spread { inverse, active, sigma, t })
    }

    /// Random factors by which the true costs of passes and of the host may differ from the fitted ones, [`DRAWS`]
    /// sets. If the experiment states the cost of a draft pass, the factor on this cost has the assumed spread
    /// [`STATED`].
    fn draws(&self, solution: &Solution, draft_is_stated: bool) -> Vec<CostFactors> {
        let Some(root) = self.inverse.clone().cholesky().map(|c| c.l()) else { return vec![] };
        // With few measurements, the errors have the wider tails of Student's t. So the standard deviation of the
        // random factors is multiplied by t / 1.96.
        let wide = self.sigma * self.t / NORMAL;
        let draw = |n: u64| {
            let luck = Luck::new(n, Stream::Noise, u64::MAX - 1);
            let z = DVector::from_fn(self.active.len(), |j, _| normal(&luck, j as u64));
            let moves = &root * z * wide;
            let mut factors = CostFactors::NONE;
            for (j, &at) in self.active.iter().enumerate() {
                let factor = (1.0 + moves[j] / solution.values[at]).max(0.0);
                match solution.terms[at] {
                    Term::Pass => factors.pass = factor.max(LEAST),
                    Term::Token => factors.token = factor,
                    Term::DraftPass => factors.draft = factor,
                    Term::Speculating => factors.step = factor,
                    Term::SpeculatingRequest => factors.request = factor,
                    Term::WithoutGraph(_) => factors.launch = factor,
                    Term::Frontend => {}
                }
            }
            if draft_is_stated {
                factors.draft = (1.0 + STATED * normal(&luck, self.active.len() as u64)).max(LEAST);
            }
            factors
        };
        (0..DRAWS).map(draw).collect()
    }

    /// Half the width of the 95 % interval in which a measured number is expected, as a share of the number's
    /// prediction. `row` has the slope of the number in each fitted cost, divided by the prediction. `None` if the
    /// interval is not finite.
    fn half_width(&self, row: &[f64]) -> Option<f64> {
        let g = DVector::from_fn(self.active.len(), |j, _| row[self.active[j]]);
        let variance = 1.0 + (g.transpose() * &self.inverse * &g)[(0, 0)];
        (variance.is_finite() && variance >= 1.0).then(|| self.t * self.sigma * variance.sqrt())
    }
}

/// For each measured number to which the costs were fitted: the error of its prediction by costs that were fitted
/// without the number's row.
fn left_out(fit: &Fit, cells: &[Cell]) -> Vec<f64> {
    let error = |at: usize| {
        let m = fit.slopes.measured()[at];
        let others: Solution = fit.slopes.solve(&|cell| cell != m.cell);
        m.seconds / fit.slopes.seconds(at, &others) - 1.0
    };
    if cells.len() < 3 { vec![] } else { (0..fit.slopes.measured().len()).map(error).collect() }
}

/// For each load, the mean absolute error of its predictions by costs that were fitted without the load. The mean is
/// over all rows with the load. `held` has held-out rows, whose predictions count too.
fn by_load(fit: &Fit, cells: &[Cell], held: Option<(&fit::Slopes, &[Cell])>) -> Vec<ErrorsWithoutLoad> {
    let mut loads: Vec<CellLoad> = Vec::new();
    for cell in cells {
        if !loads.contains(&cell.load) {
            loads.push(cell.load);
        }
    }
    if loads.len() < 3 {
        return vec![];
    }
    let errors = |load: CellLoad, law: &Solution| {
        let errors_among = |(slopes, cells): (&fit::Slopes, &[Cell])| {
            let own = |at: &usize| cells[slopes.measured()[*at].cell].load == load;
            let error = |at: usize| (slopes.measured()[at].seconds / slopes.seconds(at, law) - 1.0).abs();
            (0..slopes.measured().len()).filter(own).map(error).collect::<Vec<f64>>()
        };
        let all: Vec<f64> = [(&fit.slopes, cells)].into_iter().chain(held).flat_map(errors_among).collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    };
    let without = |load: CellLoad| {
        let others = |cell: usize| cells[cell].load != load;
        ErrorsWithoutLoad {
            load,
            error: errors(load, &fit.slopes.solve(&others)),
            with_graphs: errors(load, &fit.slopes.solve_like(&fit.solution, &others)),
        }
    };
    loads.into_iter().map(without).collect()
}

/// The verdict on the fitted costs. Costs that no server has are not trusted, and neither are costs that miss the rows
/// to which they were fitted. Otherwise the verdict comes from the errors on held-out rows. If no row is held out, it
/// comes from the errors in `left_out`: each fitted number is predicted by costs that were fitted without the number's
/// row. `stated` is the target whose GPU and model the experiment states, if it states them.
fn verdict(fit: &Fit, stated: Option<&LatencySpec>, judged: &[Judged], left_out: &[f64]) -> Verdict {
    let distrust = |why: String| Verdict { trusted: Some(false), why };
    if let Some(why) = impossible_pass(&fit.law, stated) {
        return distrust(why);
    }
    let root = fit.solution.root_mean_square();
    if !within(root) {
        let most = 100.0 * TRUSTED;
        return distrust(format!("fitted cells are off by {:.1} % (at most {most:.0} % is trusted)", 100.0 * root));
    }
    let held: Vec<f64> = judged.iter().filter(|j| !j.fitted).map(Judged::error).collect();
    let (errors, what) = match held.is_empty() {
        false => (held.as_slice(), "cells that were held out"),
        true => (left_out, "cells, each by the others,"),
    };
    if errors.is_empty() {
        return Verdict { trusted: None, why: "too few cells to hold any out".into() };
    }
    let mean = errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len() as f64;
    let largest = errors.iter().map(|e| e.abs()).fold(0.0, f64::max);
    let off = format!("within {:.1} % on average, {:.1} % at most", 100.0 * mean, 100.0 * largest);
    let (trusted, n) = (mean <= TRUSTED, errors.len());
    let why = match trusted {
        true => format!("the loads and lengths of the table: {n} {what} {off}"),
        false => format!("{n} {what} are {off} ({:.0} % on average is trusted)", 100.0 * TRUSTED),
    };
    Verdict { trusted: Some(trusted), why }
}

/// A fitted pass may be faster than the roofline that the experiment states by at most this factor: the experiment may
/// state other weights or efficiencies than the server's.
const FASTER: f64 = 3.0;

/// Says why the fitted time of a target pass is that of no server; `None` if it may be.
fn impossible_pass(law: &Law, stated: Option<&LatencySpec>) -> Option<String> {
    let pass_s = law.target.delta_s + law.target.gamma_s;
    let ms = |s: f64| format!("{:.3} ms", 1e3 * s);
    if pass_s < SHORTEST_PASS_S {
        return Some(format!(
            "a target pass of one token takes {} by the fit, and no pass takes less than {}",
            ms(pass_s),
            ms(SHORTEST_PASS_S)
        ));
    }
    let one = PassShape { requests: 1, batched: 1, context: 0, pairs: 1 };
    let roofline_s = stated?.build().pass(one).as_s();
    (pass_s * FASTER < roofline_s).then(|| {
        format!(
            "a target pass of one token takes {} by the fit, and {} on the GPU that the experiment states",
            ms(pass_s),
            ms(roofline_s)
        )
    })
}
