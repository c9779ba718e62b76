//! The search for the fewest replicas in shards. A shard has every N-th of the searches (one policy at one
//! combination of swept values, with all seeds), and several machines share the results folder.
//!
//! Each shard needs the capacity of one replica alone. The first shard that needs this capacity searches it, and the
//! other shards wait for the result. The comparison of fleets with and without drafting needs the results of all
//! searches, so it runs when the shards are merged.

use super::kept::write;
use super::plan::{Question, load};
use super::probe::Probes;
use super::run::{STORED, pairs, run, search_one};
use crate::capacity::run::run_these;
use crate::capacity::store::{SearchId, Store};
use crate::cells::{EXPERIMENT, FLEET_JSON, Folder, Lock, Manifest, Marks, PROBES, Shard, Timing};
use crate::load::read_document;
use crate::merge::{Part, State, shared, timing};
use crate::spec::problem::{Problem, Result};
use crate::work::Work;
use rayon::ThreadPool;
use rayon::prelude::*;
use std::path::Path;
use std::time::Instant;

/// Does the folder at `path` hold a search for the fewest replicas, finished or in shards?
pub fn is_here(path: &Path) -> bool {
    path.join(PROBES).is_dir() || path.join(FLEET_JSON).exists()
}

/// Prepares a folder for the shards of a search for the fewest replicas. Returns the folder, the number of searches
/// (policies × combinations of swept values), the number of cells (searches × seeds), and whether the results are
/// complete.
pub fn begin(question: &Question, path: &Path) -> Result<(Folder, usize, usize, bool)> {
    let (folder, complete) = Folder::join(path.to_path_buf(), &question.plan)?;
    Ok((folder, pairs(&question.plan).len(), question.plan.cells(), complete))
}

/// Continues or begins one shard of the search that the folder at `path` was prepared for. Returns the number of cells
/// (searches × seeds) of the shard; 0 if the shard was complete before.
pub fn go_on(path: &Path, shard: Shard, pool: &ThreadPool, work: &Work) -> Result<usize> {
    run_shard(&question_of(&Folder::at(path.to_path_buf()))?, path, shard, true, pool, work)
}

/// Runs one shard of a search for the fewest replicas in the folder at `path`. If `goes_on` is true, the call may
/// continue a shard that was begun before. Returns the number of cells (searches × seeds) of the shard; 0 if the shard
/// was complete before.
pub fn run_shard(
    question: &Question,
    path: &Path,
    shard: Shard,
    goes_on: bool,
    pool: &ThreadPool,
    work: &Work,
) -> Result<usize> {
    let plan = &question.plan;
    let (folder, complete) = Folder::join(path.to_path_buf(), plan)?;
    if complete {
        return Ok(0);
    }
    let manifest = Manifest::read(path)?;
    let marks = Marks::of(&folder)?;
    if !folder.path().join(PROBES).is_dir() && !marks.all()?.is_empty() {
        let message = format!("{} holds shards of `foretoken run`", path.display());
        return Err(Problem::bad_input(message).help("choose another folder with -o"));
    }
    let store = Store::open(&folder, &manifest.digest, STORED)?;
    let own: Vec<(usize, usize)> = of_shard(question, shard);
    let seeds = plan.seeds.len();
    let whole = own.iter().all(|&pair| ended(&store, pair, seeds) == seeds);
    let Some(lock) = marks.begin(shard, &manifest, goes_on, whole)? else { return Ok(0) };
    work.interrupt.keeps("every fleet that was tried is kept", "run the same command with --resume to go on");
    let watch = work.interrupt.watch();
    let started = Instant::now();
    pool.install(|| own.par_iter().map(|&pair| search(question, pair, &folder, work)).collect::<Vec<Result<()>>>())
        .into_iter()
        .collect::<Result<()>>()?;
    drop(watch);
    let cells = own.len() * seeds;
    let timing = Timing { cells: cells as u64, wall_s: started.elapsed().as_secs_f64(), ..Timing::default() };
    marks.write(shard, &manifest, true, timing)?;
    drop(lock);
    Ok(cells)
}

/// Searches the capacity of one replica alone, then the fewest replicas for the pair (index of the variant, index of
/// the policy). If several searches need the capacity of the same replica, one search computes it and the others
/// wait, across all shards.
fn search(question: &Question, pair: (usize, usize), folder: &Folder, work: &Work) -> Result<()> {
    let alone = (question.alone_of(pair.0), pair.1);
    let lock = Lock::wait(&folder.shards().join(format!("alone-v{}-p{}.lock", alone.0, alone.1)))?;
    let answer = run_these(&[alone], &question.alone, &question.spec, folder, work)?;
    drop(lock);
    search_one(question, &answer, pair, folder, work)
}

/// The searches for the fewest replicas that a shard has, as (index of the variant, index of the policy).
fn of_shard(question: &Question, shard: Shard) -> Vec<(usize, usize)> {
    pairs(&question.plan).into_iter().enumerate().filter(|(i, _)| shard.has(*i)).map(|(_, pair)| pair).collect()
}

/// Number of seeds with which the search for one variant and policy, given by their indices, has ended.
fn ended(store: &Store, (variant, policy): (usize, usize), seeds: usize) -> usize {
    (0..seeds).filter(|&seed| store.load::<Probes>(SearchId { variant, policy, seed }).ended).count()
}

/// The progress of the search for the fewest replicas that shards share in the folder at `path`. A cell is the search
/// of one policy at one combination of swept values with one seed.
pub fn state(path: &Path) -> Result<State> {
    let (folder, manifest) = shared(path)?;
    progress(&question_of(&folder)?, &folder, &manifest)
}

fn question_of(folder: &Folder) -> Result<Question> {
    let file = folder.shards().join(EXPERIMENT);
    load(&read_document(&file, &[])?, &folder.shards())
}

fn progress(question: &Question, folder: &Folder, manifest: &Manifest) -> Result<State> {
    let (of, marks) = Marks::of(folder)?.agree(manifest)?;
    let store = Store::open(folder, &manifest.digest, STORED)?;
    let seeds = question.plan.seeds.len();
    let part = |shard: Shard| {
        let own = of_shard(question, shard);
        Part {
            shard: shard.to_string(),
            begun: marks.iter().any(|mark| mark.shard == shard),
            cells: own.len() * seeds,
            finished: own.iter().map(|&pair| ended(&store, pair, seeds)).sum(),
            failed: 0,
        }
    };
    let shards = Shard::all(of.expect("shards were looked for before")).map(part).collect();
    let cells = question.plan.cells();
    let (failures, damaged, commands) = (Vec::new(), Vec::new(), Vec::new());
    Ok(State { cells, shards, failures, damaged, commands }.command("fleet", folder))
}

pub enum Merged {
    /// The folder had complete results before this call.
    Before(Folder),
    /// The merge succeeded: the folder has complete results now.
    Now(Folder),
    /// The merge is not possible, because some searches are not finished. The error says how many cells (searches ×
    /// seeds) are not finished, with a hint.
    Missing(State, Box<Problem>),
}

/// Makes complete results from the shards in the folder at `path`. The results equal the results of a search on one
/// machine, except the run time in the manifest.
pub fn merge(path: &Path, figures: bool, pool: &ThreadPool, work: &Work) -> Result<Merged> {
    if Manifest::read(path)?.complete {
        let folder = Folder::at(path.to_path_buf());
        folder.clear_up()?;
        return Ok(Merged::Before(folder));
    }
    let (mut folder, manifest) = shared(path)?;
    folder.keep_others_out(true)?;
    let marks = Marks::of(&folder)?;
    let lock = marks.merging()?;
    let question = question_of(&folder)?;
    if question.plan.digest() != manifest.digest {
        let message =
            format!("{}: the files that the experiment reads are not those that its shards read", path.display());
        return Err(Problem::bad_input(message).help("put the traces back as they were"));
    }
    let state = progress(&question, &folder, &manifest)?;
    if !state.is_complete() {
        let problem = state.problem();
        return Ok(Merged::Missing(state, problem));
    }
    work.interrupt.keeps("the shards are kept", "merge them again");
    let watch = work.interrupt.watch();
    let answer = pool.install(|| run(&question, &folder, work))?;
    drop(watch);
    write(&answer, &question, &folder, figures)?;
    folder.complete_merged(manifest, timing(&marks)?)?;
    drop(lock);
    Ok(Merged::Now(folder))
}
