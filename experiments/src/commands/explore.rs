//! `foretoken explore`: writes the break-even explorer, a page that shows where speculation stops paying.

use super::print;
use clap::Args;
use foretoken_report::Staged;
use foretoken_run::explorer::{PAGE, page, profiled_machine};
use foretoken_spec::problem::{Problem, Result};
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken explore
  foretoken explore -o pages
  foretoken explore --profile profile.toml";

#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// A profile to explore beside the presets: of `foretoken profile` or of `foretoken calibrate`
    #[arg(long, value_name = "FILE.toml")]
    pub profile: Option<PathBuf>,
    /// Folder for the page
    #[arg(short, long, value_name = "DIR", default_value = "results/explorer")]
    pub output: PathBuf,
}

/// Writes the page and prints its path.
pub fn run(args: &ExploreArgs) -> Result<()> {
    let machine = args.profile.as_deref().map(profiled_machine).transpose()?;
    let folder = &args.output;
    fs_err::create_dir_all(folder).map_err(|e| Problem::failed(e.to_string()).help("choose another folder with -o"))?;
    let path = folder.join(PAGE);
    Staged::write_all_to(&path, page(machine.as_ref()).as_bytes()).map_err(|e| Problem::failed(e.to_string()))?;
    print(&format!("{}\n", path.display()))
}
