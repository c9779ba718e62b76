//! `foretoken capacity`: finds the highest rate of requests at which each policy keeps the experiment's latency bounds.

use super::answer::print_kept;
use crate::cli::format::Format;
use crate::cli::results::ResultsArgs;
use crate::shipped;
use clap::Args;
use foretoken_run::capacity::kept::{CAPACITY_TEXT, PAGE};
use foretoken_run::capacity::plan::load;
use foretoken_run::capacity::run::complete;
use foretoken_run::cells::CAPACITY_JSON;
use foretoken_run::spec::problem::Result;
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
    #[command(flatten)]
    pub results: ResultsArgs,
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
    let document = shipped::read_document(&args.file, &args.results.sets)?;
    let (plan, spec) = load(&document, shipped::folder(&args.file))?;
    let (path, mode, pool) = args.results.of(&plan, "capacity")?;
    let folder = complete(&plan, &spec, path, mode, !args.no_figures, &pool, crate::work())?;
    print_kept(&folder, args.format, CAPACITY_TEXT, CAPACITY_JSON)?;
    if folder.path().join(PAGE).exists() {
        eprintln!("page: {}", folder.path().join(PAGE).display());
    }
    eprintln!("results: {}", folder.path().display());
    Ok(())
}
