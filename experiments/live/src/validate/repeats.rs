//! Do live runs repeat? Counted before any error is looked at: where live and live again are far apart, nothing is decided by it.

use super::compare::CellReport;
use super::standing::Undecided;
use super::verdict::QUEUES;
use serde::{Deserialize, Serialize};

/// Two runs agree when they are no farther apart than this.
pub const AGREE: f64 = 0.05;
/// In these numbers, each of them.
pub const NUMBERS: [&str; 2] = ["TPOT, mean", "E2E, mean"];

/// The cells at one share of their own service rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    /// The share.
    pub share: f64,
    /// Cells.
    pub cells: u64,
    /// Those of them whose repeats agree.
    pub agree: u64,
    /// Those that are not decided.
    pub undecided: u64,
}

/// Of each share up to which E2E is held to a bound. Only runs at shares of the policy's own rate are counted.
pub fn repeats(cells: &[CellReport], undecided: &[Undecided], loads: &[f64]) -> Vec<Repeats> {
    let mut shares: Vec<f64> = loads.iter().copied().filter(|&share| share <= QUEUES).collect();
    shares.sort_unstable_by(f64::total_cmp);
    shares.dedup();
    let of = |share: f64| {
        let name = super::runs::Load::Own(share).to_string();
        let at = |load: &str| load == name;
        let own: Vec<&CellReport> = cells.iter().filter(|c| at(&c.load)).collect();
        let undecided = undecided.iter().filter(|u| at(&u.load)).count() as u64;
        let agree = own.iter().filter(|c| agrees(c)).count() as u64;
        Repeats { share, cells: own.len() as u64 + undecided, agree, undecided }
    };
    shares.into_iter().map(of).filter(|r| r.cells > 0).collect()
}

/// Are live and live again near each other in both numbers?
fn agrees(cell: &CellReport) -> bool {
    NUMBERS.iter().all(|number| cell.row(number).and_then(|r| r.live_against_live).is_some_and(|apart| apart <= AGREE))
}

/// In words; `None` where nothing was repeated.
pub fn words(all: &[Repeats]) -> Option<String> {
    let each = all.iter().map(|r| {
        let undecided = if r.undecided > 0 { format!(" ({} not decided)", r.undecided) } else { String::new() };
        format!("in {} of {} cells at {}{undecided}", r.agree, r.cells, r.share)
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty())
        .then(|| format!("repeats agree within {:.0} % (mean TPOT and mean E2E) {}", AGREE * 100.0, each.join(", ")))
}
