//! `foretoken man`: writes manual pages, made from the texts of `--help`.

use super::print;
use clap::Args;
use foretoken_run::spec::problem::{Problem, Result};
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken man -o man
  foretoken man -o ~/.local/share/man/man1";

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for the pages, one per command
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
}

/// Writes a page for each command and prints their folder.
pub fn run(args: &ManArgs, program: clap::Command) -> Result<()> {
    let folder = &args.output;
    fs_err::create_dir_all(folder)
        .map_err(|e| e.to_string())
        .and_then(|()| clap_mangen::generate_to(program, folder).map_err(|e| format!("{}: {e}", folder.display())))
        .map_err(|e| Problem::failed(e).help("choose another folder with -o"))?;
    print(&format!("man {}\n", folder.join("foretoken.1").display()))
}
