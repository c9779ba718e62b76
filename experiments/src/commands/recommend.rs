//! `foretoken recommend`: what a server should draft for its traffic, and what that would bring.

use super::print;
use crate::cli::{EngineArg, Format, GoalArg, RecommendArgs};
use foretoken_calibrate::kept::{EXPERIMENT, FOUND, Known};
use foretoken_calibrate::recommend::{ADVICE, Engine, Goal, Now, Objective, PAGE, Question, check, recommend, write};
use foretoken_policies::PolicySpec;
use foretoken_run::cells::OBSERVED_JSON;
use foretoken_run::interrupt;
use foretoken_run::plan::Plan;
use foretoken_spec::problem::{Problem, Result};
use std::path::{Path, PathBuf};

/// Longest draft that is tried where nothing longer was observed.
const LONGEST: u32 = 5;

/// Runs the command.
pub fn run(args: &RecommendArgs) -> Result<()> {
    let (file, known) = open(&args.from)?;
    let of = match args.objective {
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
        file,
        sets: args.sets.clone(),
        engine: match args.engine {
            EngineArg::Vllm => Engine::Vllm,
            EngineArg::Sglang => Engine::Sglang,
        },
        objective: Objective { of, p99_tpot_s: limit.map(|ms| 1e-3 * ms) },
        longest: longest.max(now.k().unwrap_or(0)),
        now,
        method: args.method.clone(),
        model: args.model.clone(),
        known,
    };
    let name = args.from.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from("results").join(format!("recommended-{name}")));
    check(&folder, args.overwrite)?;
    let _watch = interrupt::watch();
    let advice = recommend(&ask, &interrupt::flag())?;
    write(&advice, &folder, args.overwrite)?;
    match args.format {
        Format::Table => print(&advice.in_words())?,
        Format::Json => {
            let path = folder.join(ADVICE);
            print(&fs_err::read_to_string(&path).map_err(|e| Problem::failed(e.to_string()))?)?;
        }
    }
    advice.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    eprintln!("recommendation: {} ({})", folder.join(PAGE).display(), advice.source);
    Ok(())
}

/// The experiment, and what is known of how far it can be trusted.
fn open(from: &Path) -> Result<(PathBuf, Option<Known>)> {
    if from.join(OBSERVED_JSON).exists() {
        let folder = from.display();
        return Err(Problem::bad_input(format!("{folder} holds what was observed, and no calibration"))
            .help(format!("foretoken calibrate {folder} -o calibrated; then foretoken recommend calibrated")));
    }
    if from.is_dir() {
        return Ok((from.join(EXPERIMENT), Some(Known::read(from)?)));
    }
    // The experiment of a calibration, given by itself.
    let folder = from.parent().filter(|folder| folder.join(FOUND).exists());
    Ok((from.to_owned(), folder.map(Known::read).transpose()?))
}

/// What the first policy of an experiment drafts.
fn first_policy(file: &Path, sets: &[String]) -> Result<Now> {
    let plan = Plan::load(file, sets)?;
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
