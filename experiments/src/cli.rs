//! The command line.

#[cfg(test)]
mod examples;
mod tools;

pub use tools::{CompletionsArgs, ExploreArgs, ExportPerfettoArgs, ManArgs};

use clap::{Args, Parser, Subcommand, ValueEnum};
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
                          4 hardware missing, 130 interrupted";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment: replay a trace under several policies and compare them
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Run an experiment on a device: the same engine and policies, real passes, a real clock
    #[command(after_help = LIVE_EXAMPLES)]
    Live(LiveArgs),
    /// Run an experiment on a device and in the simulator, and say how far apart they are
    #[command(after_help = VALIDATE_EXAMPLES)]
    Validate(ValidateArgs),
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
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(ProfileArgs),
    /// Record what a draft gets right on a target's own text
    #[command(after_help = PROFILE_ACCEPTANCE_EXAMPLES)]
    ProfileAcceptance(ProfileAcceptanceArgs),
    /// Say what this machine can do
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
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
  foretoken run experiments/papers/ --resume";

const LIVE_EXAMPLES: &str = "Examples:
  foretoken live experiments/live-cpu.toml
  foretoken live experiments/live-cpu.toml --set live.time_scale=2.0 -o results/faster
  foretoken live experiments/live-cpu.toml --set 'workload.arrivals={ closed-loop = 8 }'
  foretoken live experiment.toml --device cuda:0";

#[derive(Debug, Args)]
pub struct LiveArgs {
    /// The experiment; its [live] table says what to run it on
    pub file: PathBuf,
    /// Replace or add a value of the experiment; may be a sweep
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Run on this device instead of the experiment's: cpu, or cuda:N
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Folder for the results [default: results/<name>-<digest>]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace the results the folder holds
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the comparison
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write no figures
    #[arg(long)]
    pub no_figures: bool,
    /// Show the autoregressive run that was added as the yardstick
    #[arg(long)]
    pub show_implied: bool,
}

const VALIDATE_EXAMPLES: &str = "Examples:
  foretoken validate experiments/validate-cpu.toml
  foretoken validate experiments/validate-cpu.toml --set validate.loads='[0.5]' -o results/half --format json
  foretoken validate results/live-live-cpu-1a2b3c4d
  foretoken validate results/live-live-cpu-1a2b3c4d --profile here.toml -o results/compared

An experiment: the pair is profiled, then each policy runs in a closed loop and at shares of the rate it sustained there, all
of it twice; the pair is profiled again; then everything is simulated and compared. A folder: compares what was recorded.
Exit code 3: an error is beyond its bound (the experiment's [validate.tolerance]), or the machine was not steady.";

#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// The experiment with a [live] table; or a folder that `live` or `validate` wrote, to compare without running anything
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Run on this device instead of the experiment's: cpu, or cuda:N
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Predict with this profile, made before, instead of the experiment's or one made now
    #[arg(long, value_name = "FILE.toml")]
    pub profile: Option<PathBuf>,
    /// Folder for the results [default: results/validate-<name>-<digest>, or DIR]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace the results the folder holds
    #[arg(long)]
    pub overwrite: bool,
    /// How to print what was found
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

const PROFILE_ACCEPTANCE_EXAMPLES: &str = "Examples:
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

const PROFILE_EXAMPLES: &str = "Examples:
  foretoken profile --target tiny-target --draft tiny-draft -o profile.toml
  foretoken profile --target path/to/llama --draft path/to/draft --plot -o profile.toml
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
    /// Which documents the families' prompts are; the shipped pair was trained on those of seed 1
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
    /// The profile to write
    #[arg(short, long, value_name = "FILE.toml")]
    pub output: PathBuf,
    /// A look: fewer shapes, 10 s
    #[arg(long)]
    pub quick: bool,
    /// Seconds to spend; shapes that take long may exceed it [default: 60, or 10 with --quick]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub time_budget: Option<f64>,
    /// Decides the order of shapes and which of them are held out
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

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s.is_finite() => Ok(s),
        _ => Err("expected seconds above 0".to_owned()),
    }
}

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
    /// Add oracle-goodput, and with it every policy's regret to it
    #[arg(long)]
    pub regret: bool,
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
  foretoken export vllm experiments/quickstart.toml --batch-sizes 1,8,32,128 --method eagle --model path/to/draft";

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
    /// Batch sizes to try
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
    /// The experiment
    #[arg(default_value = "experiments/bench-poisson.toml")]
    pub file: PathBuf,
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
    /// Its format, when it cannot be told from the header
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
