//! Counts the cells whose live runs repeat. This is counted before any error.

use super::bounds_of_cells::QUEUES;
use super::cell::CellReport;
use super::piece_report::Undecided;
use crate::numbers::{E2E, TPOT};
use serde::Serialize;

/// The numbers in which repeats must agree.
const NUMBERS: [&str; 2] = [TPOT, E2E];

/// A load that is a share of the policies' own service rates.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadName {
    /// The share of the service rate.
    pub share: f64,
    /// The load as text.
    pub name: String,
}

/// The cells at one share of the policies' own service rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Repeats {
    /// The share of the service rate.
    pub share: f64,
    /// Number of cells at this share.
    pub cells: u64,
    /// Number of cells whose repeats agree in mean TPOT and mean E2E.
    pub agree: u64,
    /// Number of cells without a piece that counts.
    pub undecided: u64,
    /// The distance up to which repeats agree.
    pub tolerance: f64,
}

/// Counts the cells at each of these loads at which E2E has a bound.
pub fn repeats(cells: &[CellReport], undecided: &[Undecided], loads: &[LoadName], tolerance: f64) -> Vec<Repeats> {
    let mut loads: Vec<&LoadName> = loads.iter().filter(|load| load.share <= QUEUES).collect();
    loads.sort_unstable_by(|a, b| a.share.total_cmp(&b.share));
    loads.dedup();
    let agrees =
        |cell: &CellReport| NUMBERS.iter().all(|number| cell.row(number).is_some_and(|row| row.decided(tolerance)));
    let count = |load: &LoadName| {
        let own: Vec<&CellReport> = cells.iter().filter(|c| c.load == load.name).collect();
        let undecided = undecided.iter().filter(|u| u.load == load.name).count() as u64;
        let agree = own.iter().filter(|c| agrees(c)).count() as u64;
        Repeats { share: load.share, cells: own.len() as u64 + undecided, agree, undecided, tolerance }
    };
    loads.into_iter().map(count).filter(|r| r.cells > 0).collect()
}

/// Summary as text; `None` if no load was counted.
pub fn words(all: &[Repeats]) -> Option<String> {
    let first = all.first()?;
    let each = all.iter().map(|r| {
        let undecided = if r.undecided > 0 { format!(" ({} not decided)", r.undecided) } else { String::new() };
        format!("in {} of {} cells at {}{undecided}", r.agree, r.cells, r.share)
    });
    let each: Vec<String> = each.collect();
    let tolerance = first.tolerance * 100.0;
    Some(format!("repeats agree within {tolerance:.0} % (mean TPOT and mean E2E) {}", each.join(", ")))
}
