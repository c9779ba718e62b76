//! Predicts a cell with costs that are fitted to the live runs of all other cells, and never to the live runs of the
//! predicted cell.

use super::machine_speed::Pace;
use super::read_tapes::{TapeReader, Tapes};
use crate::learned::Learned;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_run::spec::problem::Result;
use foretoken_servers::compare::live_runs::PieceReport;
use foretoken_sim::Pair;

/// For each cell: the timed passes of the pieces that the comparison uses.
pub struct CostsOfOtherCells(Vec<Learned>);

impl CostsOfOtherCells {
    /// Collects the timed passes of all cells. `paces` has, for each piece of each cell, the factor by which passes
    /// took longer than usual. Pass times are divided by this factor.
    pub fn of(tapes: &Tapes, cells: &[Vec<PieceReport>], paces: &[Vec<Pace>]) -> Result<CostsOfOtherCells> {
        // This reader's notes about tapes are dropped, because the comparison reads the same tapes and reports the same
        // notes.
        let mut reader = TapeReader::new(tapes);
        let mut by_cell = Vec::new();
        for (pieces, paces) in cells.iter().zip(paces) {
            let mut learned = Learned::default();
            for piece in reader.read_cell(pieces)?.pieces {
                let pace = &paces[piece.index];
                piece.tapes.iter().for_each(|tape| learned.add(tape, |role, tokens| pace.factor(role, tokens)));
            }
            by_cell.push(learned);
        }
        Ok(CostsOfOtherCells(by_cell))
    }

    /// The pass costs fitted to all cells except `cell`. `None` if the other cells have no passes, or if they have no
    /// draft passes but `cell` drafted.
    pub fn for_cell(&self, cell: usize) -> Option<Pair<LatencySpec>> {
        let mut others = Learned::default();
        self.0.iter().enumerate().filter(|(at, _)| *at != cell).for_each(|(_, learned)| others.extend(learned));
        let drafts_unknown = others.draft.is_empty() && !self.0[cell].draft.is_empty();
        others.costs().filter(|_| !drafts_unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learned::testing::tape;
    use foretoken_sim::PassShape;

    fn learned(drafts: u64, slower: f64) -> Learned {
        let mut learned = Learned::default();
        learned.add(&tape(1, 500, drafts, slower), |_, _| 1.0);
        learned
    }

    #[test]
    fn a_cell_is_predicted_by_nothing_of_its_own() {
        // The passes of the first cell took nine times as long as the passes of the other cells.
        let others = CostsOfOtherCells(vec![learned(2, 9.0), learned(2, 1.0), learned(2, 1.0)]);
        let shape = PassShape { requests: 1, batched: 8, context: 1000, pairs: 8000 };
        let at = |cell| others.for_cell(cell).unwrap().target.build().pass(shape).as_s();
        assert!((at(0) / 6.2e-4 - 1.0).abs() < 0.02, "{}", at(0));
        assert!(at(1) > 2.0 * at(0), "a cell is predicted by all others");
    }

    #[test]
    fn drafts_that_no_other_cell_ran_are_not_predicted() {
        let others = CostsOfOtherCells(vec![learned(2, 1.0), learned(0, 1.0)]);
        assert!(others.for_cell(0).is_none(), "no other run drafted");
        assert!(others.for_cell(1).is_some());
        assert!(CostsOfOtherCells(vec![learned(2, 1.0)]).for_cell(0).is_none(), "there is no other run");
    }
}
