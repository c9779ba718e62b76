//! `foretoken explore`: writes the break-even explorer.

use super::print;
use crate::cli::ExploreArgs;
use crate::explorer::{PAGE, page};
use crate::problem::{Problem, Result};
use foretoken_report::Staged;

/// Writes the page and says where it is.
pub fn run(args: &ExploreArgs) -> Result<()> {
    let folder = &args.output;
    fs_err::create_dir_all(folder).map_err(|e| Problem::failed(e.to_string()).help("choose another folder with -o"))?;
    let path = folder.join(PAGE);
    Staged::write_all_to(&path, page(None).as_bytes()).map_err(|e| Problem::failed(e.to_string()))?;
    print(&format!("{}\n", path.display()))
}
