//! Runs shards and merges them. Lists finished and missing cells, and makes the same results as a run on one machine.

use crate::cells::{
    EXPERIMENT, Failure, Failures, Folder, Manifest, Marks, PROBES, Shard, Speed, Store, Timing, comparison, ids, key,
};
use crate::complete::{Complete, How, Made, put_together};
use crate::plan::Plan;
use crate::report;
use crate::spec::problem::{Exit, Problem, Result};
use crate::work::Work;
use foretoken_report::plain_table;
use rayon::ThreadPool;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The progress of a run that is split into shards.
#[derive(Debug, Serialize)]
pub struct State {
    /// Number of cells in the whole experiment.
    pub cells: usize,
    /// The progress of each shard, in the order of shard numbers.
    pub shards: Vec<Part>,
    /// The cells that failed, with their errors, in the order of the plan, which lists all runs.
    pub failures: Vec<Failure>,
    /// The cells with damaged files, and the cells that are missing although their shard is complete; in the order of
    /// the plan, which lists all runs.
    pub damaged: Vec<Damaged>,
    /// For each unfinished shard, the command that runs its missing cells.
    pub commands: Vec<String>,
}

/// A cell whose file is damaged or missing.
#[derive(Debug, Serialize)]
pub struct Damaged {
    /// The cell as text: policy, swept values and seed.
    pub cell: String,
    /// The path of the file with the cell's results, and what is wrong with the file.
    pub what: String,
}

/// The progress of one shard.
#[derive(Debug, Serialize)]
pub struct Part {
    /// The name of the shard, as `I/N`: its number and the number of shards.
    pub shard: String,
    /// Did a command begin to run this shard?
    pub begun: bool,
    pub cells: usize,
    /// Number of the shard's cells that are finished.
    pub finished: usize,
    /// Number of the shard's cells that failed.
    pub failed: usize,
}

impl State {
    fn of(plan: &Plan, folder: &Folder, manifest: &Manifest) -> Result<State> {
        let (of, marks) = Marks::of(folder)?.agree(manifest)?;
        let (store, failures) = (Store::open(folder, &manifest.digest)?, Failures::of(folder));
        let of = of.expect("shards were looked for before");
        let part = |shard: Shard| Part {
            shard: shard.to_string(),
            begun: marks.iter().any(|mark| mark.shard == shard),
            cells: 0,
            finished: 0,
            failed: 0,
        };
        let mut state = State {
            cells: plan.cells(),
            shards: Shard::all(of).map(part).collect(),
            failures: Vec::new(),
            damaged: Vec::new(),
            commands: Vec::new(),
        };
        for id in ids(plan) {
            let which = comparison(plan, id) % of as usize;
            let part = &mut state.shards[which];
            part.cells += 1;
            if store.has(id) {
                part.finished += 1;
            } else if let Some(failure) = failures.get(id) {
                part.failed += 1;
                state.failures.push(failure);
            } else {
                let was_complete = marks.iter().any(|m| m.shard.index as usize == which + 1 && m.complete);
                let gone = || was_complete.then(|| format!("{} is gone", store.file(id).display()));
                let what = store.damage(id, ids(plan)).or_else(gone);
                state.damaged.extend(what.map(|what| Damaged { cell: key(plan, id).to_string(), what }));
            }
        }
        Ok(state.command("run", folder))
    }

    /// Adds the commands that run the missing cells: `foretoken COMMAND` for each unfinished shard.
    pub fn command(mut self, command: &str, folder: &Folder) -> State {
        let unfinished = self.shards.iter().filter(|p| p.finished < p.cells);
        self.commands = unfinished.map(|p| p.command(command, folder)).collect();
        self
    }

    /// Are all cells of all shards finished?
    pub fn is_complete(&self) -> bool {
        self.shards.iter().all(|part| part.finished == part.cells)
    }

    /// The progress of all shards as text: a table of shards, failed and damaged cells, and the commands that finish
    /// the run.
    pub fn in_words(&self) -> String {
        let rows = self.shards.iter().map(|Part { shard, begun, cells, finished, failed }| {
            let missing = cells - finished - failed;
            let missing = if *begun || missing == 0 { missing.to_string() } else { format!("{missing} (not begun)") };
            [shard.clone(), cells.to_string(), finished.to_string(), failed.to_string(), missing]
        });
        let table = plain_table(["shard", "cells", "finished", "failed", "missing"], rows, ..0);
        let mut text = format!("{table}\n");
        for Failure { cell, exit, message, .. } in self.failures.iter().take(FEW) {
            writeln!(text, "failed: {cell}: {message} (exit code {exit})").expect("a string grows");
        }
        if let more @ 1.. = self.failures.len().saturating_sub(FEW) {
            writeln!(text, "failed: {more} more (cells/*.failure.json)").expect("a string grows");
        }
        for Damaged { cell, what } in self.damaged.iter().take(FEW) {
            writeln!(text, "damaged: {cell}: {what}").expect("a string grows");
        }
        if let more @ 1.. = self.damaged.len().saturating_sub(FEW) {
            writeln!(text, "damaged: {more} more (--list --format json names all)").expect("a string grows");
        }
        if !self.commands.is_empty() {
            writeln!(text, "to finish it:").expect("a string grows");
        }
        for command in &self.commands {
            writeln!(text, "  {command}").expect("a string grows");
        }
        text
    }

    /// The error for a run of which some shards (parts) are not complete, with a hint.
    pub fn problem(&self) -> Box<Problem> {
        let unfinished = self.shards.iter().map(|p| p.cells - p.finished).sum::<usize>();
        let of_these = match self.damaged.as_slice() {
            [] => String::new(),
            [Damaged { cell, what }] => format!(": {what} ({cell})"),
            [Damaged { cell, what }, more @ ..] => format!(": {what} ({cell}), and {} more are damaged", more.len()),
        };
        let are = if unfinished == 1 { "is" } else { "are" };
        let message = format!("{unfinished} of {} cells {are} not finished{of_these}", self.cells);
        let them = if self.commands.len() == 1 { "the command" } else { "the commands" };
        Problem::new(Exit::Failed, message).help(format!("run {them} above, and merge again"))
    }
}

impl Part {
    /// The command line that runs the missing cells of the shard. It names the experiment's file that the first shard
    /// wrote into the folder.
    fn command(&self, command: &str, folder: &Folder) -> String {
        let again = if self.failed > 0 { " --retry-failed" } else { "" };
        let (experiment, to) = (folder.shards().join(EXPERIMENT), folder.path());
        let [experiment, to] = [&experiment, to].map(|path| quoted(&path.display().to_string()));
        format!("foretoken {command} {experiment} -o {to} --shard {} --resume{again}", self.shard)
    }
}

/// The path of a file or folder, quoted for a shell if it needs quotes.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !path.is_empty() && path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

const FEW: usize = 8;

pub fn state(path: &Path) -> Result<State> {
    let (folder, manifest) = shared(path)?;
    // Reads the plan without traces, which may be missing on this machine.
    State::of(&Plan::of_results(folder.path())?, &folder, &manifest)
}

/// The outcome of merging the shards (parts) of a run.
pub enum Merged {
    /// The merge succeeded: the folder has complete results.
    Complete(Box<Complete>),
    /// The merge is not possible, because cells are missing, damaged or failed. The error says so, with a hint.
    Missing(State, Box<Problem>),
}

/// Makes complete results from the shards in the folder at `path`. The results equal the results of a run on one
/// machine, except the manifest's timing: the engine time is the sum over shards, the wall time is the wall time of the
/// longest shard. If the folder is complete already, only removes the folders that complete results do not need.
pub fn merge(path: &Path, how: impl FnOnce(&Plan) -> How, pool: &ThreadPool, work: &Work) -> Result<Merged> {
    if Manifest::read(path)?.complete {
        let folder = Folder::at(path.to_path_buf());
        folder.clear_up()?;
        let how = how(&Plan::of_results(path)?);
        return Ok(Merged::Complete(Box::new(Complete::before(folder, how)?)));
    }
    let (mut folder, manifest) = shared(path)?;
    folder.keep_others_out(true)?;
    let marks = Marks::of(&folder)?;
    let lock = marks.merging()?;
    let plan = Plan::load(&folder.shards().join(EXPERIMENT), &[])?;
    if plan.digest() != manifest.digest {
        let message =
            format!("{}: the files that the experiment reads are not those that its shards read", path.display());
        return Err(Problem::bad_input(message).help("put the traces back as they were"));
    }
    let state = State::of(&plan, &folder, &manifest)?;
    if !state.is_complete() {
        let problem = state.problem();
        return Ok(Merged::Missing(state, problem));
    }
    work.interrupt.keeps("the shards are kept", "merge them again");
    let how = how(&plan);
    let (mut results, notes) = put_together(&plan, &folder, how, pool, work)?;
    let timing = timing(&marks)?;
    let speed = Speed { cells: timing.cells, wall_s: timing.wall_s, engine_s: timing.engine_s, ..Speed::default() };
    folder.complete_merged(manifest, timing)?;
    drop(lock);
    let page = report::make_of(folder.path(), &mut results)?;
    let made = Some(Made { results, notes, speed });
    Ok(Merged::Complete(Box::new(Complete { folder, made, page })))
}

/// The timing of a run that was split into shards: the engine time is the sum over shards, and the wall time is the
/// longest wall time of a shard.
pub fn timing(marks: &Marks) -> Result<Timing> {
    let marks = marks.all()?;
    let timings = || marks.iter().map(|mark| &mark.timing);
    Ok(Timing {
        cells: timings().map(|t| t.cells).sum(),
        wall_s: timings().map(|t| t.wall_s).fold(0.0, f64::max),
        engine_s: timings().map(|t| t.engine_s).sum(),
    })
}

/// Opens a results folder that shards share, and checks its manifest.
pub fn shared(path: &Path) -> Result<(Folder, Manifest)> {
    let manifest = Manifest::read(path)?;
    manifest.check(path, [EXPERIMENT])?;
    let folder = Folder::at(path.to_path_buf());
    if manifest.version != env!("CARGO_PKG_VERSION") {
        let message =
            format!("{} was begun by Foretoken {}, and this is another version", path.display(), manifest.version);
        return Err(Problem::bad_input(message).help("merge with the version that ran the shards"));
    }
    if !folder.shards().is_dir() || Marks::of(&folder)?.all()?.is_empty() {
        return Err(Problem::bad_input(format!("{} holds no shards", path.display()))
            .help("they are made by `foretoken run … --shard I/N -o DIR`; an unfinished run goes on with --resume"));
    }
    Ok((folder, manifest))
}

/// Runs one shard of an experiment in the folder at `path`. `goes_on`: may the call continue a shard that was begun
/// before? `again`: run cells again that failed before?
pub fn run_shard(
    plan: &Plan,
    path: &Path,
    shard: Shard,
    goes_on: bool,
    again: bool,
    pool: &ThreadPool,
    work: &Work,
) -> Result<Ran> {
    let (folder, complete) = Folder::join(path.to_path_buf(), plan)?;
    if complete {
        return Ok(Ran::Before);
    }
    if folder.path().join(PROBES).is_dir() {
        let message = format!("{} holds shards of a search for the fewest replicas", path.display());
        return Err(Problem::bad_input(message).help("choose another folder with -o"));
    }
    let manifest = Manifest::read(path)?;
    let marks = Marks::of(&folder)?;
    let store = Store::open(&folder, &manifest.digest)?;
    let whole = ids(plan).filter(|&id| shard.has(comparison(plan, id))).all(|id| store.has(id));
    let Some(lock) = marks.begin(shard, &manifest, goes_on, whole)? else { return Ok(Ran::Before) };
    work.interrupt.keeps("what was finished is kept", "run the same command with --resume to go on");
    let watch = work.interrupt.watch();
    let (speed, failures) = pool.install(|| crate::cells::run_shard(plan, &folder, shard, again, work))?;
    drop(watch);
    let timing = Timing { cells: speed.cells, wall_s: speed.wall_s, engine_s: speed.engine_s };
    marks.write(shard, &manifest, failures.is_empty(), timing)?;
    drop(lock);
    let cells = ids(plan).filter(|&id| shard.has(comparison(plan, id))).count();
    let Some(first) = failures.first() else { return Ok(Ran::Now { cells, speed }) };
    let exit = if first.exit == Exit::BadInput as u8 { Exit::BadInput } else { Exit::Failed };
    let Failure { cell, message, help, .. } = first;
    let message = format!("{} of {cells} cells of shard {shard} failed, first {cell}: {message}", failures.len());
    Err(Problem::new(exit, message)
        .help(format!("{help}; the others are finished, and --resume --retry-failed tries these again")))
}

/// The outcome of running a shard.
pub enum Ran {
    /// The shard was complete before this call.
    Before,
    /// This call completed the shard.
    Now {
        cells: usize,
        /// The simulator's speed in this call.
        speed: Speed,
    },
}
