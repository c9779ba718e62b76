//! The arguments of `foretoken profile`.

#[cfg(feature = "live")]
pub mod work;

use crate::cli::device::DeviceName;
use crate::cli::format::Format;
use clap::{Args, ValueEnum};
use foretoken_run::spec::live::Instructions;
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken profile --target tiny-target --draft tiny-draft -o profile.toml
  foretoken profile --target path/to/llama --draft path/to/draft --plot -o profile.toml
  foretoken profile --target tiny-target --draft tiny-draft --max-model-len 256 --max-num-seqs 16 -o profile.toml
  foretoken profile --target vicuna-68m --draft vicuna-68m --threads 2 --quick -o look.toml

An experiment uses it: hardware.profile = \"profile.toml\". Interrupted, the same command goes on.
Exit code 3: written, but its linear fit is off by more than 10 % on held-out decode or verify passes.";

#[derive(Debug, Args)]
#[command(override_usage = "foretoken profile --target <NAME|DIR> --draft <NAME|DIR> -o <FILE.toml>")]
pub struct ProfileArgs {
    /// The target: a preset, or a Hugging Face folder
    #[arg(long, value_name = "NAME|DIR")]
    pub target: String,
    /// The draft: a preset, or a Hugging Face folder
    #[arg(long, value_name = "NAME|DIR")]
    pub draft: String,
    /// Device on which the models run: cpu, or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceName,
    /// Source of the weights [default: the model's own; random for a preset without weights]
    #[arg(long, value_enum)]
    pub weights: Option<WeightsFrom>,
    /// Threads of the CPU [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Vector instructions of the CPU's kernels: plain, avx2 or avx-512 [default: the best that the CPU has]
    #[arg(long, value_name = "LEVEL")]
    pub instructions: Option<Instructions>,
    /// File for the profile
    #[arg(short, long, value_name = "FILE.toml")]
    pub output: PathBuf,
    #[command(flatten)]
    pub engine: EngineLimits,
    /// Measure fewer shapes (sizes of passes), which takes 10 s
    #[arg(long)]
    pub quick: bool,
    /// Seconds to measure; slow shapes may take longer [default: 60, or 10 with --quick]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub time_budget: Option<f64>,
    /// Seed of the order in which shapes (sizes of passes) are measured, and of the folds of cross-validation
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Draw predicted against measured times, and the residuals, in files beside the profile (FILE.svg,
    /// FILE-residuals.svg)
    #[arg(long)]
    pub plot: bool,
    /// Replace the finished profile in the output file
    #[arg(long)]
    pub overwrite: bool,
    /// How to print what was found
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Limits of the engine. Passes beyond the limits are not measured, so the fits cover only passes that the engine runs.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "The engine to profile for, in vLLM's words")]
pub struct EngineLimits {
    /// Most tokens of a request, prompt and output [default: the model's longest context]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(32..))]
    pub max_model_len: Option<u32>,
    /// Most requests in a pass [default: 64 on a CPU, 256 on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_num_seqs: Option<u32>,
    /// Most new tokens in a pass [default: 512 on a CPU, 4096 on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub max_num_batched_tokens: Option<u32>,
}

/// The source of a model's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WeightsFrom {
    /// Random weights; pass times do not depend on their values
    Random,
    /// The model's own weights
    Checkpoint,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s.is_finite() => Ok(s),
        _ => Err("expected seconds above 0".to_owned()),
    }
}
