//! The command line.

mod calibrate;
mod capacity;
mod check_settings;
#[cfg(test)]
mod examples;
mod format;
mod live;
mod merge;
mod observe;
mod profiling;
mod recommend;
mod tools;

pub use calibrate::CalibrateArgs;
pub use capacity::CapacityArgs;
pub use check_settings::CheckSettings;
pub use format::Format;
pub use live::{LiveArgs, ValidateArgs};
pub use merge::MergeArgs;
pub use observe::ObserveArgs;
#[cfg(feature = "live")]
pub use profiling::{DeviceName, EngineLimits, WeightsFrom};
pub use profiling::{ProfileAcceptanceArgs, ProfileArgs};
pub use recommend::{EngineArg, GoalArg, RecommendArgs};
pub use tools::{CompletionsArgs, ExploreArgs, ExportPerfettoArgs, ManArgs};

use clap::{Args, Parser, Subcommand, ValueEnum};
use foretoken_run::cells::Shard;
use std::path::PathBuf;

/// How far ahead should this server speculate, for which request, at this moment?
#[derive(Debug, Parser)]
#[command(name = "foretoken", version, propagate_version = true, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Examples:
  foretoken run experiments/quickstart.toml
  foretoken policies show adaspec
  foretoken explore

Exit codes: 0 ok, 1 failed, 2 bad input, 3 finished but the verdict is negative, \
                          4 hardware missing, 130 interrupted,\n\
                          134 out of memory after all (aborted; a run goes on with --resume)

FORETOKEN_MEMORY_GIB: memory this program may use, in GiB [default: three quarters of the machine's]. What would take more is \
                          refused before it begins";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment: replay a trace under several policies and compare them
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Put together what the shards of a run have finished
    #[command(after_help = merge::MERGE_EXAMPLES)]
    Merge(MergeArgs),
    /// Find the highest rate of requests that each policy carries within the experiment's bounds
    #[command(after_help = capacity::CAPACITY_EXAMPLES)]
    Capacity(CapacityArgs),
    /// Run an experiment on a device: the same engine and policies, real passes, a real clock
    #[command(after_help = live::LIVE_EXAMPLES)]
    Live(LiveArgs),
    /// Run an experiment on a device and in the simulator, and say how far apart they are
    #[command(after_help = live::VALIDATE_EXAMPLES)]
    Validate(ValidateArgs),
    /// Drive a server that runs somewhere with an experiment's workload, and record what comes back
    #[command(after_help = observe::OBSERVE_EXAMPLES)]
    Observe(ObserveArgs),
    /// Fit costs and acceptance to observed runs: a profile, a truth table, traces, and an experiment on them
    #[command(after_help = calibrate::CALIBRATE_EXAMPLES)]
    Calibrate(CalibrateArgs),
    /// Say how many tokens a server should draft for its traffic, what that would bring, and how to start it
    #[command(after_help = recommend::RECOMMEND_EXAMPLES)]
    Recommend(RecommendArgs),
    /// Measure the simulator itself on an experiment
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Make the page of a results folder, to be opened in a browser
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Look at request traces
    #[command(subcommand, after_help = TRACES_EXAMPLES)]
    Traces(TracesCommand),
    /// Look at the policies there are
    #[command(subcommand, after_help = POLICIES_EXAMPLES)]
    Policies(PoliciesCommand),
    /// Say what each policy would do in a state written by hand
    #[command(after_help = DECIDE_EXAMPLES)]
    Decide(DecideArgs),
    /// Write settings in the words of the engines people run, and timelines
    #[command(subcommand, after_help = EXPORT_EXAMPLES)]
    Export(ExportCommand),
    /// Write a page that shows where speculation stops paying, as you move sliders
    #[command(after_help = tools::EXPLORE_EXAMPLES)]
    Explore(ExploreArgs),
    /// Time the forward passes of a target and a draft on this machine, and keep them as a profile
    #[command(after_help = profiling::PROFILE_EXAMPLES)]
    Profile(ProfileArgs),
    /// Record what a draft gets right on a target's own text
    #[command(after_help = profiling::PROFILE_ACCEPTANCE_EXAMPLES)]
    ProfileAcceptance(ProfileAcceptanceArgs),
    /// Say what this machine can do
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Print the settings of an experiment: what may stand there, the default, what it is
    #[command(after_help = tools::SETTINGS_EXAMPLES)]
    Settings {
        /// The settings at and below this key [default: all]
        key: Option<String>,
        /// Print the page of the documentation: all settings, GPUs and models as Markdown
        #[arg(long, conflicts_with = "key")]
        markdown: bool,
    },
    /// Print the JSON schema of experiments, for editors
    #[command(after_help = tools::SCHEMA_EXAMPLES)]
    Schema,
    /// Print what makes a shell complete foretoken's commands
    #[command(after_help = tools::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write manual pages
    #[command(after_help = tools::MAN_EXAMPLES)]
    Man(ManArgs),
}

const RUN_EXAMPLES: &str = "Examples:
  foretoken run experiments/quickstart.toml
  foretoken run experiments/quickstart.toml --set seeds='[1]' --set engine.max_num_seqs=64 -o results/small
  foretoken run experiments/quickstart.toml --set 'hardware.noise_cv={ sweep = [0.0, 0.05] }'
  foretoken run experiments/quickstart.toml --resume
  foretoken run experiments/quickstart.toml --overwrite --format json
  foretoken run experiments/papers/ --resume
  foretoken run experiments/quickstart.toml --shard 1/2 -o results/shared --resume
  foretoken run experiments/quickstart.toml --shard 2/2 -o results/shared --resume";

const REPORT_EXAMPLES: &str = "Examples:
  foretoken report results/quickstart-1a2b3c4d
  foretoken report results/after --baseline results/before -o compared";

const BENCH_EXAMPLES: &str = "Examples:
  foretoken bench
  foretoken bench experiments/bench-poisson-fixed4.toml --repeat 21
  foretoken bench --repeat 3 --format json";

const TRACES_EXAMPLES: &str = "Examples:
  foretoken traces inspect BurstGPT_1.csv";

const POLICIES_EXAMPLES: &str = "Examples:
  foretoken policies list
  foretoken policies show adaspec
  foretoken policies defaults adaspec";

const LIST_EXAMPLES: &str = "Examples:
  foretoken policies list
  foretoken policies list --format json";

const SHOW_EXAMPLES: &str = "Examples:
  foretoken policies show adaspec
  foretoken policies show sglang-gen3 --format json";

const NEW_EXAMPLES: &str = "Examples:
  foretoken policies new my-policy
  foretoken policies new my-policy --family confidence --source ../foretoken";

const DEFAULTS_EXAMPLES: &str = "Examples:
  foretoken policies defaults adaspec";

const EXPORT_EXAMPLES: &str = "Examples:
  foretoken export sglang sglang-gen3
  foretoken export vllm experiments/quickstart.toml
  foretoken export perfetto results/small -o timeline.json";

const INSPECT_EXAMPLES: &str = "Examples:
  foretoken traces inspect BurstGPT_1.csv
  foretoken traces inspect conversation_trace.jsonl.zst --format json";

const TEXT_EXAMPLES: &str = "Examples:
  foretoken traces text
  foretoken traces text --family arithmetic --n 3 --format raw
  foretoken traces text --seed 1 --n 240000 -o corpus.jsonl";

const DOCTOR_EXAMPLES: &str = "Examples:
  foretoken doctor
  foretoken doctor --format json
  foretoken doctor --need cuda:0";

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// How to print what was found
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Exit with code 4 unless models can run on this device: cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    pub need: Option<String>,
}

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
    /// Write no figures and no page
    #[arg(long)]
    pub no_figures: bool,
    /// Show the autoregressive run that was added as the yardstick
    #[arg(long)]
    pub show_implied: bool,
    /// Try the run again without its settings, and name those that did nothing
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub check_settings: CheckSettings,
    /// Add oracle-goodput, and with it every policy's regret to it
    #[arg(long)]
    pub regret: bool,
    /// Run one part of N into a folder that the others share; `foretoken merge` puts them together
    #[arg(long, value_name = "I/N", conflicts_with = "overwrite")]
    pub shard: Option<Shard>,
    /// With --shard --resume: try cells again that failed before
    #[arg(long, requires = "shard", requires = "resume")]
    pub retry_failed: bool,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The folder that a run wrote its results to
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Other results to compare with: differences paired by policy, swept values and seed
    #[arg(long, value_name = "DIR")]
    pub baseline: Option<PathBuf>,
    /// Folder for the page [default: DIR/report]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

const EXPORT_SGLANG_EXAMPLES: &str = "Examples:
  foretoken export sglang sglang-gen3 > adaptive_spec.json
  foretoken export sglang experiment.toml --label 'sglang-gen1[ema_alpha=0.1]'";

const EXPORT_VLLM_EXAMPLES: &str = "Examples:
  foretoken export vllm experiments/quickstart.toml
  foretoken export vllm experiments/quickstart.toml --batch-sizes 1,8,32,128 --method eagle --model path/to/draft

Every length from 0 to engine.max_draft_len runs in closed loops of as many clients as each batch size says, with the
drafter loaded (at length 0 too) and with every seed of the experiment: output tokens over time, prompts included. Each
length is compared with the fastest, seed by seed. Of the lengths within 1 % of the fastest, or not told apart from it
and within 3 %, the smallest is taken. A length that is further behind and not told apart makes the row too noisy to say:
then the fastest is taken, and more seeds are asked for.

vLLM looks its table up by the number of requests scheduled in a step, prompts among them. Where clients wait for
memory or for the token budget, a step schedules fewer than there are clients: a row stands for what its median step
schedules, and a batch size between two rows has the length of the nearer one. A row that schedules no more than the
one before it is not reached. vLLM gives a batch beyond the last row the length of that row. Where vLLM's runner v2
makes as many passes of a draft model as the table's longest length has tokens, rows with shorter drafts are measured
on such a server. At the end the table itself runs in the same loops, and where it is behind the fastest length, a
warning says so. The rows go to stderr, the JSON to stdout.";

#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// SGLang's adaptive_spec.json of a policy
    #[command(after_help = EXPORT_SGLANG_EXAMPLES)]
    Sglang(ExportSglangArgs),
    /// vLLM's speculative_config with the best length for each batch size, found by a sweep
    #[command(after_help = EXPORT_VLLM_EXAMPLES)]
    Vllm(ExportVllmArgs),
    /// A timeline for Perfetto (Chrome trace events) of one cell of a results folder
    #[command(after_help = tools::PERFETTO_EXAMPLES)]
    Perfetto(ExportPerfettoArgs),
}

#[derive(Debug, Args)]
pub struct ExportSglangArgs {
    /// The name of a preset, or an experiment (*.toml)
    pub policy: String,
    /// Which policy of the experiment [default: the first of SGLang's]
    #[arg(long)]
    pub label: Option<String>,
}

#[derive(Debug, Args)]
pub struct ExportVllmArgs {
    /// The experiment: hardware, engine, lengths and acceptance are its own, arrivals become closed loops
    pub file: PathBuf,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Batch sizes to measure: clients of a closed loop, each with one request at the server at any time
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
    pub batch_sizes: Vec<u32>,
    /// vLLM's `method`, written as it is
    #[arg(long)]
    pub method: Option<String>,
    /// vLLM's `model` (the draft), written as it is
    #[arg(long)]
    pub model: Option<String>,
}

const DECIDE_EXAMPLES: &str = r#"A state (seconds, tokens; confidences[j] is the draft's confidence in the j-th token it would draft):
  {"draft": {"alpha_s": 1e-9, "gamma_s": 2e-6, "delta_s": 5e-4},
   "target": {"alpha_s": 1e-7, "gamma_s": 4e-5, "delta_s": 8e-3},
   "context_reads": "once", "max_draft_len": 4, "acceptance_rate": 0.7, "prev_confidence": 0.6,
   "slo_tpot_s": null, "history": [[3, 1], [0, 2]],
   "requests": [{"context": 512, "confidences": [0.9, 0.8, 0.6, 0.5]},
                {"context": 90, "confidences": [0.5, 0.4, 0.7, 0.2]}],
   "policies": [{"smartspec": {}}, {"adaspec": {"slo": "step"}}, {"fixed": {"k": 3}}]}

A state is that of one step that drafts at its start: what is decided is drafted and verified in it. (vLLM drafts behind the step before;
there a policy sees what is sure of the same requests then.)

Also "drafting": "parallel" (one draft pass for all tokens), and for policies with a cost table
  "tables": {"draft_s": [[8, 0.0005], [64, 0.0007]], "target_s": [[8, 0.008], [512, 0.02]]}
by tokens of a pass. Without it vllm-adaptive and dspark get the linear model of passes over the state's own requests at
the captured sizes; adaspec-code and sglang-throughput that of the batches and contexts they time when they start.

Examples:
  foretoken decide state.json
  foretoken decide state.json --explain
  foretoken decide - < state.json"#;

#[derive(Debug, Args)]
pub struct DecideArgs {
    /// The state, a JSON file; `-` reads stdin
    pub state: PathBuf,
    /// Add the candidates that each policy weighed
    #[arg(long)]
    pub explain: bool,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The experiment [default: the built-in experiments/bench-poisson.toml: 10,000 equal requests without speculation]
    pub file: Option<PathBuf>,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// How to print the times
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Runs of each policy
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..))]
    pub repeat: u16,
}

#[derive(Debug, Subcommand)]
pub enum TracesCommand {
    /// Print counts, rates, burstiness, lengths and prefix sharing of a trace
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Write documents of the six text families that the shipped models are trained and asked on
    #[command(after_help = TEXT_EXAMPLES)]
    Text(TextArgs),
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The trace: plain, gzip or zstd
    pub file: PathBuf,
    /// Its format, when the header does not show it
    #[arg(long, value_name = "FORMAT")]
    pub format_of: Option<String>,
    /// How to print the statistics
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct TextArgs {
    /// Of one family only: cipher, copy, facts, arithmetic, retrieval or dialogue [default: all in turn]
    #[arg(long, value_name = "FAMILY")]
    pub family: Option<String>,
    /// Which documents
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub n: u64,
    /// How to write them
    #[arg(long, value_enum, default_value_t)]
    pub format: TextFormat,
    /// The file to write [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// How documents are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// One JSON object a line: family, prompt, answer
    #[default]
    Jsonl,
    /// As a model reads them: prompt, answer, newline
    Raw,
}

#[derive(Debug, Subcommand)]
pub enum PoliciesCommand {
    /// List the policies
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// How to print them
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Show a policy: what it does and sees, where it comes from and how it differs, its settings with defaults
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Its name
        name: String,
        /// How to print it
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Print a policy's settings with their defaults, as an experiment gives them
    #[command(after_help = DEFAULTS_EXAMPLES)]
    Defaults {
        /// Its name
        name: String,
    },
    /// Write a new policy, which works and is to be changed, and its row of the table into Foretoken's source
    #[command(after_help = NEW_EXAMPLES)]
    New {
        /// Its name, in kebab-case
        name: String,
        /// The folder of policies/src that it belongs to
        #[arg(long, default_value = foretoken_policies::template::USUAL_FAMILY)]
        family: String,
        /// The source tree
        #[arg(long, default_value = ".")]
        source: PathBuf,
    },
}
