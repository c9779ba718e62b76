//! `foretoken run`: an experiment from file to comparison.

use super::print;
use crate::cli::{Format, RunArgs};
use crate::plan::Plan;
use crate::problem::{Exit, Problem, Result};
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
        say_what_is_missing(args, &plan, &folder);
        return print_report(args, &folder);
    }
    let interrupt = on_interrupt()?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.threads.map_or(0, usize::from))
        .build()
        .map_err(|e| Problem::failed(format!("cannot start threads: {e}")))?;
    let speed = pool.install(|| run_cells(&plan, &folder, &interrupt)).inspect_err(|problem| {
        if problem.exit == Exit::BadInput {
            folder.abandon();
        }
    })?;
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

/// What was asked for and cannot be made from finished results: the cells it takes are gone.
fn say_what_is_missing(args: &RunArgs, plan: &Plan, folder: &Folder) {
    let figures = plan.variants[0].experiment.output.figures && !args.no_figures;
    if figures && !folder.figures().exists() {
        eprintln!("note: it was run without figures: run with --overwrite to draw them");
    }
    if args.show_implied && args.format == Format::Table && plan.policies[plan.baseline].implied {
        eprintln!("note: the table it keeps lacks the implied run: --format json has it, and so has --overwrite");
    }
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
