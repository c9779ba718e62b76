//! Costs learned from the live runs of the other cells: no cell is predicted with its own measurements.

use super::gather::Gather;
use super::pace::Pace;
use super::standing::PieceReport;
use super::tapes::Tapes;
use crate::learned::Learned;
use foretoken_sim::latency::LatencySpec;
use foretoken_spec::problem::Result;

/// The costs learned from the pieces of each cell that count.
pub struct Others(Vec<Learned>);

impl Others {
    /// Learns from the pieces of all cells, each divided by its pace.
    pub fn of(tapes: &Tapes, cells: &[Vec<PieceReport>], paces: &[Vec<Pace>]) -> Result<Others> {
        // The notes about tapes are dropped here; they are reported by the comparison.
        let mut gather = Gather::from(tapes);
        let mut all = Vec::new();
        for (pieces, paces) in cells.iter().zip(paces) {
            let mut learned = Learned::default();
            for (n, tapes) in gather.of(pieces)?.0 {
                tapes.iter().for_each(|tape| learned.add(tape, |role, tokens| paces[n].factor(role, tokens)));
            }
            all.push(learned);
        }
        Ok(Others(all))
    }

    /// The costs of (target, draft) passes learned from all cells except `cell`. `None` if they lack passes that this
    /// cell ran.
    pub fn than(&self, cell: usize) -> Option<(LatencySpec, LatencySpec)> {
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
        // The first cell ran at another speed than the others.
        let others = Others(vec![learned(2, 9.0), learned(2, 1.0), learned(2, 1.0)]);
        let shape = PassShape { batched: 8, context: 1000, pairs: 8000 };
        let at = |cell| others.than(cell).unwrap().0.build().pass(shape).as_s();
        assert!((at(0) / 6.2e-4 - 1.0).abs() < 0.02, "{}", at(0));
        assert!(at(1) > 2.0 * at(0), "a cell is predicted by all others");
    }

    #[test]
    fn what_the_others_did_not_run_they_do_not_predict() {
        let others = Others(vec![learned(2, 1.0), learned(0, 1.0)]);
        assert!(others.than(0).is_none(), "no other run drafted");
        assert!(others.than(1).is_some());
        assert!(Others(vec![learned(2, 1.0)]).than(0).is_none(), "there is no other run");
    }
}
