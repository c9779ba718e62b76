//! Counts the cells whose two live runs agree. If two live runs of the same requests differ by 5 %, an error of a
//! simulation below 5 % cannot be seen.

use super::bounds_of_cells::QUEUES;
use super::cell::CellReport;
use super::piece_report::Undecided;
use crate::compare::numbers::{E2E, TPOT};
use serde::Serialize;

/// The numbers in which the two live runs of a cell must agree.
const NUMBERS: [&str; 2] = [TPOT, E2E];

/// A load of a validation that was set as a share of each policy's service rate.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadName {
    /// The load as a share of the policy's service rate.
    pub share: f64,
    /// The load as text, such as `0.8 of its service rate`.
    pub name: String,
}

/// At one load: in how many cells (policies) the two live runs agree.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Repeats {
    /// The load as a share of each policy's service rate.
    pub share: f64,
    /// Number of cells (policies) at this load.
    pub cells: u64,
    /// Number of cells whose two live runs agree in mean TPOT and mean E2E.
    pub agree: u64,
    /// Number of cells of which no piece was finished at a steady machine speed.
    pub undecided: u64,
    /// The tolerance, as a share: two live runs agree if their values of mean TPOT, and of mean E2E, differ by at most
    /// this share.
    pub tolerance: f64,
}

/// For each of `loads`: counts the cells (policies) at this load, and the cells whose two live runs agree within
/// `tolerance`. Loads above [`QUEUES`], at which E2E has no bound, are left out.
pub fn repeats(cells: &[CellReport], undecided: &[Undecided], loads: &[LoadName], tolerance: f64) -> Vec<Repeats> {
    let mut loads: Vec<&LoadName> = loads.iter().filter(|load| load.share <= QUEUES).collect();
    loads.sort_unstable_by(|a, b| a.share.total_cmp(&b.share));
    loads.dedup();
    let agrees =
        |cell: &CellReport| NUMBERS.iter().all(|number| cell.row(number).is_some_and(|row| row.decided(tolerance)));
    let count = |load: &LoadName| {
        let at_load: Vec<&CellReport> = cells.iter().filter(|c| c.load == load.name).collect();
        let undecided = undecided.iter().filter(|u| u.load == load.name).count() as u64;
        let agree = at_load.iter().filter(|c| agrees(c)).count() as u64;
        Repeats { share: load.share, cells: at_load.len() as u64 + undecided, agree, undecided, tolerance }
    };
    loads.into_iter().map(count).filter(|r| r.cells > 0).collect()
}

/// For each load, the number of policies whose two live runs agree, as a line of text; `None` if there is no load.
pub fn words(repeats: &[Repeats]) -> Option<String> {
    let first = repeats.first()?;
    let texts = repeats.iter().map(|r| {
        let undecided = if r.undecided > 0 { format!(" ({} not decided)", r.undecided) } else { String::new() };
        format!("in {} of {} cells at {}{undecided}", r.agree, r.cells, r.share)
    });
    let texts: Vec<String> = texts.collect();
    let tolerance = first.tolerance * 100.0;
    Some(format!("repeats agree within {tolerance:.0} % (mean TPOT and mean E2E) {}", texts.join(", ")))
}
