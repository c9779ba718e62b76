//! From a plan to a folder with complete results, whatever the folder already holds of them.

use crate::cells::{Assembled, Folder, Mode, Speed, assemble, run_cells};
use crate::inert::{self, Check, Inert};
use crate::plan::Plan;
use crate::report::INDEX;
use crate::{interrupt, report, table};
use foretoken_spec::problem::{Exit, Result};
use rayon::ThreadPool;
use std::path::PathBuf;

/// File of the comparison as text.
pub const REPORT_TEXT: &str = "report.txt";
/// File of the comparison as JSON.
pub const REPORT_JSON: &str = "report.json";

/// How results are made.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// What to do with a folder that is not empty.
    pub mode: Mode,
    /// Are figures and the page drawn?
    pub figures: bool,
    /// Which settings are tried for having no effect.
    pub check_settings: Check,
}

/// Results of this call.
pub struct Made {
    /// Tables and comparison.
    pub results: Assembled,
    /// Notes on settings that did nothing.
    pub notes: Vec<String>,
    /// Speed of the simulator.
    pub speed: Speed,
}

/// What a folder holds after [`complete`].
pub struct Complete {
    /// The folder.
    pub folder: Folder,
    /// Results of this call; absent when the folder was complete before.
    pub made: Option<Made>,
    /// Path of the page, if this call drew it.
    pub page: Option<PathBuf>,
}

/// Makes the folder at `path` hold the complete results of a plan, on the threads of `pool`. After
/// [`interrupt::listen`], Ctrl-C ends it in order and keeps finished cells.
///
/// # Errors
/// The experiment is wrong (found before anything runs), a cell cannot be run or kept, or the run is interrupted.
pub fn complete(plan: &Plan, path: PathBuf, how: How, pool: &ThreadPool) -> Result<Complete> {
    let (folder, complete) = Folder::open(path, plan, how.mode)?;
    if complete {
        let lacks_page = how.figures && !folder.report().join(INDEX).exists();
        let page = if lacks_page { Some(report::make_in(folder.path())?) } else { None };
        return Ok(Complete { folder, made: None, page });
    }
    interrupt::keeps("what was finished is kept", "run the same command with --resume to go on");
    let watch = interrupt::watch();
    let speed = pool.install(|| run_cells(plan, &folder, &interrupt::flag())).inspect_err(|problem| {
        if problem.exit == Exit::BadInput {
            folder.abandon();
        }
    })?;
    // Nothing watches the flag while tables are written: the first signal ends the program, and --resume makes the
    // tables again.
    drop(watch);
    interrupt::check()?;
    let (results, notes) = put_together(plan, &folder, how, pool)?;
    folder.complete(plan, &speed)?;
    let page = if how.figures { Some(report::make_in(folder.path())?) } else { None };
    Ok(Complete { folder, made: Some(Made { results, notes, speed }), page })
}

/// From finished cells to tables, figures and the comparison: everything but the manifest and the page. Returns notes
/// on settings that did nothing, too.
///
/// # Errors
/// A cell is gone, a file cannot be written, or the run is interrupted.
pub fn put_together(plan: &Plan, folder: &Folder, how: How, pool: &ThreadPool) -> Result<(Assembled, Vec<String>)> {
    let mut results = assemble(plan, folder, how.figures)?;
    let watch = interrupt::watch();
    let flag = interrupt::flag();
    let settings = pool.install(|| inert::look(plan, &results.numbers, how.check_settings, &flag))?;
    drop(watch);
    interrupt::check()?;
    let notes = settings.lines();
    results.comparison.settings = (settings != Inert::default()).then_some(settings);
    keep_report(&results, folder)?;
    Ok((results, notes))
}

/// Writes the comparison beside the tables.
///
/// # Errors
/// A file cannot be written.
pub fn keep_report(results: &Assembled, folder: &Folder) -> Result<()> {
    folder.write(REPORT_TEXT, table::render(&results.comparison, false).as_bytes())?;
    folder.write_json(REPORT_JSON, &results.comparison)
}
