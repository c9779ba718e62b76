//! `foretoken merge`: merges the results of a run's shards, or lists the cells that are still missing.

use super::answer::print_kept;
use super::print;
use crate::cli::format::Format;
use clap::Args;
use foretoken_run::capacity::fleet::kept::FLEET_TEXT;
use foretoken_run::capacity::fleet::shards as fleets;
use foretoken_run::cells::FLEET_JSON;
use foretoken_run::compare::REPORT_JSON;
use foretoken_run::complete::{Complete, How, Made, REPORT_TEXT};
use foretoken_run::merge::{Merged, State, merge, state};
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::Result;
use foretoken_run::{cells::Mode, machine};
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken merge results/shared --list
  foretoken merge results/shared

Shards are made by `foretoken run EXPERIMENT --shard I/N -o results/shared`, or by `foretoken fleet` with the same options, on as many machines as see that folder (docs/sweeps.md). What comes of
them is byte for byte what one machine makes, but for the time it took.";

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The folder that the shards share
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Only print the progress of the shards
    #[arg(long)]
    pub list: bool,
    /// How to print the comparison of the policies, or the progress with --list
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Threads [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Write no figures and no page
    #[arg(long)]
    pub no_figures: bool,
}

/// Merges the shards in a folder and prints the comparison of the policies. With `--list`, only prints how many runs of
/// each shard are finished, failed or missing.
pub fn run(args: &MergeArgs) -> Result<()> {
    if fleets::is_here(&args.folder) {
        return merge_fleets(args);
    }
    if args.list {
        return print(&words(&state(&args.folder)?, args.format));
    }
    let how = |plan: &Plan| How {
        mode: Mode::Resume,
        figures: plan.variants[0].experiment.output.figures && !args.no_figures,
    };
    let pool = machine::pool(args.threads.map(usize::from), usize::MAX)?;
    let Complete { folder, made, page } = match merge(&args.folder, how, &pool, crate::work())? {
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
    print_kept(&folder, args.format, REPORT_TEXT, REPORT_JSON)
}

/// Merges the shards of a search for the fewest replicas. With `--list`, only prints how many searches of each shard
/// are finished, failed or missing.
fn merge_fleets(args: &MergeArgs) -> Result<()> {
    if args.list {
        return print(&words(&fleets::state(&args.folder)?, args.format));
    }
    let pool = machine::pool(args.threads.map(usize::from), usize::MAX)?;
    let folder = match fleets::merge(&args.folder, !args.no_figures, &pool, crate::work())? {
        fleets::Merged::Before(folder) => {
            eprintln!("{} is complete: nothing to merge", folder.path().display());
            folder
        }
        fleets::Merged::Now(folder) => {
            eprintln!("results: {}", folder.path().display());
            folder
        }
        fleets::Merged::Missing(state, problem) => {
            eprintln!("{}", state.in_words().trim_end());
            return Err(problem);
        }
    };
    print_kept(&folder, args.format, FLEET_TEXT, FLEET_JSON)
}

fn words(state: &State, format: Format) -> String {
    match format {
        Format::Table => state.in_words(),
        Format::Json => serde_json::to_string_pretty(state).expect("plain data always serialises") + "\n",
    }
}
