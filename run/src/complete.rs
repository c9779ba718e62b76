//! Makes the runs of a plan until the results folder is complete. Does not make runs again whose results are already
//! stored in the folder.

use crate::cells::{Assembled, Folder, Mode, Speed, assemble, run_cells};
use crate::compare::REPORT_JSON;
use crate::inert::{self, Inert};
use crate::plan::Plan;
use crate::report::INDEX;
use crate::spec::problem::{Exit, Result};
use crate::table::{self, Width};
use crate::work::Work;
use crate::{host_tried, report};
use rayon::ThreadPool;
use std::path::PathBuf;

/// Name of the file with the comparison as text; its tables have the main columns only.
pub const REPORT_TEXT: &str = "report.txt";
/// Name of the file with the comparison as text; its tables have all columns.
pub const REPORT_WIDE: &str = "report-wide.txt";

/// Options of [`complete`]: how to make an experiment's results.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// What to do if the results folder is not empty: refuse, resume or overwrite.
    pub mode: Mode,
    /// Make the figures and the HTML page?
    pub figures: bool,
}

/// The results that one call made: a run of an experiment, or a merge of its shards.
pub struct Made {
    /// The comparison of the policies, and the digest of each run's results.
    pub results: Assembled,
    /// Lines for the user about settings that changed no number of the run.
    pub notes: Vec<String>,
    /// The simulator's speed in this call.
    pub speed: Speed,
}

/// The outcome of [`complete`]: the results folder, and what the call made in it.
pub struct Complete {
    /// The results folder, which is complete.
    pub folder: Folder,
    /// The results that this call made; `None` if the folder was complete already.
    pub made: Option<Made>,
    /// Path of the HTML page; `None` if this call did not make the page.
    pub page: Option<PathBuf>,
}

impl Complete {
    /// Makes the outcome for a results folder that was complete before the call. Makes the HTML page if it is missing:
    /// the page is written last, so a kill can leave the folder without it.
    pub fn before(folder: Folder, how: How) -> Result<Complete> {
        let lacks_page = how.figures && !folder.report().join(INDEX).exists();
        let page = if lacks_page { Some(report::make_in(folder.path())?) } else { None };
        Ok(Complete { folder, made: None, page })
    }
}

/// Runs a plan into the folder at `path`, on the threads of `pool`, and makes tables, figures, the comparison and the
/// HTML page. If the folder is complete already, only makes a missing page. If `work` is interrupted, returns an error;
/// the results of finished runs stay in the folder.
pub fn complete(plan: &Plan, path: PathBuf, how: How, pool: &ThreadPool, work: &Work) -> Result<Complete> {
    let (folder, complete) = Folder::open(path, plan, how.mode)?;
    if complete {
        return Complete::before(folder, how);
    }
    work.interrupt.keeps("what was finished is kept", "run the same command with --resume to go on");
    let watch = work.interrupt.watch();
    let speed = pool.install(|| run_cells(plan, &folder, work)).inspect_err(|problem| {
        if problem.exit == Exit::BadInput {
            folder.abandon();
        }
    })?;
    // From here on, the first Ctrl-C ends the program at once; `--resume` then makes the tables again.
    drop(watch);
    work.interrupt.check()?;
    let (mut results, notes) = put_together(plan, &folder, how, pool, work)?;
    folder.complete(plan, &speed)?;
    let page = report::make_of(folder.path(), &mut results)?;
    Ok(Complete { folder, made: Some(Made { results, notes, speed }), page })
}

/// Makes the results from finished cells, except the manifest and the HTML page: tables, figures and the comparison.
/// Also simulates the advised policy with the host time (scheduler, Python, kernel launches) of a real server. Returns
/// the results, and lines about settings that changed no number.
pub fn put_together(
    plan: &Plan,
    folder: &Folder,
    how: How,
    pool: &ThreadPool,
    work: &Work,
) -> Result<(Assembled, Vec<String>)> {
    let mut results = assemble(plan, folder, how.figures)?;
    let watch = work.interrupt.watch();
    let flag = work.interrupt.flag();
    let settings = inert::look(plan, &results.numbers)?;
    let band = pool.install(|| host_tried::look(plan, results.advised.as_ref(), flag))?;
    drop(watch);
    work.interrupt.check()?;
    results.comparison.host_band = band;
    let notes = settings.lines();
    results.comparison.settings = (settings != Inert::default()).then_some(settings);
    keep_report(&results, folder)?;
    Ok((results, notes))
}

/// Writes the comparison into the folder: as text with the main columns, as text with all columns, and as JSON.
pub fn keep_report(results: &Assembled, folder: &Folder) -> Result<()> {
    folder.write(REPORT_TEXT, table::render(&results.comparison, false, Width::Narrow).as_bytes())?;
    folder.write(REPORT_WIDE, table::render(&results.comparison, false, Width::Wide).as_bytes())?;
    folder.write_json(REPORT_JSON, &results.comparison)
}
