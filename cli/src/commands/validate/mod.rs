//! The arguments of `foretoken validate`, which compares runs on a device or a server with their predictions.

#[cfg(feature = "live")]
pub mod work;

use crate::cli::format::Format;
use clap::Args;
use foretoken_run::spec::live::Instructions;
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken validate experiments/validate-cpu.toml
  foretoken validate experiments/validate-cpu.toml --set validate.loads='[0.5]' -o results/half --format json
  foretoken validate results/live-cpu-1a2b3c4d
  foretoken validate results/live-cpu-1a2b3c4d --profile here.toml -o results/compared
  foretoken validate --calibrated calibrated --observed results/k1 results/k2

An experiment: each policy runs in a closed loop and at shares of the rate it sustained there, all of it in pieces that take turns:
live, live again, and probes of the machine around them. The pair is profiled meanwhile; then everything is simulated and
compared. A piece counts when its probes agree (validate.tolerance.steady). A folder: compares what was recorded.
Exit code 3: an error is beyond its bound (the experiment's [validate.tolerance]), or the machine was steady in no piece.";

#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// The experiment with a [live] table; or a folder that `live` or `validate` wrote, to compare without running
    /// anything
    #[arg(value_name = "FILE|DIR", required_unless_present = "observed")]
    pub path: Option<PathBuf>,
    /// Compare these results folders of `observe` with predictions from a calibration
    #[arg(long, num_args = 1.., value_name = "DIR", requires = "calibrated", conflicts_with_all = ["path", "sets", "device", "instructions", "profile", "intact"])]
    pub observed: Vec<PathBuf>,
    /// The folder of the calibration, as `calibrate` wrote it
    #[arg(long, value_name = "DIR", requires = "observed")]
    pub calibrated: Option<PathBuf>,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Device in place of the experiment's: cpu, or cuda:N
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Vector instructions of the CPU's kernels instead of the experiment's: plain, avx2 or avx-512
    #[arg(long, value_name = "LEVEL")]
    pub instructions: Option<Instructions>,
    /// Predict with this profile instead of the experiment's or a newly measured one
    #[arg(long, value_name = "FILE.toml")]
    pub profile: Option<PathBuf>,
    /// Compare damaged recordings up to the damage; the output then says that the comparison is partial
    #[arg(long)]
    pub intact: bool,
    /// Folder for the results [default: results/validate-<name>-<digest>, or DIR]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace the results in the output folder
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the comparison of the runs with their predictions
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
