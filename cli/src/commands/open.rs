//! `foretoken open`: shows the page of a results folder in the browser.

use super::print;
use clap::Args;
use foretoken_run::cells::Folder;
use foretoken_run::report::INDEX;
use foretoken_run::spec::problem::{Problem, Result};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub const EXAMPLES: &str = "Examples:
  foretoken open results/quickstart-1a2b3c4d
  foretoken open calibrated/recommendation.html";

#[derive(Debug, Args)]
pub struct OpenArgs {
    /// A page, or the folder that a command wrote its results to; of several pages the newest is shown
    #[arg(value_name = "DIR|PAGE.html")]
    pub path: PathBuf,
}

/// Prints the path of the page and opens the page in the browser.
pub fn run(args: &OpenArgs) -> Result<()> {
    let page = page_of(&args.path)?;
    print(&format!("{}\n", page.display()))?;
    open::that_detached(&page).map_err(|e| {
        let problem = Problem::failed(format!("no program here opens {}: {e}", page.display()));
        problem.help("copy the page to a machine with a browser; it needs no other file but those beside it")
    })
}

/// The path of the page to show: `path` itself if it is a file, else the newest page in the folder `path`.
fn page_of(path: &Path) -> Result<PathBuf> {
    if path.is_file() {
        return match path.extension() {
            Some(e) if e == "html" => Ok(path.to_owned()),
            _ => Err(Problem::bad_input(format!("{} is no page: pages end in .html", path.display()))
                .help("give a results folder or a page in it")),
        };
    }
    if !path.is_dir() {
        let problem = Problem::bad_input(format!("there is no folder and no page {}", path.display()));
        return Err(problem.help("give a results folder, such as one that `foretoken run` names at its end"));
    }
    let unread = |e| Problem::failed(format!("cannot look into {}: {e}", path.display()));
    let files = std::fs::read_dir(path).map_err(unread)?.flatten().map(|entry| entry.path());
    let in_report = Folder::at(path.to_owned()).report().join(INDEX);
    let pages = files.chain([in_report]).filter(|page| page.extension().is_some_and(|e| e == "html") && page.is_file());
    let written = |page: &PathBuf| page.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    pages.max_by_key(written).ok_or_else(|| {
        let problem = Problem::bad_input(format!("{} has no page", path.display()));
        problem.help(format!("make it: foretoken report {}", path.display()))
    })
}
