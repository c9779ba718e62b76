//! `foretoken capacity`: the highest rate of requests at which each policy keeps the experiment's bounds.

use super::print;
use crate::cli::{CapacityArgs, Format};
use foretoken_capacity::kept::{CAPACITY_TEXT, PAGE};
use foretoken_capacity::plan::load;
use foretoken_capacity::run::complete;
use foretoken_run::cells::{CAPACITY_JSON, Mode};
use foretoken_run::load::read_document;
use foretoken_run::machine;
use foretoken_spec::problem::{Problem, Result};
use std::path::Path;

/// Runs the command with its arguments.
pub fn run(args: &CapacityArgs) -> Result<()> {
    let document = read_document(&args.file, &args.sets)?;
    let (plan, spec) = load(&document, args.file.parent().unwrap_or(Path::new("")))?;
    plan.warnings().iter().for_each(|w| eprintln!("warning: {w}"));
    let path = args.output.clone().unwrap_or_else(|| plan.usual_folder("capacity-"));
    let mode = match (args.overwrite, args.resume) {
        (true, _) => Mode::Overwrite,
        (_, true) => Mode::Resume,
        _ => Mode::Fresh,
    };
    let pool = machine::pool(args.threads.map(usize::from), plan.cells())?;
    let folder = complete(&plan, &spec, path, mode, !args.no_figures, &pool)?;
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
