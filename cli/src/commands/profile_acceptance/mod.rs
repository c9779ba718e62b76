//! The arguments of `foretoken profile-acceptance`.

#[cfg(feature = "live")]
mod show;
#[cfg(feature = "live")]
pub mod work;

use crate::cli::device::DeviceName;
use crate::cli::format::Format;
use clap::Args;
use foretoken_run::spec::live::Instructions;
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
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

#[derive(Debug, Args)]
#[command(override_usage = "foretoken profile-acceptance --target <NAME|DIR> --draft <NAME|DIR>\n       -o <FILE>")]
pub struct ProfileAcceptanceArgs {
    /// The target: a preset with weights, or a Hugging Face folder
    #[arg(long, value_name = "NAME|DIR")]
    pub target: String,
    /// The draft: a preset with weights or a Hugging Face folder, with the target's vocabulary
    #[arg(long, value_name = "NAME|DIR")]
    pub draft: String,
    /// Device on which the models run: cpu, or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceName,
    /// Threads of the CPU [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Vector instructions of the CPU's kernels: plain, avx2 or avx-512 [default: the best that the CPU has]
    #[arg(long, value_name = "LEVEL")]
    pub instructions: Option<Instructions>,
    /// Prompts for the target: `families` (made by `foretoken traces text`), or a file with one JSON object per line
    #[arg(long, value_name = "families|FILE.jsonl", default_value = "families")]
    pub prompts: String,
    /// Number of prompts of each family, a kind of text [default: 32], or of lines read from the file [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub n: Option<u64>,
    /// Bytes of each `families` prompt, filled up with solved examples [default: only the question]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub prompt_len: Option<u32>,
    /// Most tokens that the target writes for a prompt
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub output_len: u32,
    /// Continue writing after tokens that end a text (`eos_token_id`)
    #[arg(long)]
    pub ignore_eos: bool,
    /// Sampling temperature of the target; only 0 (greedy) is supported
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub temperature: f64,
    /// Seed of the `families` prompts; the shipped models were trained with seed 1
    #[arg(long, default_value_t = 2)]
    pub seed: u64,
    /// Number of outputs that are made in one batch
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub batch: u16,
    /// File for the truth table, which says which tokens of the draft model were right
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the truth table in the output file
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the summary
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Folder for figures: acceptance by draft position, and calibration of the draft model's confidences
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}
