//! `foretoken run`: an experiment from file to comparison.

use super::print;
use crate::cli::{Format, RunArgs};
use crate::plan::Plan;
use crate::problem::{Problem, Result};
use crate::run::{Assembled, Folder, Mode, assemble, run_cells};
use crate::table;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const REPORT_TEXT: &str = "report.txt";
const REPORT_JSON: &str = "report.json";

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<()> {
    let plan = Plan::load(&args.file, &args.sets)?;
    let path = args.output.clone().unwrap_or_else(|| default_folder(&plan));
    let mode = match (args.resume, args.overwrite) {
        (true, _) => Mode::Resume,
        (_, true) => Mode::Overwrite,
        _ => Mode::Fresh,
    };
    let (folder, complete) = Folder::open(path, &plan, mode)?;
    if complete {
        eprintln!("{} is complete: nothing to run", folder.path().display());
        return print_report(args, &folder);
    }
    let interrupt = on_interrupt()?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.threads.map_or(0, usize::from))
        .build()
        .map_err(|e| Problem::failed(format!("cannot start threads: {e}")))?;
    let speed = pool.install(|| run_cells(&plan, &folder, &interrupt))?;
    let results = assemble(&plan, &folder, !args.no_figures)?;
    keep_report(&results, &folder)?;
    folder.complete(&plan, &speed)?;

    results.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    match args.format {
        Format::Table => print(&table::render(&results.comparison, args.show_implied))?,
        Format::Json => print_report(args, &folder)?,
    }
    eprintln!("results: {}\nsimulator: {speed}", folder.path().display());
    Ok(())
}

fn default_folder(plan: &Plan) -> PathBuf {
    PathBuf::from("results").join(format!("{}-{}", plan.name, &plan.digest()[..8]))
}

/// Keeps the comparison beside the tables.
fn keep_report(results: &Assembled, folder: &Folder) -> Result<()> {
    let json = serde_json::to_string_pretty(&results.comparison).expect("plain data always serialises");
    folder.write(REPORT_TEXT, table::render(&results.comparison, false).as_bytes())?;
    folder.write(REPORT_JSON, (json + "\n").as_bytes())
}

/// Prints the comparison that the folder keeps.
fn print_report(args: &RunArgs, folder: &Folder) -> Result<()> {
    let name = match args.format {
        Format::Table => REPORT_TEXT,
        Format::Json => REPORT_JSON,
    };
    let text = fs_err::read_to_string(folder.path().join(name)).map_err(|e| Problem::failed(e.to_string()))?;
    print(&text)
}

/// Ctrl-C and SIGTERM end the run cleanly; a second one ends it at once.
fn on_interrupt() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(crate::problem::Exit::Interrupted as i32);
        }
    })
    .map_err(|e| Problem::failed(format!("cannot listen for Ctrl-C: {e}")))?;
    Ok(flag)
}
