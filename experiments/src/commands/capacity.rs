//! `foretoken capacity`: the highest rate of requests that each policy carries within the experiment's bounds.

use super::print;
use crate::cli::{CapacityArgs, Format};
use foretoken_capacity::kept::{CAPACITY_TEXT, PAGE, write};
use foretoken_capacity::plan::load;
use foretoken_capacity::run::run as search;
use foretoken_run::cells::{CAPACITY_JSON, Folder, Mode, Speed};
use foretoken_run::plan::Plan;
use foretoken_run::{interrupt, machine};
use foretoken_spec::problem::{Exit, Problem, Result};
use std::time::Instant;

/// Runs the command.
pub fn run(args: &CapacityArgs) -> Result<()> {
    let (plan, spec) = load(&args.sets, |sets| Plan::load(&args.file, sets))?;
    let path = args.output.clone().unwrap_or_else(|| plan.usual_folder("capacity-"));
    let mode = match (args.overwrite, args.resume) {
        (true, _) => Mode::Overwrite,
        (_, true) => Mode::Resume,
        _ => Mode::Fresh,
    };
    let (folder, complete) = Folder::open(path, &plan, mode)?;
    if !complete {
        interrupt::keeps("every rate that was tried is kept", "run the same command with --resume to go on");
        let watch = interrupt::watch();
        let threads = args.threads.map_or_else(|| machine::cores() as usize, usize::from);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|e| Problem::failed(format!("cannot start threads: {e}")))?;
        let started = Instant::now();
        let flag = interrupt::flag();
        let answer = pool.install(|| search(&plan, &spec, &folder, &flag)).inspect_err(|problem| {
            if problem.exit == Exit::BadInput {
                folder.abandon();
            }
        })?;
        drop(watch);
        write(&answer, &plan, &folder, !args.no_figures)?;
        let speed = Speed { cells: plan.cells() as u64, wall_s: started.elapsed().as_secs_f64(), ..Speed::default() };
        folder.complete(&plan, &speed)?;
    }
    let name = match args.format {
        Format::Table => CAPACITY_TEXT,
        Format::Json => CAPACITY_JSON,
    };
    let path = folder.path().join(name);
    print(&fs_err::read_to_string(&path).map_err(|e| Problem::failed(e.to_string()))?)?;
    if folder.path().join(PAGE).exists() {
        eprintln!("page: {}", folder.path().join(PAGE).display());
    }
    eprintln!("results: {}", folder.path().display());
    Ok(())
}
