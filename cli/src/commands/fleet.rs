//! `foretoken fleet`: finds, for each policy, the fewest GPUs with which a fleet serves the experiment's load within
//! the experiment's latency bounds.

use super::answer::print_kept;
use crate::cli::format::Format;
use crate::cli::results::ResultsArgs;
use crate::shipped;
use clap::Args;
use foretoken_run::capacity::fleet::kept::{FLEET_TEXT, PAGE};
use foretoken_run::capacity::fleet::plan::load;
use foretoken_run::capacity::fleet::run::complete;
use foretoken_run::capacity::fleet::shards::run_shard;
use foretoken_run::cells::{FLEET_JSON, Shard};
use foretoken_run::spec::problem::Result;
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken fleet experiments/fleet.toml --set seeds='[1]' --set workload.requests=600
  foretoken fleet experiments/fleet.toml --set 'fleet.router={ sweep = [\"round-robin\", \"least-requests\"] }'
  foretoken fleet experiments/fleet.toml --set fleet.price_gpu_hour=4 --set engine.max_num_seqs='{ sweep = [32, 64] }' --resume
  foretoken fleet experiments/fleet.toml --shard 1/2 -o results/parts --set seeds='[1]' --set workload.requests=600 --resume

The fewest replicas of each policy at the experiment's own load, and what they cost: GPUs × fleet.price_gpu_hour. Sweep
fleet.router, hardware.target.roofline.tensor_parallel or anything else to search over it. A load is carried where enough requests keep the
experiment's [slo] and the fleet keeps up; the share is capacity.share. All requests count but the first and the last
capacity.warm_up_requests, or those of the seconds capacity.window_s. Beside each answer stands what perfect scaling
needs: the rate over time, divided by what one replica carries alone. Every number of replicas has the same requests and
the same luck; every one that was tried is kept.";

#[derive(Debug, Args)]
pub struct FleetArgs {
    /// The experiment, with the tables [fleet] and [slo]; its arrivals must not be a closed loop
    pub file: PathBuf,
    #[command(flatten)]
    pub results: ResultsArgs,
    /// Draw no figure
    #[arg(long)]
    pub no_figures: bool,
    /// Search one shard of N in a folder that all shards share; `foretoken merge` merges them
    #[arg(long, value_name = "I/N", conflicts_with = "overwrite")]
    pub shard: Option<Shard>,
    /// How to print the numbers of GPUs
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// For each policy, searches the fewest replicas that keep the latency bounds, and prints the report. With `--shard`,
/// makes only the searches that belong to this shard and prints no report.
pub fn run(args: &FleetArgs) -> Result<()> {
    let document = shipped::read_document(&args.file, &args.results.sets)?;
    let question = load(&document, shipped::folder(&args.file))?;
    let plan = &question.plan;
    let (path, mode, pool) = args.results.of(plan, "fleet")?;
    if let Some(shard) = args.shard {
        match run_shard(&question, &path, shard, args.results.resume, &pool, crate::work())? {
            0 => eprintln!("shard {shard} has nothing to do in {}", path.display()),
            cells => eprintln!("shard {shard}: {cells} searches in {}", path.display()),
        }
        return Ok(());
    }
    let folder = complete(&question, path, mode, !args.no_figures, &pool, crate::work())?;
    print_kept(&folder, args.format, FLEET_TEXT, FLEET_JSON)?;
    if folder.path().join(PAGE).exists() {
        eprintln!("page: {}", folder.path().join(PAGE).display());
    }
    eprintln!("results: {}", folder.path().display());
    Ok(())
}
