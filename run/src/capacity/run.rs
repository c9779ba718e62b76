//! Runs all capacity searches of an experiment. Policies are searched in parallel. The seeds of a policy are searched
//! one after another, because later searches begin near the capacity that an earlier seed found.

use crate::bar::Bar;
use crate::capacity::answer::{Answer, Capacity};
use crate::capacity::host_search;
use crate::capacity::kept::write;
use crate::capacity::searcher::Searcher;
use crate::capacity::store::Store;
use crate::cells::{Folder, Mode, Speed};
use crate::plan::Plan;
use crate::spec::capacity::CapacitySpec;
use crate::spec::problem::{Exit, Result};
use crate::work::Work;
use rayon::ThreadPool;
use rayon::prelude::*;
use std::path::PathBuf;
use std::time::Instant;

/// What to do after an interrupted search.
pub(crate) const GO_ON: &str = "run the same command with --resume to go on";

/// Searches the capacity of every policy, on the threads of `pool`, and writes the results into the folder at `path`;
/// figures and the HTML page only if `figures` is true. Continues an unfinished search if `mode` allows it. If the
/// folder is complete already, returns it unchanged.
pub fn complete(
    plan: &Plan,
    spec: &CapacitySpec,
    path: PathBuf,
    mode: Mode,
    figures: bool,
    pool: &ThreadPool,
    work: &Work,
) -> Result<Folder> {
    let search = |folder: &Folder| -> Result<Answer> {
        let answer = run(plan, spec, folder, work)?;
        let host = host_search::look(plan, spec, folder, work, &answer)?;
        Ok(Answer { host, ..answer })
    };
    let write = |answer: &Answer, folder: &Folder| write(answer, plan, folder, figures);
    work.interrupt.keeps("every rate that was tried is kept", GO_ON);
    into_folder(plan, path, mode, pool, work, search, write)
}

/// Runs `search` on the threads of `pool` and gives its answer to `write`, unless the folder at `path` is complete
/// already.
pub(crate) fn into_folder<A: Send>(
    plan: &Plan,
    path: PathBuf,
    mode: Mode,
    pool: &ThreadPool,
    work: &Work,
    search: impl Fn(&Folder) -> Result<A> + Sync,
    write: impl Fn(&A, &Folder) -> Result<()>,
) -> Result<Folder> {
    let (folder, complete) = Folder::open(path, plan, mode)?;
    if complete {
        return Ok(folder);
    }
    let watch = work.interrupt.watch();
    let started = Instant::now();
    let answer = pool.install(|| search(&folder)).inspect_err(|problem| {
        if problem.exit == Exit::BadInput {
            folder.abandon();
        }
    })?;
    drop(watch);
    write(&answer, &folder)?;
    let speed = Speed { cells: plan.cells() as u64, wall_s: started.elapsed().as_secs_f64(), ..Speed::default() };
    folder.complete(plan, &speed)?;
    Ok(folder)
}

/// Searches the capacity of every policy at all swept values, on the threads of the current pool.
pub fn run(plan: &Plan, spec: &CapacitySpec, folder: &Folder, work: &Work) -> Result<Answer> {
    let policies = plan.policies.len();
    let pairs: Vec<(usize, usize)> =
        (0..plan.variants.len()).flat_map(|v| (0..policies).map(move |p| (v, p))).collect();
    run_these(&pairs, plan, spec, folder, work)
}

/// Searches the capacity for each pair (index of the variant, index of the policy) of `pairs`, on the threads of the
/// current pool.
pub fn run_these(
    pairs: &[(usize, usize)],
    plan: &Plan,
    spec: &CapacitySpec,
    folder: &Folder,
    work: &Work,
) -> Result<Answer> {
    let store = Store::open(folder, &plan.digest(), "")?;
    let bar = Bar::new((pairs.len() * plan.seeds.len()) as u64, "searches", &work.counts);
    let searcher = Searcher { plan, spec, store, flag: work.interrupt.flag(), bar: &bar, to_the_end: true };
    // All searches run before an error is returned. If several searches failed, returns the error of the first failed
    // search in the order of `pairs`, so that the error does not depend on which thread failed first.
    let found: Vec<Result<Capacity>> = pairs.par_iter().map(|&(v, p)| searcher.capacity(v, p)).collect();
    bar.finish();
    Ok(Answer {
        name: plan.name.clone(),
        source: plan.source().to_string(),
        share: spec.share,
        tolerance: spec.tolerance,
        window_s: spec.window_s,
        warnings: plan.warnings().into_iter().map(str::to_owned).collect(),
        capacities: found.into_iter().collect::<Result<_>>()?,
        host: Vec::new(),
    })
}
