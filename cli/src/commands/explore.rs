//! `foretoken explore`: writes the break-even explorer, a page that shows where speculation stops paying.

use super::print;
use crate::{shipped, work};
use clap::Args;
use foretoken_report::Staged;
use foretoken_run::explorer::{Machine, PAGE, page, planned_machine, profiled_machine};
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::calibrate::kept::EXPERIMENT;
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
        (None, profile) => profile.as_deref().map(profiled).transpose()?,
    };
    let folder = &args.output;
    fs_err::create_dir_all(folder).map_err(|e| Problem::failed(e.to_string()).help("choose another folder with -o"))?;
    let path = folder.join(PAGE);
    Staged::write_all_to(&path, page(machine.as_ref()).as_bytes()).map_err(|e| Problem::failed(e.to_string()))?;
    print(&format!("{}\n", path.display()))
}

fn planned(file: &Path) -> Result<Machine> {
    let plan = shipped::load(file, &[])?;
    let machine = planned_machine(&plan).ok_or_else(|| {
        let problem = Problem::bad_input(format!("{}: the costs of passes are not known", file.display()));
        problem.help("`foretoken calibrate` finds the costs of an observed server, and `explore --profile` takes them")
    })?;
    at_load_of(machine, &plan)
}

/// The machine of a profile. If the profile is part of a calibration, the page opens with what the calibration knows
/// beside costs: the acceptance and the load of its experiment.
fn profiled(file: &Path) -> Result<Machine> {
    let machine = profiled_machine(file)?;
    let experiment = file.with_file_name(EXPERIMENT);
    if !experiment.is_file() {
        return Ok(machine);
    }
    let plan = shipped::load(&experiment, &[])?;
    let same = |path: &PathBuf| path.file_name() == file.file_name();
    match planned_machine(&plan).filter(|_| plan.variants[0].experiment.hardware.profile.as_ref().is_some_and(same)) {
        Some(of_load) => at_load_of(Machine { acceptance: of_load.acceptance, opens: of_load.opens, ..machine }, &plan),
        None => Ok(machine),
    }
}

fn at_load_of(machine: Machine, plan: &Plan) -> Result<Machine> {
    let _watch = work().interrupt.watch();
    machine.at_load_of(plan, work().interrupt.flag())
}
