//! `foretoken explore`: writes the break-even explorer, a page that shows where speculation stops paying.

use super::print;
use crate::shipped;
use clap::Args;
use foretoken_report::Staged;
use foretoken_run::explorer::{Machine, PAGE, page, planned_machine, profiled_machine};
use foretoken_spec::problem::{Problem, Result};
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "Examples:
  foretoken explore
  foretoken explore experiments/quickstart.toml
  foretoken explore -o pages
  foretoken explore --profile profile.toml";

#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// An experiment; the page offers its hardware, host time and acceptance beside the presets. If the experiment
    /// sweeps a setting, the page has the first value
    #[arg(value_name = "EXPERIMENT.toml", conflicts_with = "profile")]
    pub experiment: Option<PathBuf>,
    /// A profile whose costs the page offers beside the presets; `foretoken profile` or `foretoken calibrate` wrote it
    #[arg(long, value_name = "FILE.toml")]
    pub profile: Option<PathBuf>,
    /// Folder for the page
    #[arg(short, long, value_name = "DIR", default_value = "results/explorer")]
    pub output: PathBuf,
}

/// Writes the page and prints its path.
pub fn run(args: &ExploreArgs) -> Result<()> {
    let machine = match (&args.experiment, &args.profile) {
        (Some(file), _) => Some(planned(file)?),
        (None, profile) => profile.as_deref().map(profiled_machine).transpose()?,
    };
    let folder = &args.output;
    fs_err::create_dir_all(folder).map_err(|e| Problem::failed(e.to_string()).help("choose another folder with -o"))?;
    let path = folder.join(PAGE);
    Staged::write_all_to(&path, page(machine.as_ref()).as_bytes()).map_err(|e| Problem::failed(e.to_string()))?;
    print(&format!("{}\n", path.display()))
}

fn planned(file: &Path) -> Result<Machine> {
    planned_machine(&shipped::load(file, &[])?).ok_or_else(|| {
        let problem = Problem::bad_input(format!("{}: the costs of passes are not known", file.display()));
        problem.help("`foretoken calibrate` finds the costs of an observed server, and `explore --profile` takes them")
    })
}
