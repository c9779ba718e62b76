//! Fits a law (the costs of passes and of the host) to the cells of a table, by simulating the cells.
//!
//! In a closed loop the order of steps does not depend on their costs, so the time per token of a cell is linear in
//! each number of the law. The slope of a number comes from a simulation with this number changed. The fitted law is
//! the non-negative least-squares solution in relative errors. Open loads are not exactly linear, so that slopes and
//! solution are computed repeatedly, each time at the solution before.

use super::law::{Law, Term};
use super::read::{Cell, CellLoad};
use super::simulate::Server;
use foretoken_profiler::nnls::nnls;
use foretoken_sim::metrics::student_t_975;
use foretoken_spec::problem::Result;
use nalgebra::{DMatrix, DVector};

/// Slopes and solution are computed at most this number of times.
const ROUNDS: usize = 3;
/// The fit ends when simulations with the solution differ from the linear prediction by less than this share.
const STILL: f64 = 2e-3;
/// The F ratio above which the term `WithoutGraph` is used. The ratio is the decrease of the sum of squares for each of
/// the term's two numbers, divided by the remaining sum of squares per degree of freedom. The 95th percentile of F(2,
/// 4) is 6.9, of F(2, 10) 4.1.
const WORTH: f64 = 7.0;
/// The term `WithoutGraph` is tried only with at least this number of loads with drafts. A straight line fits fewer
/// loads equally well.
const LOADS_FOR_A_STEP: usize = 4;

/// The kinds of numbers that are measured for a cell (a row of the table).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Seconds per output token of the server, over all requests: 1 / throughput.
    TokenTime,
    /// Mean time to first token, in seconds.
    Ttft,
    /// Mean time per output token after the first, in seconds.
    Tpot,
}

/// A measured number of a cell, with its value.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Index of the cell among the given cells.
    pub cell: usize,
    /// Which number of the cell was measured.
    pub quantity: Quantity,
    /// The measured value in seconds.
    pub seconds: f64,
}

/// All measured numbers of the cells. With open arrivals, the throughput does not count.
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

/// The values in seconds that simulations with `law` give for the measured numbers `asked`.
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

/// The terms whose values the cells determine, and numbers of requests that are tried as the size of the largest
/// captured graph (see [`Term::WithoutGraph`]).
pub fn terms(cells: &[Cell], draft_is_known: bool) -> (Vec<Term>, Vec<u32>) {
    let loads = |among: &dyn Fn(&Cell) -> bool| {
        let mut all: Vec<u32> = cells
            .iter()
            .filter(|c| among(c))
            .filter_map(|c| match c.load {
                CellLoad::Clients(n) => Some(n),
                CellLoad::Rate(_) => None,
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let rates = |among: &dyn Fn(&Cell) -> bool| {
        cells.iter().filter(|c| among(c) && matches!(c.load, CellLoad::Rate(_))).count()
    };
    let mut lengths: Vec<u32> = cells.iter().map(|c| c.k).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let drafting: Vec<u32> = lengths.iter().copied().filter(|&k| k > 0).collect();
    let mut all = vec![Term::Pass];
    let sizes = loads(&|_| true).len() + rates(&|_| true);
    if sizes > 1 {
        all.push(Term::Token);
    }
    let drafts = loads(&|c| c.k > 0);
    let draft_sizes = drafts.len() + rates(&|c| c.k > 0);
    let plain = lengths.first() == Some(&0);
    if !drafting.is_empty() && (plain || drafting.len() > 1) {
        if !draft_is_known && drafting.len() > 1 {
            all.push(Term::DraftPass);
        }
        all.push(Term::Speculating);
        if draft_sizes > 1 {
            all.push(Term::SpeculatingRequest);
        }
    }
    if cells.iter().any(|c| c.ttft_s.is_some()) {
        all.push(Term::Frontend);
    }
    let between = |w: &[u32]| ((f64::from(w[0]) * f64::from(w[1])).sqrt().round() as u32).clamp(w[0], w[1] - 1);
    let ends = match drafts.len() >= LOADS_FOR_A_STEP && all.contains(&Term::SpeculatingRequest) {
        true => drafts.windows(2).map(between).collect(),
        false => vec![],
    };
    (all, ends)
}

/// The measured numbers as linear functions of the law's terms. The functions hold near the law at which the slopes
/// were computed.
#[derive(Clone, Debug)]
pub struct Slopes {
    measured: Vec<Measured>,
    /// The terms of every solution. A solution may also have one `Term::WithoutGraph`.
    terms: Vec<Term>,
    /// Numbers of requests that are tried as the size of the largest captured graph. Larger steps run without a graph.
    ends: Vec<u32>,
    /// The linear prediction of each measured number with all terms 0, in seconds.
    known: Vec<f64>,
    /// `[term][measured number]`: the slopes for `terms`, then for `Term::WithoutGraph` of each of `ends`.
    slopes: Vec<Vec<f64>>,
}

/// A solution of the linear least-squares problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The terms that were fitted.
    pub terms: Vec<Term>,
    /// The values of `terms`, in seconds.
    pub values: Vec<f64>,
    /// Sum of squared relative errors.
    pub squares: f64,
    /// Number of fitted numbers: the terms, and one more if the size of the largest captured graph was chosen.
    pub numbers: usize,
    /// Number of measured numbers to which the terms were fitted.
    pub measured: usize,
}

impl Solution {
    /// Standard deviation of the relative errors; `None` unless there are more measured than fitted numbers.
    pub fn sigma(&self) -> Option<f64> {
        let free = self.measured.checked_sub(self.numbers).filter(|&n| n > 0)?;
        Some((self.squares / free as f64).sqrt())
    }

    /// Student's t for a 95 % interval; `None` unless there are more measured than fitted numbers.
    pub fn t(&self) -> Option<f64> {
        self.measured.checked_sub(self.numbers).filter(|&n| n > 0).map(student_t_975)
    }
}

impl Slopes {
    /// Computes the slopes at the law `known` in which `terms` have these `values`, by simulating the cells.
    fn at(
        server: &Server,
        cells: &[Cell],
        (known, terms, ends): (&Law, &[Term], &[u32]),
        values: &[f64],
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
            // A law has one size of the largest captured graph, so `with` may replace another size.
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
        Ok(Slopes { measured, terms: columns, ends: ends.to_vec(), known, slopes })
    }

    /// The best solution for the measured numbers of those cells for which `counts(cell)` is true. It has a
    /// `Term::WithoutGraph` only if this term lowers the errors enough (see `WORTH`).
    pub fn solve(&self, counts: &dyn Fn(usize) -> bool) -> Solution {
        let plain = self.solve_with(counts, None);
        let among = (0..self.ends.len()).map(|end| self.solve_with(counts, Some(end)));
        let Some(best) = among.min_by(|a, b| a.squares.total_cmp(&b.squares)) else { return plain };
        let free = plain.measured.saturating_sub(best.numbers).max(1) as f64;
        let more = (best.numbers - plain.numbers) as f64;
        match (plain.squares - best.squares) / more > WORTH * best.squares / free {
            true => best,
            false => plain,
        }
    }

    /// The best solution for those cells for which `counts(cell)` is true. The size of the largest captured graph is
    /// taken from `like`.
    pub fn solve_like(&self, like: &Solution, counts: &dyn Fn(usize) -> bool) -> Solution {
        let end = like.terms.iter().find_map(|t| match t {
            Term::WithoutGraph(above) => self.ends.iter().position(|end| end == above),
            _ => None,
        });
        self.solve_with(counts, end)
    }

    fn solve_with(&self, counts: &dyn Fn(usize) -> bool, end: Option<usize>) -> Solution {
        let rows: Vec<usize> = (0..self.measured.len()).filter(|&i| counts(self.measured[i].cell)).collect();
        let columns: Vec<usize> = (0..self.terms.len()).chain(end.map(|end| self.terms.len() + end)).collect();
        let a = DMatrix::from_fn(rows.len(), columns.len(), |i, j| {
            self.slopes[columns[j]][rows[i]] / self.measured[rows[i]].seconds
        });
        let b = DVector::from_fn(rows.len(), |i, _| {
            let m = &self.measured[rows[i]];
            (m.seconds - self.known[rows[i]]) / m.seconds
        });
        let x = nnls(&a, &b);
        let terms: Vec<Term> =
            self.terms.iter().copied().chain(end.map(|end| Term::WithoutGraph(self.ends[end]))).collect();
        Solution {
            values: x.iter().copied().collect(),
            squares: (&a * &x - &b).norm_squared(),
            numbers: terms.len() + usize::from(end.is_some()),
            measured: rows.len(),
            terms,
        }
    }

    /// The linear prediction of measured number `at` by a solution, in seconds.
    pub fn seconds(&self, at: usize, solution: &Solution) -> f64 {
        let by_terms = solution.terms.iter().zip(&solution.values).map(|(t, x)| self.slopes[self.column(t)][at] * x);
        self.known[at] + by_terms.sum::<f64>()
    }

    /// The index of a term in `slopes`.
    fn column(&self, term: &Term) -> usize {
        match term {
            Term::WithoutGraph(above) => {
                self.terms.len() + self.ends.iter().position(|end| end == above).expect("it was tried")
            }
            term => self.terms.iter().position(|t| t == term).expect("it has a column"),
        }
    }

    /// Slopes of measured number `at` in the terms of a solution, divided by `seconds`.
    pub fn row(&self, at: usize, solution: &Solution, seconds: f64) -> Vec<f64> {
        solution.terms.iter().map(|term| self.slopes[self.column(term)][at] / seconds).collect()
    }

    /// The measured numbers, in the order of the slopes.
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }
}

/// A law fitted to the cells of a table.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The law with the fitted values.
    pub law: Law,
    /// The fitted terms and their values.
    pub solution: Solution,
    /// The linear problem that `solution` solves.
    pub slopes: Slopes,
}

impl Fit {
    /// The slopes at the fitted law for other cells, for example for the held-out cells.
    ///
    /// # Errors
    /// A cell cannot be simulated, or the user interrupts.
    pub fn slopes_of(&self, server: &Server, cells: &[Cell]) -> Result<Slopes> {
        let Solution { terms, values, .. } = &self.solution;
        // `at` sets the values of the terms. Everything else comes from the fitted law.
        Slopes::at(server, cells, (&self.law, terms, &self.slopes.ends), values)
    }

    /// Fits a law to cells. `known` has the costs that are not fitted. `draft_is_known` is true if `known` has the
    /// draft's cost.
    ///
    /// # Errors
    /// A cell cannot be simulated, or the user interrupts.
    pub fn to(server: &Server, cells: &[Cell], known: &Law, draft_is_known: bool) -> Result<Fit> {
        let (terms, ends) = terms(cells, draft_is_known);
        let mut start = vec![0.0; terms.len()];
        // The fit starts from a pass time somewhat below the shortest measured time per token of a request.
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
            let slopes = Slopes::at(server, cells, (known, &at.0, &ends), &at.1)?;
            let solution = slopes.solve(&|_| true);
            let law = known.with(&solution.terms, &solution.values);
            let there = predicted(server, cells, &law, &slopes.measured)?;
            let off = |(i, s): (usize, &f64)| (s / slopes.seconds(i, &solution) - 1.0).abs();
            let still = there.iter().enumerate().map(off).fold(0.0, f64::max) < STILL;
            at = (solution.terms.clone(), solution.values.clone());
            found = Some((slopes, solution));
            if still {
                break;
            }
        }
        let (slopes, solution) = found.expect("there is a round");
        Ok(Fit { law: known.with(&solution.terms, &solution.values), solution, slopes })
    }
}
