//! Fits a law to the cells of a table by simulating them.
//!
//! In a closed loop the order of steps does not depend on what they cost, so that the time per token of a cell is a
//! line in every number of the law. Its slopes come from simulations with one number changed, and the law is the
//! non-negative least-squares solution in relative errors. For open loads the slopes are taken again at the solution.

use super::law::{Law, Term};
use super::read::{Cell, CellLoad};
use super::simulate::Server;
use foretoken_profiler::nnls::nnls;
use foretoken_sim::metrics::student_t_975;
use foretoken_spec::problem::Result;
use nalgebra::{DMatrix, DVector};

/// Most rounds of slopes and solution.
const ROUNDS: usize = 3;
/// The fit is over when the simulated cells at the solution are as near as this to their lines, as a share.
const STILL: f64 = 2e-3;
/// By how much a step of captured graphs must lower the squares for each number that it takes (an F ratio), or it is
/// left out. The 95th percentile of F(2, 4) is 6.9, of F(2, 10) 4.1.
const WORTH: f64 = 7.0;
/// Fewest loads with drafts for a step where captured graphs end. With fewer a line through them fits as well.
const LOADS_FOR_A_STEP: usize = 4;

/// A measured number of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Seconds per output token of the whole server.
    TokenTime,
    /// Mean seconds to the first token.
    Ttft,
    /// Mean seconds per further token.
    Tpot,
}

/// A measured number: the index of its cell, and its seconds.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Index of the cell.
    pub cell: usize,
    /// The quantity.
    pub quantity: Quantity,
    /// Its measured value, seconds.
    pub seconds: f64,
}

/// The measured numbers of cells.
pub fn measured(cells: &[Cell]) -> Vec<Measured> {
    let of = |(cell, c): (usize, &Cell)| {
        let closed = matches!(c.load, CellLoad::Clients(_));
        let all = [
            (Quantity::TokenTime, c.tok_s.filter(|_| closed).map(|x| 1.0 / x)),
            (Quantity::Ttft, c.ttft_s),
            (Quantity::Tpot, c.tpot_s),
        ];
        all.into_iter().filter_map(move |(quantity, s)| Some(Measured { cell, quantity, seconds: s? }))
    };
    cells.iter().enumerate().flat_map(of).collect()
}

/// Predicted seconds of measured numbers.
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

/// The terms that a table can tell apart, and where captured graphs may end.
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

/// Slopes of the measured numbers in the terms, at a law.
#[derive(Clone, Debug)]
pub struct Slopes {
    measured: Vec<Measured>,
    /// The terms that are always there.
    terms: Vec<Term>,
    /// Where captured graphs may end.
    ends: Vec<u32>,
    /// What is predicted with all terms 0, from the line through the solution.
    known: Vec<f64>,
    /// Slopes of `terms`, then of `ends`, column by column.
    slopes: Vec<Vec<f64>>,
}

/// A solution of the linear problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The terms.
    pub terms: Vec<Term>,
    /// Their values.
    pub values: Vec<f64>,
    /// Sum of squared relative errors.
    pub squares: f64,
    /// Numbers that were fitted; a place where graphs end counts as one.
    pub numbers: usize,
    /// Relative errors were counted over this number of measured numbers.
    pub measured: usize,
}

impl Solution {
    /// Standard deviation of a relative error. Without more numbers than terms, nothing is known of it.
    pub fn sigma(&self) -> Option<f64> {
        let free = self.measured.checked_sub(self.numbers).filter(|&n| n > 0)?;
        Some((self.squares / free as f64).sqrt())
    }

    /// The factor of a 95 % interval.
    pub fn t(&self) -> Option<f64> {
        self.measured.checked_sub(self.numbers).filter(|&n| n > 0).map(student_t_975)
    }
}

impl Slopes {
    /// Takes the slopes at `law`, which has these values of the terms.
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
            // Of several places where graphs may end, one counts at a time.
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

    /// The best law for the measured numbers of which `counts` says so.
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

    /// The best law with the same end of captured graphs as `like`.
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

    /// Seconds of a measured number by a solution.
    pub fn seconds(&self, at: usize, solution: &Solution) -> f64 {
        let by_terms = solution.terms.iter().zip(&solution.values).map(|(t, x)| self.slopes[self.column(t)][at] * x);
        self.known[at] + by_terms.sum::<f64>()
    }

    /// The index of a term's slopes.
    fn column(&self, term: &Term) -> usize {
        match term {
            Term::WithoutGraph(above) => {
                self.terms.len() + self.ends.iter().position(|end| end == above).expect("it was tried")
            }
            term => self.terms.iter().position(|t| t == term).expect("it has a column"),
        }
    }

    /// Slopes of a measured number in the terms of a solution, relative to `seconds`.
    pub fn row(&self, at: usize, solution: &Solution, seconds: f64) -> Vec<f64> {
        solution.terms.iter().map(|term| self.slopes[self.column(term)][at] / seconds).collect()
    }

    /// The measured numbers.
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }
}

/// A fitted law.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The law.
    pub law: Law,
    /// Its terms and their values.
    pub solution: Solution,
    /// The linear problem that it solves.
    pub slopes: Slopes,
}

impl Fit {
    /// Slopes at the law for other cells.
    ///
    /// # Errors
    /// A cell cannot be simulated, or the user interrupts.
    pub fn slopes_of(&self, server: &Server, cells: &[Cell]) -> Result<Slopes> {
        let Solution { terms, values, .. } = &self.solution;
        // Everything but the values of the terms is known.
        Slopes::at(server, cells, (&self.law, terms, &self.slopes.ends), values)
    }

    /// Fits a law to cells. `known` has the costs that are not fitted; `draft_is_known` says whether the draft's is one
    /// of these.
    ///
    /// # Errors
    /// A cell cannot be simulated, or the user interrupts.
    pub fn to(server: &Server, cells: &[Cell], known: &Law, draft_is_known: bool) -> Result<Fit> {
        let (terms, ends) = terms(cells, draft_is_known);
        let mut start = vec![0.0; terms.len()];
        // A pass takes at most the shortest time of a token.
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
