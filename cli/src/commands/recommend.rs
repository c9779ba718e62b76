//! `foretoken recommend`: how many tokens a server should draft for its traffic, and the gain.

use super::answer::answer;
use super::print;
use crate::cli::format::Format;
use crate::shipped;
use crate::work;
use clap::{Args, ValueEnum};
use foretoken_policies::PolicySpec;
use foretoken_run::cells::OBSERVED_JSON;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::calibrate::kept::{EXPERIMENT, FOUND, Known};
use foretoken_servers::calibrate::recommend::{
    ADVICE, Engine, Goal, Now, Objective, PAGE, Question, check, recommend, write,
};
use foretoken_sim::MAX_SPEC_LEN;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "Examples:
  foretoken recommend calibrated
  foretoken recommend calibrated --p99-tpot-ms 40 -o advice
  foretoken recommend calibrated --objective throughput --longest 8
  foretoken recommend experiments/quickstart.toml --now 0 --set engine.max_num_seqs=64

Candidates are simulated with the same requests and the same luck: every fixed length, the best table by batch size, and what the engine decides by
itself. Writes the answer, its figure, and the file to start the engine with.";

#[derive(Debug, Args)]
pub struct RecommendArgs {
    /// The folder that `calibrate` wrote, or any experiment without sweeps
    #[arg(value_name = "FOLDER|EXPERIMENT")]
    pub from: PathBuf,
    /// The quantity by which draft lengths are compared
    #[arg(long, value_enum, default_value_t)]
    pub objective: GoalArg,
    /// Consider only candidates whose 99th percentile of TPOT is at most this number of milliseconds
    #[arg(long, value_name = "MS")]
    pub p99_tpot_ms: Option<f64>,
    /// Tokens that the server drafts now [default: as in the last observed run; else the experiment's first policy]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_SPEC_LEN)))]
    pub now: Option<u32>,
    /// Longest draft to try [default: 5, or the longest that was observed]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SPEC_LEN)))]
    pub longest: Option<u32>,
    /// Engine for which settings are written
    #[arg(long, value_enum, default_value_t)]
    pub engine: EngineArg,
    /// vLLM's speculation method, for its start-up file: draft_model, eagle3, ngram, ...
    #[arg(long)]
    pub method: Option<String>,
    /// The draft model, for vLLM's start-up file
    #[arg(long)]
    pub model: Option<String>,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Folder for the recommendation [default: results/recommended-<name>]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace the recommendation in the output folder
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the recommendation
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// The quantity by which `foretoken recommend` compares draft lengths.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum GoalArg {
    /// The least mean end-to-end latency
    #[default]
    MeanE2e,
    /// The most output tokens per second, with as many requests at once as the engine runs
    Throughput,
    /// The largest share of requests within the experiment's [slo]
    Slo,
}

/// The engine whose settings are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum EngineArg {
    /// Write speculative_config.json for vLLM
    #[default]
    Vllm,
    /// Write adaptive_spec.json and DSpark's step times for SGLang
    Sglang,
}

/// The longest draft to try, tokens. Not used if a server was observed to draft more tokens, or if `--longest` is
/// given.
const LONGEST: u32 = 5;

/// Compares draft lengths in simulations, writes a recommendation into a folder, and prints it.
pub fn run(args: &RecommendArgs) -> Result<()> {
    let (file, known) = open(&args.from)?;
    let goal = match args.objective {
        GoalArg::MeanE2e => Goal::MeanE2e,
        GoalArg::Throughput => Goal::Throughput,
        GoalArg::Slo => Goal::Slo,
    };
    let limit = args.p99_tpot_ms;
    if limit.is_some_and(|ms| !(ms.is_finite() && ms > 0.0)) {
        return Err(Problem::bad_input("--p99-tpot-ms must be above 0").help("for example --p99-tpot-ms 40"));
    }
    let longest = args.longest.unwrap_or_else(|| known.as_ref().map_or(LONGEST, |k| k.positions.max(LONGEST)));
    let now = match (args.now, &known) {
        (Some(k), _) => Now::fixed(k, "as --now says"),
        (None, Some(known)) => Now::observed(known),
        (None, None) => first_policy(&file, &args.sets)?,
    };
    let ask = Question {
        text: shipped::read(&file)?,
        file,
        sets: args.sets.clone(),
        engine: match args.engine {
            EngineArg::Vllm => Engine::Vllm,
            EngineArg::Sglang => Engine::Sglang,
        },
        objective: Objective { of: goal, p99_tpot_s: limit.map(|ms| 1e-3 * ms) },
        longest: longest.max(now.k().unwrap_or(0)),
        now,
        method: args.method.clone(),
        model: args.model.clone(),
        known,
    };
    let name = args.from.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from("results").join(format!("recommended-{name}")));
    check(&folder, args.overwrite)?;
    let _watch = work().interrupt.watch();
    let advice = recommend(&ask, work().interrupt.flag())?;
    write(&advice, &folder, args.overwrite)?;
    match args.format {
        Format::Table => answer(&advice.in_words(), |_, _| false)?,
        Format::Json => {
            let path = folder.join(ADVICE);
            print(&fs_err::read_to_string(&path).map_err(|e| Problem::failed(e.to_string()))?)?;
        }
    }
    advice.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    eprintln!("recommendation: {} ({})", folder.join(PAGE).display(), advice.source);
    advice.judge()
}

/// Returns the path of the experiment, and what `calibrate` found about the server if the experiment lies in a folder
/// that `calibrate` wrote, else `None`.
fn open(from: &Path) -> Result<(PathBuf, Option<Known>)> {
    if from.join(OBSERVED_JSON).exists() {
        let folder = from.display();
        return Err(Problem::bad_input(format!("{folder} holds what was observed, and no calibration"))
            .help(format!("foretoken calibrate {folder} -o calibrated; then foretoken recommend calibrated")));
    }
    if from.is_dir() {
        return Ok((from.join(EXPERIMENT), Some(Known::read(from)?)));
    }
    // The user may give the experiment file in a folder that `calibrate` wrote, instead of the folder.
    let folder = from.parent().filter(|folder| folder.join(FOUND).exists());
    Ok((from.to_owned(), folder.map(Known::read).transpose()?))
}

/// The policy that the server runs now: the first policy of the experiment. Used if the user does not give `--now` and
/// `calibrate` did not write the experiment. An error unless this policy is plain decoding, a fixed draft length or
/// vLLM's table of draft lengths.
fn first_policy(file: &Path, sets: &[String]) -> Result<Now> {
    let plan = shipped::load(file, sets)?;
    let first = plan.policies.iter().find(|p| !p.implied).map(|p| &p.spec);
    match first {
        Some(spec @ (PolicySpec::Fixed(_) | PolicySpec::Autoregressive(_) | PolicySpec::VllmDynamic(_))) => {
            Ok(Now::of(spec.clone(), format!("the first policy of {}", file.display())))
        }
        other => {
            let label = other.map_or_else(|| "no policy".into(), PolicySpec::label);
            Err(Problem::bad_input(format!("{} begins with {label}: what does the server draft now?", file.display()))
                .help("say it with --now K; 0 is plain decoding"))
        }
    }
}
