//! `foretoken capacity`: finds the highest rate of requests at which each policy keeps the experiment's latency bounds.

use super::answer::answer;
use super::print;
use crate::cli::format::Format;
use crate::shipped;
use clap::Args;
use foretoken_run::capacity::kept::{CAPACITY_TEXT, PAGE};
use foretoken_run::capacity::plan::load;
use foretoken_run::capacity::run::complete;
use foretoken_run::cells::{CAPACITY_JSON, Mode};
use foretoken_run::machine;
use foretoken_run::spec::problem::{Problem, Result};
use std::num::NonZeroUsize;
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken capacity experiments/capacity.toml --set seeds='[1]' --set capacity.requests=200
  foretoken capacity experiments/capacity.toml --set slo.tpot_s=0.03 --set capacity.share=0.95 -o results/strict
  foretoken capacity experiments/capacity.toml --set capacity.bracket='[2.0, 20.0]' --resume

A rate is carried where enough requests keep the experiment's [slo] and the server keeps up: an overloaded one carries
nothing. The search is the experiment's [capacity]. A bound that is scaled (slo.adaspec-scale) is scaled from plain
decoding of one request at a time. Each rate has the same requests and the same luck; every rate that was tried is kept.
The arrival times of a log are stretched or compressed, as the transform rate-scale does. Of its requests the first
capacity.requests behind capacity.warm_up_requests count, or those of the seconds capacity.window_s.";

#[derive(Debug, Args)]
pub struct CapacityArgs {
    /// The experiment; its arrivals must not be a closed loop
    pub file: PathBuf,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Folder for the results [default: results/capacity-<name>-<digest>]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Continue the unfinished search in the output folder
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Replace the results in the output folder
    #[arg(long)]
    pub overwrite: bool,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Draw no figures and make no page
    #[arg(long)]
    pub no_figures: bool,
    /// How to print the capacities
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Searches the capacity of each policy (the highest rate at which it keeps the latency bounds) and prints the
/// capacities.
pub fn run(args: &CapacityArgs) -> Result<()> {
    let document = shipped::read_document(&args.file, &args.sets)?;
    let (plan, spec) = load(&document, shipped::folder(&args.file))?;
    plan.warnings().iter().for_each(|w| eprintln!("warning: {w}"));
    let path = args.output.clone().unwrap_or_else(|| plan.usual_folder("capacity-"));
    let mode = match (args.overwrite, args.resume) {
        (true, _) => Mode::Overwrite,
        (_, true) => Mode::Resume,
        _ => Mode::Fresh,
    };
    let pool = machine::pool(args.threads.map(usize::from), plan.cells())?;
    let folder = complete(&plan, &spec, path, mode, !args.no_figures, &pool, crate::work())?;
    let name = match args.format {
        Format::Table => CAPACITY_TEXT,
        Format::Json => CAPACITY_JSON,
    };
    let path = folder.path().join(name);
    let text = fs_err::read_to_string(&path).map_err(|e| Problem::failed(e.to_string()))?;
    match args.format {
        Format::Table => answer(&text, |_, _| false)?,
        Format::Json => print(&text)?,
    }
    if folder.path().join(PAGE).exists() {
        eprintln!("page: {}", folder.path().join(PAGE).display());
    }
    eprintln!("results: {}", folder.path().display());
    Ok(())
}
