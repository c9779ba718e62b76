//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// How far ahead should this server speculate, for which request, at this moment?
#[derive(Debug, Parser)]
#[command(name = "foretoken", version, propagate_version = true, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 bad input, 3 finished but the verdict is negative, \
                          4 hardware missing, 130 interrupted";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment: replay a trace under several policies and compare them
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Measure the simulator itself on an experiment
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Look at request traces
    #[command(subcommand)]
    Traces(TracesCommand),
    /// Look at the policies there are
    #[command(subcommand)]
    Policies(PoliciesCommand),
    /// Say what this machine can do
    Doctor,
}

const RUN_EXAMPLES: &str = "Examples:
  foretoken run experiments/quickstart.toml
  foretoken run experiments/quickstart.toml --set seeds='[1]' --set engine.max_num_seqs=64 -o results/small
  foretoken run experiments/quickstart.toml --set 'hardware.noise_cv={ sweep = [0.0, 0.05] }'
  foretoken run experiments/quickstart.toml --resume
  foretoken run experiments/quickstart.toml --overwrite --format json
  foretoken run experiments/papers/ --resume";

const BENCH_EXAMPLES: &str = "Examples:
  foretoken bench
  foretoken bench experiments/bench-poisson-fixed4.toml --repeat 21";

const INSPECT_EXAMPLES: &str = "Examples:
  foretoken traces inspect BurstGPT_1.csv
  foretoken traces inspect conversation_trace.jsonl.zst --format json";

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The experiment, or a folder: every experiment in it, and one table of what their papers claim
    pub file: PathBuf,
    /// Replace or add a value of the experiment; may be a sweep
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Folder for the results, for a folder of experiments one above theirs [default: results/<name>-<digest>]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Go on with the run the folder holds
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Replace the results the folder holds
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the comparison
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Cells to run at a time [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Write no figures
    #[arg(long)]
    pub no_figures: bool,
    /// Show the autoregressive run that was added as the yardstick
    #[arg(long)]
    pub show_implied: bool,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The experiment
    #[arg(default_value = "experiments/bench-poisson.toml")]
    pub file: PathBuf,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Runs of each policy
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..))]
    pub repeat: u16,
}

#[derive(Debug, Subcommand)]
pub enum TracesCommand {
    /// Print counts, rates, burstiness, lengths and prefix sharing of a trace
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The trace: plain, gzip or zstd
    pub file: PathBuf,
    /// Its format, when it cannot be told from the header
    #[arg(long, value_name = "FORMAT")]
    pub format_of: Option<String>,
    /// How to print the statistics
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

#[derive(Debug, Subcommand)]
pub enum PoliciesCommand {
    /// List the policies
    List,
    /// Show a policy: what it does, where it comes from, its settings with defaults
    Show {
        /// Its name
        name: String,
    },
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// One JSON document
    Json,
}
