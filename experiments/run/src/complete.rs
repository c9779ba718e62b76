//! From a plan to complete results in a folder, whatever the folder holds of them.

use crate::cells::{Assembled, Folder, Mode, Speed, assemble, run_cells};
use crate::inert::{self, Check, Inert};
use crate::plan::Plan;
use crate::report::INDEX;
use crate::{interrupt, report, table};
use foretoken_spec::problem::{Exit, Result};
use rayon::ThreadPool;
use std::path::PathBuf;

/// The comparison in words.
pub const REPORT_TEXT: &str = "report.txt";
/// The comparison as data.
pub const REPORT_JSON: &str = "report.json";

/// How results are made.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// What to do with a folder that is not empty.
    pub mode: Mode,
    /// Are figures and the page drawn?
    pub figures: bool,
    /// When the run is tried again without its settings.
    pub check_settings: Check,
}

/// Results that were made just now.
pub struct Made {
    /// Them.
    pub results: Assembled,
    /// What is said of settings that did nothing.
    pub notes: Vec<String>,
    /// How fast the simulator was.
    pub speed: Speed,
}

/// What a folder holds after [`complete`].
pub struct Complete {
    /// The folder.
    pub folder: Folder,
    /// What was made just now; absent when the folder was complete before.
    pub made: Option<Made>,
    /// The page, if it was drawn just now.
    pub page: Option<PathBuf>,
}

/// Makes the folder at `path` hold the complete results of a plan, on the threads of `pool`. A Ctrl-C ends it in order once
/// [`interrupt::listen`] was called; what is finished is kept.
///
/// # Errors
/// What is wrong with the experiment shows before anything runs; a cell that cannot be run or kept; an interrupt.
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
    // While tables are written nobody looks: the first signal ends it, and --resume puts the cells together again.
    drop(watch);
    interrupt::check()?;
    let (results, notes) = put_together(plan, &folder, how, pool)?;
    folder.complete(plan, &speed)?;
    let page = if how.figures { Some(report::make_in(folder.path())?) } else { None };
    Ok(Complete { folder, made: Some(Made { results, notes, speed }), page })
}

/// From finished cells to tables, figures and the comparison: everything but the manifest and the page. Says what is to be told of settings that
/// did nothing, too.
///
/// # Errors
/// A cell is gone; something cannot be written; an interrupt.
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

/// Keeps the comparison beside the tables.
///
/// # Errors
/// When it cannot be written.
pub fn keep_report(results: &Assembled, folder: &Folder) -> Result<()> {
    folder.write(REPORT_TEXT, table::render(&results.comparison, false).as_bytes())?;
    folder.write_json(REPORT_JSON, &results.comparison)
}
