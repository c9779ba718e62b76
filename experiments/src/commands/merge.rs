//! `foretoken merge`: the shards of a run, put together, and what is missing of them. Running one is here, too.

use super::print;
use crate::cli::{Format, MergeArgs, RunArgs};
use foretoken_run::cells::Shard;
use foretoken_run::complete::{Complete, How, Made, REPORT_JSON, REPORT_TEXT};
use foretoken_run::merge::{Merged, Ran, State, merge, run_shard, state};
use foretoken_run::plan::Plan;
use foretoken_run::{cells::Mode, machine};
use foretoken_spec::problem::{Problem, Result};
use rayon::ThreadPool;
use std::path::PathBuf;

/// Runs the command.
pub fn run(args: &MergeArgs) -> Result<()> {
    if args.list {
        return print(&words(&state(&args.folder)?, args.format));
    }
    let how = |plan: &Plan| How {
        mode: Mode::Resume,
        figures: plan.variants[0].experiment.output.figures && !args.no_figures,
        check_settings: args.check_settings.into(),
    };
    let pool = machine::pool(args.threads.map(usize::from), usize::MAX)?;
    let Complete { folder, made, page } = match merge(&args.folder, how, &pool)? {
        Merged::Complete(complete) => *complete,
        Merged::Missing(state, problem) => {
            eprintln!("{}", state.in_words().trim_end());
            return Err(problem);
        }
    };
    match made {
        None => eprintln!("{} is complete: nothing to merge", folder.path().display()),
        Some(Made { results, notes, speed }) => {
            results.comparison.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
            notes.iter().for_each(|note| eprintln!("note: {note}"));
            eprintln!("results: {}\nshards: {speed}", folder.path().display());
        }
    }
    if let Some(page) = page {
        eprintln!("report: {}", page.display());
    }
    let name = match args.format {
        Format::Table => REPORT_TEXT,
        Format::Json => REPORT_JSON,
    };
    print(&fs_err::read_to_string(folder.path().join(name)).map_err(|e| Problem::failed(e.to_string()))?)
}

fn words(state: &State, format: Format) -> String {
    match format {
        Format::Table => state.in_words(),
        Format::Json => serde_json::to_string_pretty(state).expect("plain data always serialises") + "\n",
    }
}

/// Runs one shard of a plan into the folder that all share.
pub fn shard(args: &RunArgs, plan: &Plan, path: PathBuf, shard: Shard, pool: &ThreadPool) -> Result<()> {
    let path = path.as_path();
    match run_shard(plan, path, shard, args.resume, args.retry_failed, pool)? {
        Ran::Before => eprintln!("shard {shard} is complete: nothing to run"),
        Ran::Now { cells, speed } => eprintln!("shard {shard} is complete: {cells} cells\nsimulator: {speed}"),
    }
    eprintln!("when all {} are: foretoken merge {}", shard.of, path.display());
    Ok(())
}
