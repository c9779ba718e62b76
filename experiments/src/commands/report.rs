//! `foretoken report`: makes the page of a results folder again, optionally compared with other results.

use super::print;
use crate::cli::ReportArgs;
use foretoken_run::cells::Folder;
use foretoken_run::report::{Results, write};
use foretoken_spec::problem::Result;

/// Runs the command with its arguments.
pub fn run(args: &ReportArgs) -> Result<()> {
    let results = Results::open(&args.folder)?;
    let baseline = args.baseline.as_deref().map(Results::open).transpose()?;
    let to = args.output.clone().unwrap_or_else(|| Folder::at(args.folder.clone()).report());
    let partial = results.partial.clone();
    let page = write(results, baseline, &to)?;
    if let Some(partial) = partial {
        eprintln!("warning: {partial}");
    }
    print(&format!("{}\n", page.display()))
}
