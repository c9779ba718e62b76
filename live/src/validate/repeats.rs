//! Checks whether live runs repeat. This is counted before any error: if a run and its repeat differ too much, nothing
//! is decided by them.

use super::compare::CellReport;
use super::standing::Undecided;
use super::verdict::QUEUES;
use serde::{Deserialize, Serialize};

/// Largest relative difference at which two runs agree.
pub const AGREE: f64 = 0.05;
/// The numbers in which they must agree.
pub const NUMBERS: [&str; 2] = ["TPOT, mean", "E2E, mean"];

/// The cells at one share of the policies' own service rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    /// The share of the service rate.
    pub share: f64,
    /// Number of cells at this share.
    pub cells: u64,
    /// Number of cells whose repeats agree.
    pub agree: u64,
    /// Number of cells without a piece that counts.
    pub undecided: u64,
}

/// Counts the cells at each share at which E2E has a bound. Only loads set by the policy's own service rate are
/// counted.
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

/// True if the two live runs agree in all of [`NUMBERS`].
fn agrees(cell: &CellReport) -> bool {
    NUMBERS.iter().all(|number| cell.row(number).and_then(|r| r.live_against_live).is_some_and(|apart| apart <= AGREE))
}

/// Summary as text; `None` if no run was repeated.
pub fn words(all: &[Repeats]) -> Option<String> {
    let each = all.iter().map(|r| {
        let undecided = if r.undecided > 0 { format!(" ({} not decided)", r.undecided) } else { String::new() };
        format!("in {} of {} cells at {}{undecided}", r.agree, r.cells, r.share)
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty())
        .then(|| format!("repeats agree within {:.0} % (mean TPOT and mean E2E) {}", AGREE * 100.0, each.join(", ")))
}
