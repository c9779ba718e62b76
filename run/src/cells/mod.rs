//! Runs the cells of a plan in parallel. A cell is one run: one policy, one combination of swept values and one seed.
//! The results of a cell are written to a file as soon as the cell is finished.
//!
//! Results do not depend on the order in which cells finish: they are made afterwards from the files of the cells, in
//! the order of the plan.

mod assemble;
mod cell_file;
mod failures;
mod fleet_entry;
mod folder;
mod id;
mod lock;
mod manifest;
mod marks;
mod own;
mod progress;
mod shard;
mod store;
mod unwritten;
mod warnings;

pub use assemble::{Advised, Assembled, Drawn, Numbers, Unfinished, assemble, entries, finished_cells, keep_figures};
pub use cell_file::{CellFile, PiecesOf, Written};
pub use failures::{Failure, Failures};
pub use folder::{
    CAPACITY_JSON, FLEET_JSON, Folder, LADDER_JSON, LADDER_PAGE, LIVE_JSON, Mode, OBSERVED_JSON, RUNS_JSON,
};
pub use id::{CellId, ids, in_words, key, swept};
pub use lock::Lock;
pub use manifest::{AGAIN, Manifest, Timing, digest};
pub use marks::{Mark, Marks};
pub use own::{EXPERIMENT, PROBES, RECORDINGS, TAPES};
pub use progress::Speed;
pub use shard::Shard;
pub use store::{Store, Stored};
pub use unwritten::{make_folder, write_problem};

use crate::guard::guarded;
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::problem::{Exit, Problem, Result};
use crate::work::Work;
use cell_file::split;
use foretoken_policies::PolicySpec;
use foretoken_report::not_finite;
use foretoken_sim::metrics::{Pieces, Slo};
use foretoken_sim::{Ending, Run, Summary};
use progress::Progress;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs every cell of the plan whose stored result is missing or damaged in the results folder. Finished cells stay in
/// the folder, also after an error or an interrupt. Returns the simulator's speed.
pub fn run_cells(plan: &Plan, folder: &Folder, work: &Work) -> Result<Speed> {
    let store = Store::open(folder, &plan.digest())?;
    let damaged = ids(plan).filter_map(|id| store.damage(id, ids(plan)));
    damaged.for_each(|which| eprintln!("warning: {which}: this run is repeated"));
    let progress = Progress::new(plan.cells() as u64, &work.counts);
    let runner = Runner { plan, store, failures: None, progress, interrupt: work.interrupt.flag() };
    let result = runner.comparisons((0..comparisons(plan)).collect());
    let speed = runner.progress.finish();
    result.map(|()| speed)
}

/// Runs the cells of a shard whose stored results are missing or damaged in the results folder. If a cell fails, its
/// failure is stored, and the other cells still run. Returns the simulator's speed and all stored failures of the
/// shard. If `again` is true, cells that failed before are run again; otherwise they are skipped.
pub fn run_shard(
    plan: &Plan,
    folder: &Folder,
    shard: Shard,
    again: bool,
    work: &Work,
) -> Result<(Speed, Vec<Failure>)> {
    let store = Store::open(folder, &plan.digest())?;
    let failures = Failures::of(folder);
    let cells: Vec<CellId> = ids(plan).filter(|&id| shard.has(comparison(plan, id))).collect();
    if again {
        cells.iter().for_each(|&id| failures.forget(id));
    }
    for which in cells.iter().filter_map(|&id| store.damage(id, ids(plan))) {
        eprintln!("warning: {which}: this run is repeated");
    }
    let progress = Progress::new(cells.len() as u64, &work.counts);
    let runner = Runner { plan, store, failures: Some(failures), progress, interrupt: work.interrupt.flag() };
    let result = runner.comparisons((0..comparisons(plan)).filter(|&c| shard.has(c)).collect());
    let speed = runner.progress.finish();
    result?;
    let failures = runner.failures.expect("a shard keeps them");
    Ok((speed, cells.iter().filter_map(|&id| failures.get(id)).collect()))
}

/// Number of comparisons in a plan. A comparison is all policies with one combination of swept values and one seed.
fn comparisons(plan: &Plan) -> usize {
    plan.variants.len() * plan.seeds.len()
}

/// Index, in the order of `plan` (the list of all runs), of the comparison to which a cell belongs.
pub fn comparison(plan: &Plan, id: CellId) -> usize {
    id.variant * plan.seeds.len() + id.seed
}

/// Runs the cells of a plan. All threads share one runner.
struct Runner<'a> {
    plan: &'a Plan,
    store: Store,
    /// The files in which a shard stores failures. `None` for a run that ends at the first failure.
    failures: Option<Failures>,
    progress: Progress,
    interrupt: &'a AtomicBool,
}

impl Runner<'_> {
    fn comparisons(&self, these: Vec<usize>) -> Result<()> {
        let plan = self.plan;
        let seeds = plan.seeds.len();
        // A TPOT bound may be a multiple of the P90 TPOT of the autoregressive run of another comparison. Comparisons
        // whose bound comes from their own autoregressive run are made first. The other comparisons then find the
        // results of the autoregressive run that they need on disk.
        let sets: Vec<bool> =
            (0..plan.variants.len()).map(|v| plan.bound_from(v).is_none_or(|from| from == v)).collect();
        let (first, rest): (Vec<usize>, Vec<usize>) = these.into_iter().partition(|c| sets[c / seeds]);
        let run = |these: &[usize]| these.par_iter().try_for_each(|c| self.comparison(c / seeds, c % seeds));
        run(&first).and_then(|()| run(&rest))
    }

    /// Runs the policies of one comparison, except those that are finished or have failed. The autoregressive baseline
    /// runs first, because the TPOT bound may be a multiple of its P90 TPOT. If the baseline fails, the other policies
    /// do not run.
    fn comparison(&self, variant: usize, seed: usize) -> Result<()> {
        let id = |policy| CellId { variant, seed, policy };
        let baseline = id(self.plan.baseline);
        let missing: Vec<usize> = (0..self.plan.policies.len()).filter(|&p| !self.is_settled(id(p))).collect();
        self.progress.skip((self.plan.policies.len() - missing.len()) as u64);
        if missing.is_empty() || self.has_failed(baseline) {
            return Ok(());
        }
        self.check_interrupt()?;
        let policies = self.plan.policies.iter().map(|entrant| &entrant.spec);
        let setting = match Setting::streaming(&self.plan.variants[variant], self.plan.seeds[seed], policies) {
            Ok(setting) => setting,
            Err(problem) => return self.failed(baseline, problem),
        };
        let slo = match self.store.open_cell(baseline)? {
            Some((stored, _)) => stored.summary.slo,
            None => {
                let ran = self
                    .bound_from_elsewhere(variant, seed, &setting)
                    .map(|given| self.cell(&setting, baseline, given));
                match ran {
                    Err(problem) => return self.failed(baseline, problem),
                    Ok(ran) => match ran? {
                        Some(slo) => slo,
                        None => return Ok(()),
                    },
                }
            }
        };
        // All policies run before an error is returned. If several failed, returns the error of the policy that comes
        // first in the plan, so that the error does not depend on which thread failed first.
        let others = missing.par_iter().map(|&p| id(p)).filter(|&id| id != baseline);
        let results: Vec<Result<Option<Slo>>> = others.map(|id| self.cell(&setting, id, Some(slo))).collect();
        results.into_iter().try_for_each(|result| result.map(|_| ()))
    }

    fn has_failed(&self, id: CellId) -> bool {
        self.failures.as_ref().is_some_and(|f| f.get(id).is_some())
    }

    /// Is the cell finished, or did it fail before? In both cases the cell is not run.
    fn is_settled(&self, id: CellId) -> bool {
        self.store.has(id) || self.has_failed(id)
    }

    /// Handles the failure of a cell. A shard stores the failure and goes on; any other run returns it as an error.
    fn failed(&self, id: CellId, problem: Box<Problem>) -> Result<()> {
        match &self.failures {
            Some(failures) if problem.exit != Exit::Interrupted => failures.keep(id, &key(self.plan, id), &problem),
            _ => Err(problem),
        }
    }

    /// The SLO bounds of a comparison whose TPOT bound is a multiple of the P90 TPOT of the autoregressive run of
    /// another variant. `None` if the bound does not come from another variant. Reads the results of that
    /// autoregressive run from its file. If there is no file, makes that run here, which gives the same bound.
    fn bound_from_elsewhere(&self, variant: usize, seed: usize, setting: &Setting) -> Result<Option<Slo>> {
        let Some(from) = self.plan.bound_from(variant).filter(|&from| from != variant) else { return Ok(None) };
        let id = CellId { variant: from, seed, policy: self.plan.baseline };
        let tpot = match self.store.open_cell(id)? {
            Some((stored, _)) => stored.summary.tpot,
            None => {
                let other = Setting::new(&self.plan.variants[from], self.plan.seeds[seed])?;
                let policy = &self.plan.policies[id.policy].spec;
                let (run, played) = run_through(&other, policy, f64::INFINITY, self.interrupt)?;
                let summary = other.summary(&run, Slo::default());
                if summary.finished == 0 {
                    return Err(other.nothing_fits(&played, &run));
                }
                summary.tpot
            }
        };
        Ok(Some(setting.slo(tpot.map(|q| q.p90))))
    }

    /// Runs and stores a cell. Returns its SLO bounds, or `None` if the cell failed and its failure was stored. `slo`
    /// are the SLO bounds to apply. The caller gives `None` for the autoregressive baseline: a TPOT bound that is a
    /// multiple of an autoregressive run's TPOT is then computed from this run itself.
    fn cell(&self, setting: &Setting, id: CellId, slo: Option<Slo>) -> Result<Option<Slo>> {
        let policy = &self.plan.policies[id.policy].spec;
        let mut file = self.store.begin(id)?;
        let played = play_into(&mut file, setting, policy, slo, self.interrupt).and_then(|played| {
            match fault(&played.stored.summary) {
                None => Ok(played),
                Some(fault) => Err(Problem::bad_input(format!("{}: {fault}", key(self.plan, id))).help(ABSURD)),
            }
        });
        let Played { stored, slo, engine } = match played {
            Ok(played) => played,
            Err(problem) => return self.failed(id, problem).map(|()| None),
        };
        self.progress.done(&policy.label(), &stored.summary, engine);
        self.store.finish(file, &stored)?;
        Ok(Some(slo))
    }

    fn check_interrupt(&self) -> Result<()> {
        if self.interrupt.load(Ordering::Relaxed) { Err(crate::interrupt::problem()) } else { Ok(()) }
    }
}

/// The result of running one policy on the requests of one seed: results, latency bounds and wall time.
pub struct Played {
    pub stored: Stored,
    /// The latency bounds with which the run's `slo_attainment` was computed.
    pub slo: Slo,
    /// Wall time that the simulation of the run took.
    engine: Duration,
}

/// Runs a policy to the end, with the workload and server of `setting`. `slo` are the SLO bounds to apply. The caller
/// gives `None` for the autoregressive baseline: a TPOT bound that is a multiple of an autoregressive run's TPOT is
/// then computed from this run itself.
pub fn play(setting: &Setting, policy: &PolicySpec, slo: Option<Slo>, interrupt: &AtomicBool) -> Result<Played> {
    let started = Instant::now();
    let bound = slo.and_then(|s| s.tpot_s).unwrap_or(f64::INFINITY);
    let (mut run, played) = run_through(setting, policy, bound, interrupt)?;
    let records = std::mem::take(&mut run.records);
    let mut played = judge(setting, (run, &played), &records, slo, started.elapsed())?;
    played.stored.records = records;
    Ok(played)
}

/// Makes the results of a finished `run` of a policy: its summary and its warnings. The per-request records are left
/// out of the results and given as `records`. `slo` are the latency bounds, as in [`play`].
fn judge(
    setting: &Setting,
    (run, policy): (Run, &PolicySpec),
    records: &dyn Pieces,
    slo: Option<Slo>,
    engine: Duration,
) -> Result<Played> {
    let slo = slo.unwrap_or_else(|| {
        let p90 = setting.summary_of(&run, records, Slo::default()).tpot.map(|q| q.p90);
        setting.slo(p90)
    });
    let summary = setting.summary_of(&run, records, slo);
    if summary.finished == 0 {
        return Err(setting.nothing_fits(policy, &run));
    }
    let unfit = setting.limits(policy, &run).into_keys();
    let unfit =
        unfit.map(|l| format!("requests that can never run were rejected: {}; to change that, {}", l.what, l.fix));
    let believes = !policy.definition().is_blind() && !policy.sees_hidden_truth();
    let belief = setting.belief_notes.iter().filter(|_| believes);
    let notes = setting.notes.iter().chain(&run.warnings).cloned().chain(unfit);
    let warnings = notes.chain(belief.cloned()).collect();
    Ok(Played { stored: Stored::of(run, summary, warnings), slo, engine })
}

/// Runs a policy as [`play`] does, but writes the records of the requests to `file` and leaves them out of the results.
/// If possible, the records are written while the run goes on, and ended requests are removed from memory.
fn play_into(
    file: &mut CellFile,
    setting: &Setting,
    policy: &PolicySpec,
    slo: Option<Slo>,
    interrupt: &AtomicBool,
) -> Result<Played> {
    let started = Instant::now();
    let Some(speculation) = guarded(&policy.label(), || setting.to_stream(policy))? else {
        let mut played = play(setting, policy, slo, interrupt)?;
        let _ = split(&std::mem::take(&mut played.stored.records)).all(|piece| file.add(piece));
        return Ok(played);
    };
    let bound = slo.and_then(|s| s.tpot_s).unwrap_or(f64::INFINITY);
    let run = guarded(&policy.label(), || setting.stream(speculation, bound, interrupt, &mut |piece| file.add(piece)))?;
    let written = file.records().map_err(write_problem)?;
    let run = ended(run, &policy.label())?;
    let played = judge(setting, (run, policy), written.pieces(), slo, started.elapsed());
    written.check().map_err(|e| Problem::failed(e.to_string()))?;
    played
}

/// Runs a policy to the end, with the workload and server of `setting`. `bound` is the TPOT bound in seconds; infinity
/// for no bound. Also returns the policy that gave the run: a clairvoyant policy runs several fixed lengths and returns
/// the best one.
fn run_through(
    setting: &Setting,
    policy: &PolicySpec,
    bound: f64,
    interrupt: &AtomicBool,
) -> Result<(Run, PolicySpec)> {
    if interrupt.load(Ordering::Relaxed) {
        return Err(crate::interrupt::problem());
    }
    let (run, played) = guarded(&policy.label(), || setting.run_with_lives(policy, bound, interrupt))?;
    ended(run, &policy.label()).map(|run| (run, played))
}

/// Returns the run if every request in it has ended. Otherwise the error: the user interrupted the run, or the
/// simulated clock passed its end of 213 days.
fn ended(run: Run, policy: &str) -> Result<Run> {
    match run.ending {
        Ending::Done => Ok(run),
        Ending::Interrupted => Err(crate::interrupt::problem()),
        Ending::OutOfTime => Err(out_of_time(policy)),
        Ending::Failed | Ending::Certain => {
            unreachable!("passes on the event clock cannot fail, and nothing is to be found out")
        }
    }
}

fn out_of_time(policy: &str) -> Box<Problem> {
    Problem::bad_input(format!("{policy}: the simulated clock ran past its 213 days")).help(ABSURD)
}

const ABSURD: &str =
    "some time in the experiment is absurd: check hardware, engine.step_overhead_s, noise_cv and the arrivals";

/// Why the summary of a run is not usable; `None` if it is usable. A number that is not finite, a mean E2E of 0 s or an
/// SLO bound of 0 s means that a time in the experiment is absurd. A missing number (no token was drafted, no bound is
/// set) is no fault.
fn fault(summary: &Summary) -> Option<String> {
    if let Some((name, value)) = not_finite(summary) {
        return Some(format!("`{name}` came out as {value}"));
    }
    if summary.e2e.is_some_and(|q| q.mean == 0.0) {
        return Some("mean E2E is 0 s: no pass took any time, so there is no speedup and no rate".to_owned());
    }
    let bounds = [("TTFT", summary.slo.ttft_s), ("TPOT", summary.slo.tpot_s), ("E2E", summary.slo.e2e_s)];
    let (name, _) = bounds.into_iter().find(|(_, bound)| bound.is_some_and(|s| s <= 0.0))?;
    Some(format!("the SLO bounds {name} to 0 s: it was scaled from a run in which tokens took no time"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::RequestRecords;
    use foretoken_sim::metrics::{Quantiles, Totals};

    #[test]
    fn an_absent_number_is_no_fault_and_one_that_is_not_finite_is() {
        let quantiles = |mean| Some(Quantiles { mean, p50: mean, p90: mean, p99: mean });
        let good = Summary::new(&RequestRecords::default(), &Totals::default(), Slo::default(), &[], 1, 1);
        let good = Summary { e2e: quantiles(1.0), ..good };
        assert_eq!(fault(&good), None);
        assert!(good.acceptance_rate.is_none() && good.tpot.is_none(), "absent, and no fault");
        let with = |change: fn(&mut Summary)| {
            let mut broken = good.clone();
            change(&mut broken);
            fault(&broken).unwrap()
        };
        assert!(with(|s| s.kv_use_mean = f64::NAN).contains("`kv_use_mean` came out as NaN"));
        assert!(with(|s| s.tpot = Some(Quantiles { p99: f64::INFINITY, ..s.e2e.unwrap() })).contains("`tpot_p99_s`"));
        assert!(with(|s| s.e2e = Some(Quantiles { mean: 0.0, ..s.e2e.unwrap() })).contains("mean E2E is 0 s"));
        assert!(with(|s| s.slo.tpot_s = Some(0.0)).contains("bounds TPOT to 0 s"));
    }

    const SETS: [&str; 4] = [
        "policies=[{ fixed = { k = 3 } }]",
        "seeds=[1, 2]",
        "workload.requests=120",
        "workload.arrivals={ poisson = { rate = { sweep = [8.0, 2.0] } } }",
    ];

    /// A comparison is all policies with one combination of swept values and one seed. Its TPOT bound may be a multiple
    /// of the P90 TPOT of the autoregressive run of another comparison. If the results of that run are not on disk, the
    /// comparison makes that run, and gets the same bound.
    #[test]
    fn a_comparison_finds_its_bound_alone() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/quickstart.toml");
        let plan = Plan::load(&file, &SETS.map(str::to_owned)).unwrap();
        let work = Work::default();
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| Folder::at(dir.path().join(name));
        run_cells(&plan, &folder("whole"), &work).unwrap();
        let whole = Store::open(&folder("whole"), &plan.digest()).unwrap();
        for seed in 0..2 {
            let runner = Runner {
                plan: &plan,
                store: Store::open(&folder(&format!("alone-{seed}")), &plan.digest()).unwrap(),
                failures: None,
                progress: Progress::new(0, &work.counts),
                interrupt: work.interrupt.flag(),
            };
            runner.comparison(0, seed).unwrap();
            for policy in 0..plan.policies.len() {
                let id = |variant| CellId { variant, seed, policy };
                let (alone, together) = (runner.store.load(id(0)).unwrap(), whole.load(id(0)).unwrap());
                assert_eq!(alone.unwrap().summary, together.as_ref().unwrap().summary);
                let reference = whole.load(id(1)).unwrap().unwrap().summary;
                assert_eq!(together.unwrap().summary.slo, reference.slo, "one bound at both loads");
                assert!(!runner.store.has(id(1)), "the reference's comparison is not run");
            }
        }
    }
}
