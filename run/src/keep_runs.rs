//! Writes the results of the live or observed runs of an experiment: tables, comparison, manifest and HTML page, as for
//! simulated runs.

use crate::cells::{Assembled, Folder, Speed, assemble};
use crate::complete::keep_report;
use crate::plan::Plan;
use crate::report;
use crate::spec::problem::Result;
use std::path::PathBuf;

/// The live or observed runs whose results are to be written.
pub struct RunsMade<'a> {
    /// Number of finished runs. Cells run in the order of the plan, so the finished ones are the first cells of the
    /// plan.
    pub cells: usize,
    /// Are all runs of the experiment finished?
    pub whole: bool,
    /// A note on runs that are missing or cut short; `None` if there are none.
    pub partial: Option<String>,
    /// Number of runs and the time that they took, for the manifest.
    pub speed: &'a Speed,
    /// Make the figures and the HTML page?
    pub figures: bool,
}

/// What [`keep`] returns: the results that it wrote, and the path of their page.
pub struct Kept {
    /// The comparison of the policies and the digest of each run; `None` if no run is finished.
    pub results: Option<Assembled>,
    /// Path of the HTML page with the results; `None` if it was not made.
    pub page: Option<PathBuf>,
}

/// Writes the results of live or observed runs into `folder`, in which the finished runs are stored. Reduces `plan` to
/// finished runs (see [`Plan::shorten`]).
pub fn keep(plan: &mut Plan, folder: &Folder, made: RunsMade) -> Result<Kept> {
    let count = plan.cells();
    let mut kept = Kept { results: None, page: None };
    if plan.shorten(made.cells) {
        let mut results = assemble(plan, folder, made.figures)?;
        results.comparison.partial = made.partial;
        keep_report(&results, folder)?;
        kept.results = Some(results);
    }
    if made.whole {
        folder.complete(plan, made.speed)?;
    } else {
        folder.keep_part(plan, count, made.speed)?;
    }
    if made.cells > 0 && made.figures && plan.variants[0].experiment.output.figures {
        kept.page = Some(report::make_in(folder.path())?);
    }
    Ok(kept)
}
