//! The options of commands that run an experiment into a results folder and can go on with an unfinished one.

use clap::Args;
use foretoken_run::cells::Mode;
use foretoken_run::machine;
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::Result;
use rayon::ThreadPool;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Options of `capacity`, `fleet` and `ladder`.
#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// Replace or add a value of the experiment; the new value may be a sweep
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Folder for the results [default: results/COMMAND-<name>-<digest>]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Continue the unfinished run in the output folder
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Replace the results in the output folder
    #[arg(long)]
    pub overwrite: bool,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

impl ResultsArgs {
    /// The results folder of `command`, what to do if it is not empty, and the threads for the runs of `plan`. Prints
    /// the warnings of the plan.
    pub fn of(&self, plan: &Plan, command: &str) -> Result<(PathBuf, Mode, ThreadPool)> {
        plan.warnings().iter().for_each(|w| eprintln!("warning: {w}"));
        let path = self.output.clone().unwrap_or_else(|| plan.usual_folder(&format!("{command}-")));
        let pool = machine::pool(self.threads.map(usize::from), plan.cells())?;
        Ok((path, mode(self.resume, self.overwrite), pool))
    }
}

/// What `--resume` and `--overwrite` say of a results folder that is not empty.
pub fn mode(resume: bool, overwrite: bool) -> Mode {
    match (overwrite, resume) {
        (true, _) => Mode::Overwrite,
        (_, true) => Mode::Resume,
        _ => Mode::Fresh,
    }
}
