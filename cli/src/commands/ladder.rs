//! `foretoken ladder`: splits each policy's loss into parts by cause, such as wrong beliefs about costs. The loss says
//! how much slower the policy is than the best oracle, a policy that knows more than a server can. The parts are called
//! rungs.

use super::answer::answer;
use super::print;
use crate::cli::format::Format;
use crate::cli::results::ResultsArgs;
use crate::shipped;
use clap::Args;
use foretoken_report::read_cells;
use foretoken_run::cells::{LADDER_JSON, LADDER_PAGE, entries};
use foretoken_run::complete::{Complete, How, complete};
use foretoken_run::ladder::{Ladders, best, page, plan_of, render, render_json};
use foretoken_run::spec::problem::{Problem, Result};
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken ladder experiments/quickstart.toml --set 'policies=[{ adaspec = {} }]' --set seeds='[1]'
  foretoken ladder experiments/quickstart.toml --set workload.requests=1000 -o results/ladder --resume

Each rung gives a policy one more thing that it does not know, in a full run on the same luck: the true cost, the true
calibration, the true rates; then the bounds that know what was observed, all confidences, and the lengths; then the
best oracle. The heights sum to the policy's loss; negative ones are printed. A rung that does not apply is a dash: the
program has no policies with the true cost, calibration or rates yet.";

#[derive(Debug, Args)]
pub struct LadderArgs {
    /// The experiment; the loss of each of its policies against the best oracle is split by cause
    pub file: PathBuf,
    #[command(flatten)]
    pub results: ResultsArgs,
    /// How to print the ladders, which split each policy's loss by cause
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Runs the experiment with its policies, and with variants of them that know more than a server can know (such as the
/// true costs). Then writes and prints the ladders: the loss of each policy against the best oracle, split by cause.
pub fn run(args: &LadderArgs) -> Result<()> {
    let document = shipped::read_document(&args.file, &args.results.sets)?;
    let (plan, ways) = plan_of(document, shipped::folder(&args.file))?;
    let (path, mode, pool) = args.results.of(&plan, "ladder")?;
    let how = How { mode, figures: false };
    let Complete { folder, made, .. } = complete(&plan, path, how, &pool, crate::work())?;
    if made.is_none() {
        eprintln!("{} is complete: nothing to run", folder.path().display());
    }
    let cells = read_cells(folder.path(), &entries(&plan)).map_err(|e| Problem::failed(e.to_string()))?;
    let ladders = Ladders::of(&plan, &ways, &cells)
        .ok_or_else(|| Problem::bad_input("a run finished no request, so it has no latency to compare"))?;
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs_err::write(&path, text).map(|()| path).map_err(|e| Problem::failed(e.to_string()))
    };
    write(LADDER_JSON, render_json(&ladders))?;
    eprintln!("page: {}\nresults: {}", write(LADDER_PAGE, page(&ladders).html())?.display(), folder.path().display());
    match args.format {
        Format::Table => answer(&render(&ladders), |_, policy| best(&ladders) == Some(policy)),
        Format::Json => print(&render_json(&ladders)),
    }
}
