//! Fits costs of passes and of the host to a table of benchmark results, by simulating the table's rows. A row has the
//! results of one draft length at one load. The set of costs is called the law.
//!
//! In a closed loop the order of steps does not depend on their costs, so the time per token of a row is linear in
//! each cost. A simulation with one cost changed gives the slope of the results in this cost. The fitted costs are
//! the non-negative least-squares solution in relative errors. Open loads are not exactly linear. So slopes and
//! solution are computed repeatedly, each time at the previous solution.

use super::cell::{Cell, CellLoad};
use super::determined::{Drafter, determined, ends};
use super::law::{Law, Term};
use super::simulate::Server;
use foretoken_profiler::nnls::nnls;
use foretoken_run::spec::problem::Result;
use foretoken_sim::metrics::student_t_975;
use nalgebra::{DMatrix, DVector};

/// The fit repeats two things at most this number of times: it computes the slopes, and it solves the least-squares
/// problem. A slope is the change of a result per unit of a fitted cost.
const ROUNDS: usize = 3;
/// The fit of costs ends when simulations with the fitted costs differ from the linear model's predictions by less
/// than this share.
const STILL: f64 = 2e-3;
/// The kinds of numbers that are measured for a row of the table of benchmark results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Output time of the whole server: seconds per output token, over all requests, which is 1 / throughput.
    TokenTime,
    /// Mean time to first token of the row's requests, in seconds.
    Ttft,
    /// Mean time per output token after the first of the row's requests, in seconds.
    Tpot,
}

/// A number that was measured for a row of the table of benchmark results, such as its TPOT.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Index of the row of the table of benchmark results, in the list of all its rows (cells).
    pub cell: usize,
    /// Which number was measured: time per token of the server, TTFT or TPOT.
    pub quantity: Quantity,
    /// The measured value of the number (such as TPOT), seconds.
    pub seconds: f64,
}

/// All measured numbers of the cells (rows of the table). The throughput of open arrivals does not count.
pub fn measured(cells: &[Cell]) -> Vec<Measured> {
    let numbers_of = |(cell, c): (usize, &Cell)| {
        let closed = matches!(c.load, CellLoad::Clients(_));
        let all = [
            (Quantity::TokenTime, c.tok_s.filter(|_| closed).map(|x| 1.0 / x)),
            (Quantity::Ttft, c.ttft_s),
            (Quantity::Tpot, c.tpot_s),
        ];
        all.into_iter().filter_map(move |(quantity, s)| Some(Measured { cell, quantity, seconds: s? }))
    };
    cells.iter().enumerate().flat_map(numbers_of).collect()
}

/// Simulates the rows of the table with the costs of `law`. Returns the simulated value, in seconds, of each measured
/// number in `asked`.
fn predicted(server: &Server, cells: &[Cell], law: &Law, asked: &[Measured]) -> Result<Vec<f64>> {
    let mut last = None;
    let mut all = Vec::new();
    for m in asked {
        let p = match last {
            Some((cell, p)) if cell == m.cell => p,
            _ => server.predict(&cells[m.cell], cells[m.cell].k, law)?,
        };
        last = Some((m.cell, p));
        all.push(match m.quantity {
            Quantity::TokenTime => 1.0 / p.tok_s,
            Quantity::Ttft => p.ttft_s,
            Quantity::Tpot => p.tpot_s,
        });
    }
    Ok(all)
}

/// A linear model of the measured numbers: how each number depends on the fitted costs. The model holds near the costs
/// at which its slopes were computed.
#[derive(Clone, Debug)]
pub struct Slopes {
    measured: Vec<Measured>,
    /// The rows of the table of benchmark results to which the measured numbers belong.
    cells: Vec<Cell>,
    drafter: Drafter,
    /// The costs (such as seconds per target pass) that every least-squares solution fits. A solution may in addition
    /// fit one `Term::WithoutGraph`.
    terms: Vec<Term>,
    /// Numbers of requests that are tried as the size of the largest captured CUDA graph. Larger steps run without a
    /// graph.
    ends: Vec<u32>,
    /// For each measured number, its prediction in seconds if all fitted costs were 0.
    known: Vec<f64>,
    /// `[cost][measured number]`: the change of the measured number per unit of the fitted cost. First the costs in
    /// `terms`, then `Term::WithoutGraph` of each size in `ends`.
    slopes: Vec<Vec<f64>>,
}

/// A solution of the linear least-squares problem: values of the fitted costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The costs that were fitted, such as seconds per target pass.
    pub terms: Vec<Term>,
    /// The values of the costs `terms`, in seconds.
    pub values: Vec<f64>,
    /// Sum over the measured numbers of the squared relative errors of their predictions.
    pub squares: f64,
    /// Number of fitted numbers: one for each cost in `terms`, and one more if the size of the largest captured CUDA
    /// graph was chosen too.
    pub numbers: usize,
    /// Number of measured numbers to which the costs were fitted.
    pub measured: usize,
    /// Host costs that the measured numbers do not support. They count as 0.
    pub unsupported: Vec<Unsupported>,
}

/// A host cost that was left out of the fit, because an F test at 95 % does not tell its value from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unsupported {
    /// The host cost that was left out.
    pub term: Term,
    /// The F ratio: the decrease of the sum of squared errors by this cost, divided by the remaining sum of squares per
    /// degree of freedom.
    pub ratio: f64,
    /// The 95th percentile of the F ratio if the true cost is 0. The cost is supported only if `ratio` is above this
    /// value.
    pub needed: f64,
}

/// The 95th percentile of the F distribution with `numbers` (1 or 2) and `free` degrees of freedom. If `numbers` is 1,
/// F is the square of Student's t. If it is 2, P(F > x) = (1 + 2x/n)^(-n/2) with n = `free`.
fn f_95(numbers: usize, free: usize) -> f64 {
    let n = free as f64;
    match numbers {
        1 => student_t_975(free).powi(2),
        _ => n / 2.0 * (0.05_f64.powf(-2.0 / n) - 1.0),
    }
}

/// Compares the solutions `full` and `less`, where `less` lacks some costs of `full`. Returns (F ratio of these
/// costs, its 95th percentile if the true costs are 0); `None` if no degree of freedom remains.
fn f_test(full: &Solution, less: &Solution) -> Option<(f64, f64)> {
    let free = full.measured.checked_sub(full.numbers).filter(|&n| n > 0)?;
    let numbers = full.numbers - less.numbers;
    let decrease = (less.squares - full.squares).max(0.0) / numbers as f64;
    let ratio = if decrease == 0.0 { 0.0 } else { decrease * free as f64 / full.squares };
    Some((ratio, f_95(numbers, free)))
}

impl Solution {
    pub fn root_mean_square(&self) -> f64 {
        (self.squares / self.measured.max(1) as f64).sqrt()
    }

    /// Standard deviation of the relative errors of the predictions; `None` unless there are more measured than fitted
    /// numbers.
    pub fn sigma(&self) -> Option<f64> {
        let free = self.measured.checked_sub(self.numbers).filter(|&n| n > 0)?;
        Some((self.squares / free as f64).sqrt())
    }

    /// Student's t for a 95 % interval of a prediction; `None` unless there are more measured than fitted numbers.
    pub fn t(&self) -> Option<f64> {
        self.measured.checked_sub(self.numbers).filter(|&n| n > 0).map(student_t_975)
    }
}

impl Slopes {
    /// Computes the slopes of the results in the fitted costs, by simulating the rows of the table. `values` are the
    /// values of the costs `terms`; all other costs come from `known`. The slopes hold near these costs.
    fn at(
        server: &Server,
        cells: &[Cell],
        (known, terms, ends): (&Law, &[Term], &[u32]),
        values: &[f64],
        drafter: Drafter,
    ) -> Result<Slopes> {
        let measured = measured(cells);
        let law = known.with(terms, values);
        let here = predicted(server, cells, &law, &measured)?;
        let columns: Vec<Term> = terms.iter().copied().filter(|t| !matches!(t, Term::WithoutGraph(_))).collect();
        let all: Vec<Term> = columns.iter().copied().chain(ends.iter().map(|&end| Term::WithoutGraph(end))).collect();
        let mut slopes = Vec::new();
        for &term in &all {
            let moves = |m: &Measured| {
                let c = &cells[m.cell];
                let beyond = match (term, c.load) {
                    (Term::WithoutGraph(above), CellLoad::Clients(n)) => n > above,
                    _ => true,
                };
                (c.k > 0 || !term.speculates()) && beyond
            };
            let asked: Vec<Measured> = measured.iter().copied().filter(moves).collect();
            let value = terms.iter().position(|t| *t == term).map_or(0.0, |at| values[at]);
            // `law` (a set of costs) holds only one size of the largest captured CUDA graph. If `term` has another
            // size, the costs that `with` returns have the size of `term`.
            let changed = law.with(&[term], &[value + term.step()]);
            let without = law.with(&[term], &[value]);
            let base = if without == law { None } else { Some(predicted(server, cells, &without, &asked)?) };
            let there = predicted(server, cells, &changed, &asked)?;
            let mut column = vec![0.0; measured.len()];
            let mut next = 0;
            for (at, m) in measured.iter().enumerate() {
                if moves(m) {
                    let from = base.as_ref().map_or(here[at], |base| base[next]);
                    column[at] = (there[next] - from) / term.step();
                    next += 1;
                }
            }
            slopes.push(column);
        }
        let known = (0..measured.len())
            .map(|i| {
                let by_terms = terms.iter().zip(values).map(|(term, x)| {
                    let at = all.iter().position(|t| t == term).expect("every term has a column");
                    slopes[at][i] * x
                });
                here[i] - by_terms.sum::<f64>()
            })
            .collect();
        Ok(Slopes { measured, cells: cells.to_vec(), drafter, terms: columns, ends: ends.to_vec(), known, slopes })
    }

    /// The best fit of costs to the measured numbers of the rows for which `counts(row)` is true. F tests at 95 %
    /// decide which host costs the fit has.
    pub fn solve(&self, counts: &dyn Fn(usize) -> bool) -> Solution {
        let plain = self.solve_with(counts, None, &[]);
        let among = (0..self.ends.len()).map(|end| (end, self.solve_with(counts, Some(end), &[])));
        let best = among.min_by(|a, b| a.1.squares.total_cmp(&b.1.squares));
        let supported = best.filter(|(_, best)| f_test(best, &plain).is_some_and(|(ratio, needed)| ratio > needed));
        let (end, mut solution) = supported.map_or((None, plain), |(end, best)| (Some(end), best));
        // The host cost with the least F ratio is left out first: without this cost, the remaining host costs may be
        // supported. If the solution has additional host time for steps without a graph (`Term::WithoutGraph`), the
        // host time per step (`Term::Speculating`) is not tested.
        let mut unsupported: Vec<Unsupported> = vec![];
        loop {
            let without = |term: Term| unsupported.iter().map(|u| u.term).chain([term]).collect::<Vec<Term>>();
            let test = |&term: &Term| {
                let (ratio, needed) = f_test(&solution, &self.solve_with(counts, end, &without(term)))?;
                Some(Unsupported { term, ratio, needed })
            };
            let is_base = |term: &Term| end.is_some() && *term == Term::Speculating;
            let tested = solution.terms.iter().filter(|term| term.is_tested() && !is_base(term)).filter_map(test);
            let Some(least) = tested.min_by(|a, b| a.ratio.total_cmp(&b.ratio)).filter(|u| u.ratio <= u.needed) else {
                break;
            };
            unsupported.push(least);
            let all: Vec<Term> = unsupported.iter().map(|u| u.term).collect();
            solution = self.solve_with(counts, end, &all);
        }
        Solution { unsupported, ..solution }
    }

    /// The best fit of costs to the measured numbers of the rows for which `counts(row)` is true. The size of the
    /// largest captured CUDA graph, and which costs are left out, are taken from the solution `like`.
    pub fn solve_like(&self, like: &Solution, counts: &dyn Fn(usize) -> bool) -> Solution {
        let end = like.terms.iter().find_map(|t| match t {
            Term::WithoutGraph(above) => self.ends.iter().position(|end| end == above),
            _ => None,
        });
        let without: Vec<Term> = like.unsupported.iter().map(|u| u.term).collect();
        self.solve_with(counts, end, &without)
    }

    fn solve_with(&self, counts: &dyn Fn(usize) -> bool, end: Option<usize>, without: &[Term]) -> Solution {
        // The counted rows may determine fewer costs than all rows do.
        let counted: Vec<&Cell> = (0..self.cells.len()).filter(|&at| counts(at)).map(|at| &self.cells[at]).collect();
        let determined = determined(&counted, self.drafter, without);
        let kept: Vec<usize> = (0..self.terms.len()).filter(|&at| determined.contains(&self.terms[at])).collect();
        let rows: Vec<usize> = (0..self.measured.len()).filter(|&i| counts(self.measured[i].cell)).collect();
        let columns: Vec<usize> = kept.iter().copied().chain(end.map(|end| self.terms.len() + end)).collect();
        let a = DMatrix::from_fn(rows.len(), columns.len(), |i, j| {
            self.slopes[columns[j]][rows[i]] / self.measured[rows[i]].seconds
        });
        let b = DVector::from_fn(rows.len(), |i, _| {
            let m = &self.measured[rows[i]];
            (m.seconds - self.known[rows[i]]) / m.seconds
        });
        let x = nnls(&a, &b);
        let graph = end.map(|end| Term::WithoutGraph(self.ends[end]));
        let terms: Vec<Term> = kept.iter().map(|&at| self.terms[at]).chain(graph).collect();
        Solution {
            values: x.iter().copied().collect(),
            squares: (&a * &x - &b).norm_squared(),
            numbers: terms.len() + usize::from(end.is_some()),
            measured: rows.len(),
            terms,
            unsupported: vec![],
        }
    }

    /// The value in seconds that the costs of `solution` predict for measured number `at`, by the linear model.
    pub fn seconds(&self, at: usize, solution: &Solution) -> f64 {
        let by_terms = solution.terms.iter().zip(&solution.values).map(|(t, x)| self.slopes[self.column(t)][at] * x);
        self.known[at] + by_terms.sum::<f64>()
    }

    /// The index in `slopes` of the entry with the slopes in the cost `term`.
    fn column(&self, term: &Term) -> usize {
        match term {
            Term::WithoutGraph(above) => {
                self.terms.len() + self.ends.iter().position(|end| end == above).expect("it was tried")
            }
            term => self.terms.iter().position(|t| t == term).expect("it has a column"),
        }
    }

    /// For each cost of `solution`, the slope of measured number `at` in this cost, divided by `seconds`. In the
    /// order of `solution.terms`.
    pub fn row(&self, at: usize, solution: &Solution, seconds: f64) -> Vec<f64> {
        solution.terms.iter().map(|term| self.slopes[self.column(term)][at] / seconds).collect()
    }

    /// The measured numbers (such as TPOT of a row of the table), in the order of the columns of the slopes.
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }
}

/// The costs of passes and of the host, fitted to the rows of a table of benchmark results.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The costs of passes and of the host, with their fitted values.
    pub law: Law,
    /// The costs that were fitted (such as seconds per target pass), and their values.
    pub solution: Solution,
    /// The linear model of the measured numbers that `solution` fits.
    pub slopes: Slopes,
}

impl Fit {
    /// The linear model, at the fitted costs, of the results of the rows `cells`, for example of held-out rows.
    pub fn slopes_of(&self, server: &Server, cells: &[Cell]) -> Result<Slopes> {
        let Solution { terms, values, .. } = &self.solution;
        // `at` sets the values of the fitted costs. All other costs come from `self.law`.
        Slopes::at(server, cells, (&self.law, terms, &self.slopes.ends), values, self.slopes.drafter)
    }

    /// Fits the costs of passes and of the host to rows of a table. `known` has the costs that are not fitted. If
    /// `drafter` is [`Drafter::Stated`], one of them is the cost of a draft pass.
    pub fn to(server: &Server, cells: &[Cell], known: &Law, drafter: Drafter) -> Result<Fit> {
        let terms = determined(&cells.iter().collect::<Vec<_>>(), drafter, &[]);
        let ends = ends(cells, &terms);
        let mut start = vec![0.0; terms.len()];
        // The fit of costs starts from a pass time somewhat below the shortest measured time per token of a request.
        let shortest = measured(cells)
            .iter()
            .map(|m| match (m.quantity, cells[m.cell].load) {
                (Quantity::TokenTime, CellLoad::Clients(n)) => m.seconds * f64::from(n),
                _ => m.seconds,
            })
            .fold(f64::INFINITY, f64::min);
        start[0] = 0.8 * shortest;
        let mut at = (terms, start);
        let mut found: Option<(Slopes, Solution)> = None;
        for _ in 0..ROUNDS {
            let slopes = Slopes::at(server, cells, (known, &at.0, &ends), &at.1, drafter)?;
            let solution = slopes.solve(&|_| true);
            let law = known.with(&solution.terms, &solution.values);
            let there = predicted(server, cells, &law, &slopes.measured)?;
            let off = |(i, s): (usize, &f64)| (s / slopes.seconds(i, &solution) - 1.0).abs();
            let still = there.iter().enumerate().map(off).fold(0.0, f64::max) < STILL;
            // A cost that was left out, because an F test does not tell it from 0, keeps its column of slopes. So the
            // fit's next repetition may include it.
            let left_out = solution.unsupported.iter().map(|u| (u.term, 0.0));
            at = solution.terms.iter().copied().zip(solution.values.iter().copied()).chain(left_out).unzip();
            found = Some((slopes, solution));
            if still {
                break;
            }
        }
        let (slopes, solution) = found.expect("there is a round");
        Ok(Fit { law: known.with(&solution.terms, &solution.values), solution, slopes })
    }
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
