//! `foretoken run`: runs one experiment and prints its comparison of policies. Given a folder, runs all its experiments
//! and prints tables over them: whether the claims of papers hold, the answers to users' questions, and the arena, a
//! comparison of all policies over many experiments.

mod arena;

use super::answer::answer;
use super::print;
use crate::cli::results::mode;
use crate::{shipped, work};
use clap::{Args, ValueEnum};
use foretoken_run::arena::{Standings, render, render_csv, render_json, render_markdown};
use foretoken_run::cells::Shard;
use foretoken_run::cells::{Assembled, Folder};
use foretoken_run::compare::{Comparison, REPORT_JSON};
use foretoken_run::complete::{Complete, How, Made, REPORT_TEXT, REPORT_WIDE, complete};
use foretoken_run::merge::{Ran, run_shard};
use foretoken_run::papers::{self, PaperReport};
use foretoken_run::plan::Plan;
use foretoken_run::questions::{self, Answer};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::table::Width;
use foretoken_run::{flat_table, machine, table, why};
use rayon::ThreadPool;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "Examples:
  foretoken run experiments/quickstart.toml
  foretoken run experiments/quickstart.toml --set seeds='[1]' --set engine.max_num_seqs=64 -o results/small
  foretoken run experiments/quickstart.toml --set 'hardware.noise_cv={ sweep = [0.0, 0.05] }'
  foretoken run experiments/quickstart.toml --resume
  foretoken run experiments/quickstart.toml --resume --why
  foretoken run experiments/quickstart.toml --overwrite --format json
  foretoken run experiments/quickstart.toml --resume --format csv
  foretoken run experiments/papers/ --resume
  foretoken run experiments/questions/ --resume
  foretoken run experiments/arena/ --quick
  foretoken run experiments/quickstart.toml --shard 1/2 -o results/shared --resume
  foretoken run experiments/quickstart.toml --shard 2/2 -o results/shared --resume";

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The experiment, or a folder whose experiments all run; a folder also prints one table of papers' claims, of
    /// answers to questions, or of the arena's policies
    pub file: PathBuf,
    /// Replace or add a value of the experiment; the new value may be a sweep
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Folder for the results; a folder of experiments gets a subfolder for each [default: results/<name>-<digest>]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Continue the unfinished run in the output folder
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Replace the results in the output folder
    #[arg(long)]
    pub overwrite: bool,
    /// How to print the comparison of the policies
    #[arg(long, value_enum, default_value_t)]
    pub format: RunFormat,
    /// Number of cells that run at once; a cell is one policy with one seed [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Write no figures and no page
    #[arg(long)]
    pub no_figures: bool,
    /// Also show the autoregressive run if it was only added as the baseline
    #[arg(long)]
    pub show_implied: bool,
    /// Print all columns of the table, which is then wider than 80 characters
    #[arg(long)]
    pub wide: bool,
    /// Say why each policy is slower or faster than plain decoding: the time difference, split by cause
    #[arg(long, conflicts_with = "shard")]
    pub why: bool,
    /// Of a folder's experiments with an [arena] table, run only those with arena.quick = true, each with two seeds
    #[arg(long, conflicts_with = "shard")]
    pub quick: bool,
    /// Add the policy oracle-goodput, and every policy's regret: how far its mean end-to-end latency is above the
    /// oracle's
    #[arg(long)]
    pub regret: bool,
    /// Run one shard of N into a folder that all shards share; `foretoken merge` merges them
    #[arg(long, value_name = "I/N", conflicts_with = "overwrite")]
    pub shard: Option<Shard>,
    /// With --shard --resume: run cells again that failed; a cell is one policy with one seed
    #[arg(long, requires = "shard", requires = "resume")]
    pub retry_failed: bool,
}

/// How the results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RunFormat {
    /// Text for a terminal
    #[default]
    Table,
    /// One JSON document
    Json,
    /// For an experiment, one table with all numbers; for a folder, a page about its questions, or the arena's table
    Markdown,
    /// The numbers of an experiment, with a row for each setting and policy; of the arena, a row for each scenario and
    /// policy
    Csv,
    /// A table of the experiment for a paper (LaTeX with the package booktabs)
    Latex,
}

/// Name of the page with all answers that a folder of experiments gives to questions.
const QUESTIONS: &str = "questions.html";

/// Runs one experiment, one shard of it, or all experiments of a folder. Prints the results.
pub fn run(args: &RunArgs) -> Result<()> {
    if args.file.is_dir() {
        if args.why {
            return Err(Problem::bad_input("--why explains one experiment, and this is a folder of several")
                .help("give them one by one"));
        }
        return match args.shard {
            None => run_folder(args),
            Some(_) => Err(Problem::bad_input("shards are parts of one experiment, and this is a folder of several")
                .help("give them one by one")),
        };
    }
    let plan = load(args, &args.file, &args.sets)?;
    let refused = |what: &str, give: &str| Problem::bad_input(format!("{what}, and this is one experiment")).help(give);
    let an_arena = "give a folder with scenarios of the arena, such as experiments/arena/";
    if args.quick {
        return Err(refused("--quick chooses among the scenarios of the arena", an_arena));
    }
    if args.why && !matches!(args.format, RunFormat::Table | RunFormat::Json) {
        let help = "leave out --format, or give --format json, which has the parts";
        return Err(
            Problem::bad_input("--why is for the printed table, and this format has one row a policy").help(help)
        );
    }
    let path = args.output.clone().unwrap_or_else(|| plan.usual_folder(""));
    if let Some(of) = args.shard {
        plan.warnings().iter().for_each(|w| eprintln!("warning: {w}"));
        return shard(args, &plan, path, of, &pool(args, plan.cells())?);
    }
    let (folder, results) = run_plan(args, &plan, path, &pool(args, plan.cells())?)?;
    match (args.format, results) {
        (RunFormat::Table, Some(results)) => {
            let width = if args.wide { Width::Wide } else { Width::Narrow };
            let c = &results.comparison;
            answer(&table::render(c, args.show_implied, width), |variant, policy| c.best_at(variant) == Some(policy))?
        }
        _ => print_report(args, &folder)?,
    }
    match args.format {
        RunFormat::Table if args.why => print(&format!("\n{}", why::of_folder(folder.path())?)),
        // JSON output gets no text for `--why`: it already has the parts of each policy's time difference.
        _ => Ok(()),
    }
}

fn load(args: &RunArgs, file: &Path, sets: &[String]) -> Result<Plan> {
    let plan = shipped::load(file, sets)?;
    if args.regret { plan.with_regret() } else { Ok(plan) }
}

/// Runs every experiment of a folder, each into a results folder of its own. Then prints the tables over all of them:
/// the claims of papers, the answers to questions, and the arena.
fn run_folder(args: &RunArgs) -> Result<()> {
    let mut scenarios = arena::Scenarios::default();
    let plans = plans_of(args, &mut scenarios)?;
    check_format(args, &plans)?;
    let pool = pool(args, plans.iter().map(Plan::cells).max().unwrap_or(1))?;
    let (mut reports, mut answers) = (Vec::new(), Vec::new());
    for (i, plan) in plans.iter().enumerate() {
        eprintln!("[{} of {}] {}", i + 1, plans.len(), plan.name);
        let path = args.output.as_ref().map_or_else(|| plan.usual_folder(""), |o| o.join(&plan.name));
        let (folder, _) = run_plan(args, plan, path, &pool)?;
        let parts = Comparison::kept_in(folder.path())?;
        reports.extend(parts.paper.map(|report| (plan.name.as_str(), report)));
        answers.extend(parts.question.map(|answer| (plan.name.as_str(), answer)));
        if let Some(scenario) = parts.arena {
            scenarios.finished(&plan.name, scenario);
        }
    }
    let folder = args.output.as_deref().unwrap_or(Path::new("results"));
    if !answers.is_empty() {
        let (path, page) = (folder.join(QUESTIONS), questions::page(answers.iter().map(|(name, a)| (*name, a))));
        fs_err::write(&path, page.html()).map_err(|e| Problem::failed(e.to_string()))?;
        eprintln!("questions: {}", path.display());
    }
    let standings = scenarios.standings(args.quick, folder)?;
    print(&folder_text(args.format, &reports, &answers, standings.as_ref()))
}

/// Refuses LaTeX for a folder. Refuses `--quick` and CSV if no experiment of the folder has an `[arena]` table, and
/// Markdown if none has an `[arena]` or a `[question]` table.
fn check_format(args: &RunArgs, plans: &[Plan]) -> Result<()> {
    let experiments = || plans.iter().map(|plan| &plan.variants[0].experiment);
    let (asked, arena) = (experiments().any(|e| e.question.is_some()), experiments().any(|e| e.arena.is_some()));
    let lacks = |what: &str, help: &str| {
        Err(Problem::bad_input(format!("{} holds no experiment with {what}", args.file.display())).help(help))
    };
    match args.format {
        RunFormat::Markdown if !asked && !arena => {
            lacks("a [question] or an [arena]", "only questions and the arena are printed as Markdown")
        }
        RunFormat::Latex => Err(Problem::bad_input("only one experiment is printed as LaTeX, and this is a folder")
            .help("give one experiment of the folder")),
        RunFormat::Csv if !arena => lacks("an [arena]", "only the arena is printed as CSV"),
        _ if args.quick && !arena => lacks("an [arena]", "leave out --quick"),
        _ => Ok(()),
    }
}

/// The output of `run` on a folder of experiments, as text: whether the claims of papers hold and the answers to
/// questions, for each experiment, and the arena.
fn folder_text(
    format: RunFormat,
    papers: &[(&str, PaperReport)],
    answers: &[(&str, Answer)],
    standings: Option<&Standings>,
) -> String {
    let claims = || papers.iter().map(|(name, report)| (*name, report));
    let asked = || answers.iter().map(|(name, answer)| (*name, answer));
    let parts: Vec<String> = match format {
        RunFormat::Json => {
            let document = serde_json::json!({
                "papers": papers::render_json(claims()),
                "questions": papers::render_json(asked()),
                "arena": standings.map(render_json),
            });
            vec![serde_json::to_string_pretty(&document).expect("plain data always serialises") + "\n"]
        }
        RunFormat::Table => {
            let empty = answers.is_empty() && standings.is_none();
            let papers = (!papers.is_empty() || empty).then(|| papers::render(claims()));
            let answers = (!answers.is_empty()).then(|| questions::render(asked()));
            papers.into_iter().chain(answers).chain(standings.map(render)).collect()
        }
        RunFormat::Markdown => {
            let answers = (!answers.is_empty()).then(|| questions::render_markdown(asked()));
            answers.into_iter().chain(standings.map(render_markdown)).collect()
        }
        // An experiment folder is never printed as LaTeX: `check_format` has refused it before.
        RunFormat::Csv | RunFormat::Latex => standings.map(render_csv).into_iter().collect(),
    };
    parts.join("\n")
}

/// The plans of a folder's experiments, sorted by file name. All files are read before the first experiment runs.
fn plans_of(args: &RunArgs, scenarios: &mut arena::Scenarios) -> Result<Vec<Plan>> {
    let folder = &args.file;
    let cannot = |e| Problem::bad_input(format!("cannot look into {}: {e}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(cannot)?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "toml") && file.is_file());
    files.sort();
    if files.is_empty() {
        let problem = Problem::bad_input(format!("{} holds no experiment", folder.display()));
        return Err(problem.help("give an experiment, or a folder with experiments (*.toml) in it"));
    }
    let mut plans: Vec<Plan> = Vec::new();
    let mut sources: Vec<&PathBuf> = Vec::new();
    for file in &files {
        let load = |file: &Path, sets: &[String]| load(args, file, sets);
        let Some(plan) = scenarios.plan(file, &args.sets, args.quick, load)? else { continue };
        if let Some(first) = plans.iter().position(|other| other.name == plan.name) {
            let (first, second) = (sources[first].display(), file.display());
            let problem = Problem::bad_input(format!("{first} and {second} are both named `{}`", plan.name));
            return Err(problem.help("their results would land in one folder: give one of them another name"));
        }
        plans.push(plan);
        sources.push(file);
    }
    if plans.is_empty() { Err(scenarios.explain_nothing(folder)) } else { Ok(plans) }
}

/// The thread pool for all experiments of a command. `cells` is the number of cells of the largest experiment. The pool
/// has at most this number of threads.
fn pool(args: &RunArgs, cells: usize) -> Result<ThreadPool> {
    machine::pool(args.threads.map(usize::from), cells)
}

/// Runs the cells whose results are missing in the folder `path`, so that the folder is complete. Returns the results
/// if this call computed them; `None` if the folder was complete before.
fn run_plan(args: &RunArgs, plan: &Plan, path: PathBuf, pool: &ThreadPool) -> Result<(Folder, Option<Assembled>)> {
    let mode = mode(args.resume, args.overwrite);
    plan.warnings().iter().for_each(|w| eprintln!("warning: {w}"));
    let how = How { mode, figures: wants_figures(args, plan) };
    let Complete { folder, made, page } = complete(plan, path, how, pool, work())?;
    if made.is_none() {
        eprintln!("{} is complete: nothing to run", folder.path().display());
        say_what_is_missing(args, plan, &folder);
    }
    if let Some(page) = page {
        eprintln!("report: {}", page.display());
    }
    let Some(Made { results, notes, speed }) = made else { return Ok((folder, None)) };
    // Some warnings, such as those about profiles, were known before the run and were printed then. They are not
    // printed again.
    let said = plan.warnings();
    let new: Vec<&String> = results.comparison.warnings.iter().filter(|w| !said.contains(&w.as_str())).collect();
    match new.len() {
        // In the arena, each experiment would print the same warnings. So only their number and the file that has them
        // are printed.
        n @ 1.. if is_one_of_many(args, plan) => {
            eprintln!("note: {n} warnings are in {}", folder.path().join(REPORT_JSON).display());
        }
        _ => new.iter().for_each(|w| eprintln!("warning: {w}")),
    }
    notes.iter().for_each(|note| eprintln!("note: {note}"));
    eprintln!("results: {}\nsimulator: {speed}", folder.path().display());
    Ok((folder, Some(results)))
}

/// True if the command runs a whole folder and this experiment is a scenario of the arena.
fn is_one_of_many(args: &RunArgs, plan: &Plan) -> bool {
    args.file.is_dir() && plan.variants[0].experiment.arena.is_some()
}

fn wants_figures(args: &RunArgs, plan: &Plan) -> bool {
    plan.variants[0].experiment.output.figures && !args.no_figures
}

/// If the results folder is already complete, prints a note for each wanted output that it lacks: figures, and the
/// added autoregressive run in the table. Only a new run can make them, because the detailed data of a complete run are
/// deleted.
fn say_what_is_missing(args: &RunArgs, plan: &Plan, folder: &Folder) {
    if wants_figures(args, plan) && !folder.figures().exists() {
        eprintln!("note: it was run without figures: run with --overwrite to draw them");
    }
    if args.show_implied && args.format == RunFormat::Table && plan.policies[plan.baseline].implied {
        eprintln!("note: the table it keeps lacks the implied run: --format json has it, and so has --overwrite");
    }
}

fn print_report(args: &RunArgs, folder: &Folder) -> Result<()> {
    let name = match args.format {
        RunFormat::Table if args.wide => REPORT_WIDE,
        RunFormat::Table => REPORT_TEXT,
        RunFormat::Json => REPORT_JSON,
        RunFormat::Markdown => return flat(args, folder, flat_table::Format::Markdown),
        RunFormat::Csv => return flat(args, folder, flat_table::Format::Csv),
        RunFormat::Latex => return flat(args, folder, flat_table::Format::Latex),
    };
    let text = fs_err::read_to_string(folder.path().join(name)).map_err(|e| Problem::failed(e.to_string()))?;
    print(&text)
}

/// Prints the results folder's comparison of policies as one flat table (CSV, Markdown or LaTeX).
fn flat(args: &RunArgs, folder: &Folder, format: flat_table::Format) -> Result<()> {
    print(&flat_table::of_folder(folder.path(), format, args.show_implied)?)
}

/// Runs one shard into the folder that all shards share.
fn shard(args: &RunArgs, plan: &Plan, path: PathBuf, shard: Shard, pool: &ThreadPool) -> Result<()> {
    let path = path.as_path();
    match run_shard(plan, path, shard, args.resume, args.retry_failed, pool, work())? {
        Ran::Before => eprintln!("shard {shard} is complete: nothing to run"),
        Ran::Now { cells, speed } => eprintln!("shard {shard} is complete: {cells} cells\nsimulator: {speed}"),
    }
    eprintln!("when all {} are: foretoken merge {}", shard.of, path.display());
    Ok(())
}
