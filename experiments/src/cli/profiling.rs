//! The arguments of what is measured before an experiment: passes, and what a draft gets right.

use super::format::Format;
use clap::{Args, ValueEnum};
use foretoken_spec::live::Instructions;
use std::path::PathBuf;

pub const PROFILE_ACCEPTANCE_EXAMPLES: &str = "Examples:
  foretoken profile-acceptance --target tiny-target --draft tiny-draft -o pair.truth
  foretoken profile-acceptance --target path/to/target --draft path/to/draft --prompts prompts.jsonl --plot figures -o x.truth
  foretoken traces inspect pair.truth

The target writes greedily, then the draft reads the same text and is asked at every position: is its first guess right,
which guess is, and how sure is it? A file of prompts has one object a line: {\"prompt\": \"...\", \"family\": \"...\"}.

An experiment replays the table with the lengths of its requests
  workload.lengths = { trace = { path = \"pair.truth\" } }    acceptance.source = { recorded = {} }
or deals its recordings out to requests that have other lengths
  acceptance.source = { table = { path = \"pair.truth\", beyond = \"wrap\" } }
where `beyond` says what holds for a request longer than its recording: \"refuse\" (default), or begin again.";

pub const PROFILE_EXAMPLES: &str = "Examples:
  foretoken profile --target tiny-target --draft tiny-draft -o profile.toml
  foretoken profile --target path/to/llama --draft path/to/draft --plot -o profile.toml
  foretoken profile --target tiny-target --draft tiny-draft --max-model-len 256 --max-num-seqs 16 -o profile.toml
  foretoken profile --target vicuna-68m --draft vicuna-68m --threads 2 --quick -o look.toml

An experiment uses it: hardware.profile = \"profile.toml\". Interrupted, the same command goes on.
Exit code 3: written, but its linear fit is off by more than 10 % on held-out decode or verify passes.";

/// A device that models run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// The processor.
    Cpu,
    /// The NVIDIA GPU of this index.
    Cuda(u32),
}

impl std::str::FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceName, String> {
        match (text, text.strip_prefix("cuda:").map(str::parse)) {
            ("cpu", _) => Ok(DeviceName::Cpu),
            ("cuda", _) => Ok(DeviceName::Cuda(0)),
            (_, Some(Ok(index))) => Ok(DeviceName::Cuda(index)),
            _ => Err("expected cpu or cuda:N".to_owned()),
        }
    }
}

/// Where a model's weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WeightsFrom {
    /// Drawn from a seed: times need shapes, not knowledge
    Random,
    /// The model's own
    Checkpoint,
}

#[derive(Debug, Args)]
pub struct ProfileAcceptanceArgs {
    /// The target: a preset that has weights, or a Hugging Face folder
    #[arg(long, value_name = "NAME|DIR")]
    pub target: String,
    /// The draft: likewise, with the target's vocabulary
    #[arg(long, value_name = "NAME|DIR")]
    pub draft: String,
    /// Where they run: cpu, or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceName,
    /// Threads of the CPU [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Vector instructions of the CPU's kernels: plain, avx2 or avx-512 [default: the best that it has]
    #[arg(long, value_name = "LEVEL")]
    pub instructions: Option<Instructions>,
    /// What the target continues: `families` (the shipped generator's), or a file with one JSON object a line
    #[arg(long, value_name = "families|FILE.jsonl", default_value = "families")]
    pub prompts: String,
    /// Prompts of each family [default: 32], or lines of the file [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub n: Option<u64>,
    /// Bytes of a family's prompt, worked examples in front [default: as long as its question is]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub prompt_len: Option<u32>,
    /// Tokens that the target writes, at most
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub output_len: u32,
    /// Write on behind the tokens that end a text (`eos_token_id`)
    #[arg(long)]
    pub ignore_eos: bool,
    /// Of the target's choice; only 0, greedy, can be recorded
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub temperature: f64,
    /// Which documents the families' prompts are; the shipped pair was trained on the documents of seed 1
    #[arg(long, default_value_t = 2)]
    pub seed: u64,
    /// Outputs that are written together
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub batch: u16,
    /// The table to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace a table of that name
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the summary
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Draw acceptance by depth, and calibration, into this folder
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// The target: a preset, or a Hugging Face folder
    #[arg(long, value_name = "NAME|DIR")]
    pub target: String,
    /// The draft: a preset, or a Hugging Face folder
    #[arg(long, value_name = "NAME|DIR")]
    pub draft: String,
    /// Where they run: cpu, or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceName,
    /// Where their weights come from [default: their own where there are any]
    #[arg(long, value_enum)]
    pub weights: Option<WeightsFrom>,
    /// Threads of the CPU [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Vector instructions of the CPU's kernels: plain, avx2 or avx-512 [default: the best that it has]
    #[arg(long, value_name = "LEVEL")]
    pub instructions: Option<Instructions>,
    /// The profile to write
    #[arg(short, long, value_name = "FILE.toml")]
    pub output: PathBuf,
    #[command(flatten)]
    pub engine: EngineLimits,
    /// A look: fewer shapes, 10 s
    #[arg(long)]
    pub quick: bool,
    /// Seconds to spend; shapes that take long may exceed it [default: 60, or 10 with --quick]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub time_budget: Option<f64>,
    /// Decides the order of shapes and which fit each is held out of
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Draw predicted against measured, and residuals, beside the profile (FILE.svg, FILE-residuals.svg)
    #[arg(long)]
    pub plot: bool,
    /// Replace a finished profile of that name
    #[arg(long)]
    pub overwrite: bool,
    /// How to print what was found
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// What an engine is set to. Passes that it will never run are not measured: the fits are then of those that it will.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "The engine to profile for, in vLLM's words")]
pub struct EngineLimits {
    /// Tokens of a request, prompt and output [default: what each model was made for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(32..))]
    pub max_model_len: Option<u32>,
    /// Requests of a pass [default: 64 on a CPU, 256 on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_num_seqs: Option<u32>,
    /// New tokens of a pass [default: 512 on a CPU, 4096 on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub max_num_batched_tokens: Option<u32>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s.is_finite() => Ok(s),
        _ => Err("expected seconds above 0".to_owned()),
    }
}
