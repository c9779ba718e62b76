//! The arguments of `capacity`.

use super::format::Format;
use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;

pub const CAPACITY_EXAMPLES: &str = "Examples:
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
    /// The experiment, whose requests come by themselves
    pub file: PathBuf,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Folder for the results [default: results/capacity-<name>-<digest>]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Go on with the search that the folder holds
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Replace the results the folder holds
    #[arg(long)]
    pub overwrite: bool,
    /// Threads [default: one a core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Draw no figures and make no page
    #[arg(long)]
    pub no_figures: bool,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
