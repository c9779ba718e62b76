//! The arguments of `calibrate`.

use super::format::Format;
use clap::Args;
use foretoken_sim::MAX_SPEC_LEN;
use std::path::PathBuf;

pub const CALIBRATE_EXAMPLES: &str = "Examples:
  foretoken calibrate results/k0 results/k3 -o calibrated
  foretoken calibrate results/k0 results/k3 sglang-request-metrics-2026112214.log -o calibrated
  foretoken calibrate forward-pass-metrics.msgpack --draft-length 3 -o calibrated
  foretoken run calibrated/experiment.toml
  foretoken calibrate results/live-cpu-1a2b3c4d -o calibrated
  foretoken validate results/live-cpu-5e6f7a8b --profile calibrated/profile.toml

Reads results folders of `observe`, recordings, vllm bench forward and vllm bench serve (--save-detailed), SGLang's forward-pass metrics, request
metrics, bench_serving (--output-details) and DSpark records. Observe plain decoding and one draft length at least, in closed loops of several
sizes: from one length alone drafting and verification cannot be told apart, and the calibration predicts that length alone.
Folders of `live` and `validate` are read as well, by themselves: every pass of a live run was timed, and the profile is fitted to them.
Exit code 3: written, but not trusted: held-out steps or runs are off by more than 10 % in sum.";

#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Folders that `observe` wrote, their recordings, and files of other tools; or folders of live runs
    #[arg(required = true, value_name = "FOLDER|FILE")]
    pub from: Vec<PathBuf>,
    /// Folder for the calibration
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Replace the calibration that the folder holds
    #[arg(long)]
    pub overwrite: bool,
    /// Tokens drafted a round, for files that do not say it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_SPEC_LEN)))]
    pub draft_length: Option<u32>,
    /// How to print what was found
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
