//! The arguments of `foretoken live`.

#[cfg(feature = "live")]
pub mod work;

use crate::cli::format::Format;
use clap::Args;
use foretoken_run::spec::live::Instructions;
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken live experiments/live-cpu.toml
  foretoken live experiments/live-cpu.toml --set live.time_scale=2.0 -o results/faster
  foretoken live experiments/live-cpu.toml --set 'workload.arrivals={ closed-loop = 8 }'
  foretoken live experiment.toml --device cuda:0";

#[derive(Debug, Args)]
pub struct LiveArgs {
    /// The experiment; its [live] table gives models and device
    pub file: PathBuf,
    /// Replace or add a value of the experiment; the new value may be a sweep
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Device in place of the experiment's: cpu, or cuda:N
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Vector instructions of the CPU's kernels instead of the experiment's: plain, avx2 or avx-512
    #[arg(long, value_name = "LEVEL")]
    pub instructions: Option<Instructions>,
    /// Folder for the results [default: results/live-<name>-<digest>]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace the results in the output folder
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the comparison of the policies
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write no figures
    #[arg(long)]
    pub no_figures: bool,
    /// Also show the autoregressive run if it was only added as the baseline
    #[arg(long)]
    pub show_implied: bool,
}
