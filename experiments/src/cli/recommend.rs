//! The arguments of `recommend`.

use super::format::Format;
use clap::{Args, ValueEnum};
use foretoken_sim::MAX_SPEC_LEN;
use std::path::PathBuf;

pub const RECOMMEND_EXAMPLES: &str = "Examples:
  foretoken recommend calibrated
  foretoken recommend calibrated --p99-tpot-ms 40 -o advice
  foretoken recommend calibrated --objective throughput --longest 8
  foretoken recommend experiments/quickstart.toml --now 0 --set engine.max_num_seqs=64

Candidates are simulated with the same requests and the same luck: every fixed length, the best table by batch size, and what the engine decides by
itself. Writes the answer, its figure, and the file to start the engine with.";

#[derive(Debug, Args)]
pub struct RecommendArgs {
    /// What `calibrate` wrote, or any experiment of one setting
    #[arg(value_name = "FOLDER|EXPERIMENT")]
    pub from: PathBuf,
    /// What is to be made best
    #[arg(long, value_enum, default_value_t)]
    pub objective: GoalArg,
    /// Only what keeps the 99th percentile of TPOT within this
    #[arg(long, value_name = "MS")]
    pub p99_tpot_ms: Option<f64>,
    /// What the server drafts now [default: as in the run observed last; the first policy of an experiment]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_SPEC_LEN)))]
    pub now: Option<u32>,
    /// Longest draft to try [default: 5, or the longest that was observed]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SPEC_LEN)))]
    pub longest: Option<u32>,
    /// Whose settings to write
    #[arg(long, value_enum, default_value_t)]
    pub engine: EngineArg,
    /// vLLM's method, for the file to start it with: draft_model, eagle3, ngram, ...
    #[arg(long)]
    pub method: Option<String>,
    /// The draft model, likewise
    #[arg(long)]
    pub model: Option<String>,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Folder for the answer [default: results/recommended-<name>]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace the recommendation that the folder holds
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// What is to be made best.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum GoalArg {
    /// The least mean end-to-end latency
    #[default]
    MeanE2e,
    /// The most output tokens a second, with as many requests at once as the engine runs
    Throughput,
    /// The largest share of requests within the experiment's [slo]
    Slo,
}

/// Whose settings.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum EngineArg {
    /// speculative_config.json
    #[default]
    Vllm,
    /// adaptive_spec.json and DSpark's step times
    Sglang,
}
