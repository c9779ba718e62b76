//! `foretoken export`: writes settings in the formats of vLLM and SGLang, and timelines of runs for Perfetto.

use super::perfetto::{self, ExportPerfettoArgs};
use super::print;
use crate::shipped;
use crate::work;
use clap::{Args, Subcommand};
use foretoken_policies::{PolicySpec, to_sglang_json, to_vllm_speculative_config};
use foretoken_run::load::with_defaults;
use foretoken_run::spec::problem::{Problem, Result, nearest};
use foretoken_run::spec::read::unknown_policy;
use foretoken_run::vllm_table::{Table, no_draft, stated_method};
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "Examples:
  foretoken export sglang sglang-gen3
  foretoken export vllm experiments/quickstart.toml
  foretoken export perfetto results/small -o timeline.json";

const SGLANG_EXAMPLES: &str = "Examples:
  foretoken export sglang sglang-gen3 > adaptive_spec.json
  foretoken export sglang experiment.toml --label 'sglang-gen1[ema_alpha=0.1]'";

const VLLM_EXAMPLES: &str = "Examples:
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

#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(subcommand)]
    pub command: ExportCommand,
}

#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// SGLang's adaptive_spec.json of a policy
    #[command(after_help = SGLANG_EXAMPLES)]
    Sglang(ExportSglangArgs),
    /// vLLM's speculative_config with the best length for each batch size, found by a sweep
    #[command(after_help = VLLM_EXAMPLES)]
    Vllm(ExportVllmArgs),
    /// A timeline for Perfetto (Chrome trace events) of one run in a results folder: one policy with one seed
    #[command(after_help = perfetto::EXAMPLES)]
    Perfetto(ExportPerfettoArgs),
}

#[derive(Debug, Args)]
pub struct ExportSglangArgs {
    /// The name of a preset, or an experiment (*.toml)
    pub policy: String,
    /// Label of the policy in the experiment [default: the first SGLang policy]
    #[arg(long)]
    pub label: Option<String>,
}

#[derive(Debug, Args)]
pub struct ExportVllmArgs {
    /// The experiment to simulate; its arrivals are replaced by closed loops
    pub file: PathBuf,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Batch sizes to measure: clients of a closed loop, each with one request at the server at any time
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
    pub batch_sizes: Vec<u32>,
    /// Value of vLLM's `method`, copied into the output [default: the experiment's engine.method, if it states one]
    #[arg(long)]
    pub method: Option<String>,
    /// Value of vLLM's `model` (the draft), copied into the output
    #[arg(long)]
    pub model: Option<String>,
}

/// Exports to the format that the user named: SGLang's, vLLM's or Perfetto's.
pub fn run(args: &ExportArgs) -> Result<()> {
    match &args.command {
        ExportCommand::Sglang(args) => sglang(args),
        ExportCommand::Vllm(args) => vllm(args),
        ExportCommand::Perfetto(args) => perfetto::perfetto(args),
    }
}

/// Prints SGLang's `adaptive_spec.json` of a preset, or of a policy in an experiment.
fn sglang(args: &ExportSglangArgs) -> Result<()> {
    let spec = if args.policy.ends_with(".toml") {
        let plan = shipped::load(Path::new(&args.policy), &[])?;
        let mut all = plan.policies.iter().map(|e| &e.spec);
        let found = match &args.label {
            Some(label) => all.find(|p| p.label() == *label),
            None => all.find(|p| to_sglang_json(p).is_ok()),
        };
        found.cloned().ok_or_else(|| {
            let labels: Vec<String> = plan.policies.iter().map(|e| e.spec.label()).collect();
            let what = args.label.as_ref().map_or("no policy of SGLang".into(), |l| format!("no policy `{l}`"));
            let near = args.label.as_ref().and_then(|l| nearest(l, labels.iter().map(String::as_str)));
            let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
            Problem::bad_input(format!("{}: {what}", args.policy)).help(format!("{near}It has {}", labels.join(", ")))
        })?
    } else {
        with_defaults(&args.policy).ok_or_else(|| unknown_policy(&args.policy, PolicySpec::all_names()))?
    };
    let json = to_sglang_json(&spec).map_err(|e| Problem::bad_input(format!("{}: {e}", spec.label())))?;
    print(&format!("{}\n", json.trim_end()))
}

/// Finds the best draft length for each batch size. To do so, it simulates every length in closed loops. Prints the
/// lengths as vLLM's `speculative_config` to stdout, and the results of all simulations to stderr.
fn vllm(args: &ExportVllmArgs) -> Result<()> {
    if args.batch_sizes.is_empty() || args.batch_sizes.contains(&0) {
        return Err(Problem::bad_input("--batch-sizes: a batch has at least one request").help("for example 1,4,16,64"));
    }
    let plan = shipped::load(&args.file, &args.sets)?;
    plan.warnings().iter().for_each(|w| eprintln!("warning: {w}"));
    plan.variants.iter().try_for_each(|v| v.filled.check_all_lengths())?;
    let hardware = plan.variants[0].experiment.hardware.clone();
    let stated = stated_method(plan.variants[0].experiment.engine.method);
    let method = args.method.as_deref().or(stated);
    let _watch = work().interrupt.watch();
    let table = Table::find(plan, &args.file, &args.batch_sizes, work().interrupt.flag())?;
    eprint!("{}", table.in_words());
    if table.ranges.is_empty() {
        return Err(Problem::bad_input("no batch size was reached: there is no table to write").help(
            "give smaller ones with --batch-sizes, or a larger engine (engine.max_num_seqs, engine.num_gpu_blocks)",
        ));
    }
    let config = to_vllm_speculative_config(method, args.model.as_deref(), &table.ranges)
        .map_err(|e| Problem::bad_input(format!("no table to write: {}", e.why)))?;
    no_draft(&hardware, method, args.model.as_deref()).iter().for_each(|note| eprintln!("{note}"));
    print(&format!("{config}\n"))
}
