//! Chooses which costs the rows of a table of benchmark results determine. A cost is fitted only if no combination of
//! the costs before it explains the same differences between rows.

use super::cell::{Accepted, Cell, CellLoad};
use super::law::Term;
use nalgebra::DVector;

/// A cost whose differences between rows are, up to this share of its size, a combination of other costs is not
/// determined.
const APART: f64 = 0.02;
/// The cost `WithoutGraph` (host time of steps that are too large for a captured CUDA graph) is fitted only with at
/// least this number of loads with draft tokens. A straight line fits fewer loads equally well.
const LOADS_FOR_A_STEP: usize = 4;
/// The order in which texts and solutions have the costs.
const ORDER: [Term; 6] =
    [Term::Pass, Term::Token, Term::DraftPass, Term::Speculating, Term::SpeculatingRequest, Term::Frontend];

/// What the fit has to find of the time of draft passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drafter {
    /// The experiment states the cost of a draft pass.
    Stated,
    /// The cost of a draft pass is fitted, and a round of length K has K passes.
    PassesByLength,
    /// The cost of a draft pass is fitted, and the number of passes does not depend on K (DFlash, DSpark).
    Block,
}

/// The costs whose values the rows `cells` determine, without the costs in `without`.
///
/// A step of a closed loop of n clients has one target pass, n (1 + K) tokens and the tokens of the prompts that start
/// meanwhile, K draft passes, and the host's time for one step and for n requests. So both the loads and the lengths K
/// vary the tokens of a step. If several loads are there, the cost of a token comes first, since plain decoding shows
/// it. At one load it comes last: then only three lengths tell it from the host's time for a step.
pub fn determined(cells: &[&Cell], drafter: Drafter, without: &[Term]) -> Vec<Term> {
    let sizes: Vec<f64> = cells.iter().map(|c| size(c)).collect();
    let several = sizes.iter().any(|n| *n != sizes[0]);
    let steps: [Term; 5] = match several {
        true => [Term::Pass, Term::Token, Term::Speculating, Term::DraftPass, Term::SpeculatingRequest],
        false => [Term::Pass, Term::Speculating, Term::DraftPass, Term::Token, Term::SpeculatingRequest],
    };
    // At one load with drafts, the host's time for a request is that for a step.
    let mut drafting = cells.iter().filter(|c| c.k > 0).map(|c| size(c));
    let first = drafting.next();
    let one_load = !drafting.any(|n| Some(n) != first);
    let cannot_be = |term: Term| match term {
        Term::DraftPass => drafter == Drafter::Stated,
        Term::SpeculatingRequest => one_load,
        _ => false,
    };
    let mut basis: Vec<DVector<f64>> = Vec::new();
    let mut all = Vec::new();
    for term in steps.into_iter().filter(|term| !cannot_be(*term) && !without.contains(term)) {
        let column = DVector::from_iterator(cells.len(), cells.iter().map(|c| in_a_step(c, term, drafter)));
        let mut rest = column.clone();
        basis.iter().for_each(|b| rest -= b * b.dot(&column));
        if rest.norm() > APART * column.norm() {
            basis.push(rest.normalize());
            all.push(term);
        }
    }
    if cells.iter().any(|c| c.ttft_s.is_some()) && !without.contains(&Term::Frontend) {
        all.push(Term::Frontend);
    }
    ORDER.into_iter().filter(|term| all.contains(term)).collect()
}

/// How often the cost `term` occurs in a step of the row `cell`.
fn in_a_step(cell: &Cell, term: Term, drafter: Drafter) -> f64 {
    let (n, k) = (size(cell), f64::from(cell.k));
    let drafts = if cell.k > 0 { 1.0 } else { 0.0 };
    match term {
        Term::Pass => 1.0,
        Term::Token => {
            let a_round = 1.0 + cell.accepted.as_ref().map_or(0.0, Accepted::mean);
            n * (1.0 + k + cell.input * a_round / cell.output)
        }
        Term::DraftPass if drafter == Drafter::Block => drafts,
        Term::DraftPass => k,
        Term::Speculating => drafts,
        Term::SpeculatingRequest => n * drafts,
        Term::WithoutGraph(_) | Term::Frontend => 0.0,
    }
}

/// A number that grows with the requests of a step. For open arrivals it is the rate, since their number of requests
/// in a step is not known before the fit.
fn size(cell: &Cell) -> f64 {
    match cell.load {
        CellLoad::Clients(n) => f64::from(n),
        CellLoad::Rate(rate) => rate,
    }
}

/// The numbers of requests that are tried as the size of the largest captured CUDA graph (see
/// [`Term::WithoutGraph`]), if the fit to the rows `cells` has the costs `terms`.
pub fn ends(cells: &[Cell], terms: &[Term]) -> Vec<u32> {
    let clients = |c: &Cell| match c.load {
        CellLoad::Clients(n) => Some(n),
        CellLoad::Rate(_) => None,
    };
    let mut drafts: Vec<u32> = cells.iter().filter(|c| c.k > 0).filter_map(clients).collect();
    drafts.sort_unstable();
    drafts.dedup();
    let between = |w: &[u32]| ((f64::from(w[0]) * f64::from(w[1])).sqrt().round() as u32).clamp(w[0], w[1] - 1);
    match drafts.len() >= LOADS_FOR_A_STEP && terms.contains(&Term::SpeculatingRequest) {
        true => drafts.windows(2).map(between).collect(),
        false => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(load: CellLoad, k: u32) -> Cell {
        Cell {
            line: 2,
            from: None,
            load,
            k,
            input: 300.0,
            output: 150.0,
            requests: None,
            max_num_seqs: None,
            tok_s: Some(200.0),
            ttft_s: None,
            tpot_s: Some(5e-3),
            accepted: (k > 0).then_some(Accepted::Mean(0.5)),
        }
    }

    /// The costs that rows with these numbers of clients and draft lengths determine.
    fn of(rows: &[(u32, u32)], drafter: Drafter) -> Vec<Term> {
        let cells: Vec<Cell> = rows.iter().map(|&(n, k)| cell(CellLoad::Clients(n), k)).collect();
        determined(&cells.iter().collect::<Vec<_>>(), drafter, &[])
    }

    #[test]
    fn rows_determine_costs_that_change_between_them() {
        use Drafter::{Block, PassesByLength, Stated};
        use Term::{DraftPass, Pass, Speculating, SpeculatingRequest, Token};
        assert_eq!(of(&[(4, 0)], Stated), [Pass]);
        assert_eq!(of(&[(4, 3)], Stated), [Pass], "no row without drafts");
        assert_eq!(of(&[(4, 0), (4, 0)], Stated), [Pass], "one load twice");
        assert_eq!(of(&[(1, 0), (4, 0)], Stated), [Pass, Token]);
        assert_eq!(of(&[(4, 0), (4, 3)], Stated), [Pass, Speculating]);
        assert_eq!(of(&[(1, 0), (4, 3)], Stated), [Pass, Token], "two rows determine two costs");
        assert_eq!(of(&[(4, 0), (4, 3)], PassesByLength), [Pass, Speculating], "one draft length");
        assert_eq!(of(&[(4, 1), (4, 3)], PassesByLength), [Pass, DraftPass], "no row without drafts");
        assert_eq!(of(&[(1, 0), (1, 3), (4, 3)], Stated), [Pass, Token, Speculating]);
        assert_eq!(of(&[(1, 0), (4, 0), (1, 3), (4, 3)], Stated), [Pass, Token, Speculating, SpeculatingRequest]);
        assert_eq!(of(&[(1, 3), (4, 3), (8, 3)], Stated), [Pass, Token], "one length at several loads");
        let grid = [(1, 0), (1, 1), (1, 3), (8, 0), (8, 1), (8, 3)];
        assert_eq!(of(&grid, PassesByLength), [Pass, Token, DraftPass, Speculating, SpeculatingRequest]);
        assert_eq!(of(&grid, Block), [Pass, Token, Speculating, SpeculatingRequest], "passes are part of the step");
    }

    #[test]
    fn lengths_at_one_load_determine_the_cost_of_a_token() {
        use Drafter::{Block, PassesByLength, Stated};
        use Term::{DraftPass, Pass, Speculating, Token};
        let ladder = [(1, 0), (1, 1), (1, 3), (1, 7)];
        assert_eq!(of(&ladder, Stated), [Pass, Token, Speculating]);
        assert_eq!(of(&ladder, Block), [Pass, Token, Speculating], "a block has as many passes at any length");
        assert_eq!(of(&ladder, PassesByLength), [Pass, DraftPass, Speculating], "a pass and a token grow alike");
        assert_eq!(of(&ladder[1..], Stated), [Pass, Token], "without plain decoding");
        assert_eq!(of(&ladder[..3], Stated), [Pass, Token, Speculating]);
        let cells: Vec<Cell> = ladder.iter().map(|&(n, k)| cell(CellLoad::Clients(n), k)).collect();
        let less = determined(&cells.iter().collect::<Vec<_>>(), Stated, &[Speculating]);
        assert_eq!(less, [Pass, Token]);
    }

    #[test]
    fn rates_vary_the_requests_of_a_step() {
        let rows = [cell(CellLoad::Rate(1.0), 0), Cell { ttft_s: Some(0.1), ..cell(CellLoad::Rate(2.0), 0) }];
        let found = determined(&rows.iter().collect::<Vec<_>>(), Drafter::Stated, &[]);
        assert_eq!(found, [Term::Pass, Term::Token, Term::Frontend]);
    }
}
