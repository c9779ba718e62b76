//! `foretoken man`: manual pages, from the texts of `--help`.

use super::print;
use crate::cli::{Cli, ManArgs};
use clap::CommandFactory;
use foretoken_spec::problem::{Problem, Result};

/// Writes a page for each command and prints their folder.
pub fn run(args: &ManArgs) -> Result<()> {
    let folder = &args.output;
    fs_err::create_dir_all(folder)
        .map_err(|e| e.to_string())
        .and_then(|()| {
            clap_mangen::generate_to(Cli::command(), folder).map_err(|e| format!("{}: {e}", folder.display()))
        })
        .map_err(|e| Problem::failed(e).help("choose another folder with -o"))?;
    print(&format!("man {}\n", folder.join("foretoken.1").display()))
}
