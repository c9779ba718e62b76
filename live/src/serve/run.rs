//! Runs all cells of a plan on the device, one after the other. A cell is one policy with one seed, at one combination
//! of swept values. The results of a cell are stored when it ends.

use super::cell::{Bench, Recorded, tape_name};
use super::machine::{Machine, Models, open};
use super::prompts::prompts;
use super::refuse;
use super::tape::TapeEnding;
use foretoken_run::cells::{CellId, Folder, Speed, Store, Stored, TAPES, make_folder};
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_run::spec::live::LiveSpec;
use foretoken_run::spec::problem::{Exit, Problem, Result};
use foretoken_servers::compare::live_runs::HostTimes;
use foretoken_sim::metrics::{Overload, Slo, overload_of};
use foretoken_sim::{RequestRecords, Time};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The content of `live.json`: facts that simulated runs do not have, such as the device, the order in which the runs
/// were made, and their host times.
#[derive(Debug, Default, Serialize)]
pub struct LiveReport {
    pub device: String,
    /// In which order the cells ran, as text.
    pub order: &'static str,
    /// The cells in the order in which they ran.
    pub cells: Vec<LiveCell>,
}

/// The facts of one cell that simulated runs do not have, such as its host times.
#[derive(Debug, Serialize)]
pub struct LiveCell {
    /// The label of the cell's policy, under which results name it.
    pub policy: String,
    /// The seed of the run's random draws. A cell is one policy with one seed, at one combination of swept values.
    pub seed: u64,
    /// How the run ended, as text: `done`, `interrupted …` or `failed …`.
    pub ended: String,
    /// Statistics of the host time of the run's steps: the time in which the device runs no pass.
    pub host: HostTimes,
    /// Present if the run was overloaded: the queue grew as long as requests arrived.
    pub overload: Option<Overload>,
}

const ORDER: &str = "seed by seed; the baseline first, then the policies in the order of the table";

/// The results of running a plan on a device.
pub struct Ran {
    /// The content of `live.json`.
    pub report: LiveReport,
    /// Totals for the last line on the terminal: number of cells (runs), number of decoding requests summed over the
    /// steps, and wall time.
    pub speed: Speed,
    /// Number of cells whose results were stored. They are the first cells in the order of the plan, the list of all
    /// runs.
    pub cells: usize,
    /// Why the plan ended early; `None` if all cells ran.
    pub ended: Option<Box<Problem>>,
}

/// Finds the models, checks the plan, opens the device and runs every cell of the plan on it. A device that fails
/// during a run, and an interrupt by the user, are not errors: [`Ran::ended`] reports them.
pub fn run_live(plan: &Plan, live: &LiveSpec, folder: &Folder, interrupt: &AtomicBool) -> Result<Ran> {
    let models = Models::find(live)?;
    let room = refuse::check_all(plan, live, &models)?;
    let mut machine = open(live, &models, room)?;
    run_on(plan, live, folder, interrupt, &models, &mut *machine)
}

/// Runs every cell of the plan on `machine`. If a failure or an interrupt ends the work before the last cell, the
/// results of the finished cells stay stored.
pub(super) fn run_on(
    plan: &Plan,
    live: &LiveSpec,
    folder: &Folder,
    interrupt: &AtomicBool,
    models: &Models,
    machine: &mut dyn Machine,
) -> Result<Ran> {
    let report = LiveReport { device: machine.name().to_owned(), order: ORDER, cells: Vec::new() };
    let ran = Ran { report, speed: Speed::default(), cells: 0, ended: None };
    let store = Store::open(folder, &plan.digest())?;
    let mut runner = Runner { plan, live, folder, interrupt, store, ran, p90: HashMap::new() };
    let started = Instant::now();
    make_folder(&folder.path().join(TAPES))?;
    'cells: for variant in 0..plan.variants.len() {
        for seed in 0..plan.seeds.len() {
            if !runner.comparison(machine, models, variant, seed)? {
                break 'cells;
            }
        }
    }
    runner.ran.speed.wall_s = started.elapsed().as_secs_f64();
    Ok(runner.ran)
}

struct Runner<'a> {
    plan: &'a Plan,
    live: &'a LiveSpec,
    folder: &'a Folder,
    interrupt: &'a AtomicBool,
    store: Store,
    ran: Ran,
    /// P90 TPOT of the baseline in seconds, by (index of the combination of swept values, index of the seed); `None`
    /// without a TPOT. A TPOT bound of the experiment may be a multiple of this number.
    p90: HashMap<(usize, usize), Option<f64>>,
}

impl Runner<'_> {
    /// Runs all policies with one variant and one seed. Returns false if no further run may follow, for example after
    /// an interrupt.
    fn comparison(&mut self, machine: &mut dyn Machine, models: &Models, variant: usize, seed: usize) -> Result<bool> {
        let (number, count) = (self.plan.seeds[seed], self.plan.cells());
        let mut setting = Setting::new(&self.plan.variants[variant], number)?;
        let all = prompts(&self.live.prompts, &mut setting.workload, number, models)?;
        setting.notes.iter().for_each(|note| eprintln!("note: {note}"));
        let mut slo: Option<Slo> = None;
        for policy in 0..self.plan.policies.len() {
            if self.interrupt.load(Ordering::Relaxed) {
                self.ran.ended = Some(interrupted("before its next policy"));
                return Ok(false);
            }
            let mut bench = Bench {
                machine: &mut *machine,
                setting: &setting,
                acceptance: self.live.acceptance,
                declared: setting.acceptance(),
                prompts: &all,
                seed: number,
                interrupt: self.interrupt,
            };
            let spec = &self.plan.policies[policy].spec;
            let id = CellId { variant, seed, policy };
            let name = format!("{TAPES}/{}", tape_name(variant, seed, policy));
            let tape = self.folder.path().join(&name);
            let which = format!("[{} of {count}]", self.ran.report.cells.len() + 1);
            let bound = slo.and_then(|s| s.tpot_s).unwrap_or(f64::INFINITY);
            let warm = bench.warm_up(spec, self.live.warm_up_requests, &tape)?;
            let recorded = bench.record(spec, bound, warm, &tape, &which)?;
            self.folder.enter(&[&name])?;
            if !self.keep(id, &setting, recorded, &mut slo)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds the cell `id` to the report, and stores its results if any request finished. Of the cells with equal swept
    /// values and seed, the first is the baseline; its run determines the SLO bounds `slo`. Returns false if no further
    /// cell may run, because this cell ended early or no request finished.
    fn keep(&mut self, id: CellId, setting: &Setting, recorded: Recorded, slo: &mut Option<Slo>) -> Result<bool> {
        let spec = &self.plan.policies[id.policy].spec;
        let (label, run) = (spec.label(), recorded.run);
        let slo = *slo.get_or_insert_with(|| {
            let p90 = setting.summary(&run, Slo::default()).tpot.map(|q| q.p90);
            self.p90.insert((id.variant, id.seed), p90);
            let from = self.plan.bound_from(id.variant).unwrap_or(id.variant);
            setting.slo(self.p90.get(&(from, id.seed)).copied().flatten())
        });
        let mut summary = setting.summary(&run, slo);
        let done = recorded.ending == TapeEnding::Done;
        let seen = if done { Time::MAX } else { seen(&run.records) };
        summary.overload = summary.overload.and_then(|_| overload_of(&run.records, seen));
        let mut warnings = run.warnings.clone();
        let unfit = setting.limits(spec, &run).into_iter();
        warnings.extend(unfit.map(|(l, n)| {
            format!("{n} requests that can never run were rejected: {}; to change that, {}", l.what, l.fix)
        }));
        warnings.extend(summary.overload.as_ref().map(ToString::to_string));
        let ended = summary.finished + summary.rejected;
        let part = format!("after {ended} of {} requests, {:.2} s", summary.requests, summary.duration_s);
        if !done {
            warnings.push(format!("it ended {part}: its numbers are of a part"));
        }
        self.ran.report.cells.push(LiveCell {
            policy: label.clone(),
            seed: self.plan.seeds[id.seed],
            ended: match &recorded.ending {
                TapeEnding::Done => "done".to_owned(),
                TapeEnding::Interrupted => format!("interrupted {part}"),
                TapeEnding::Failed(why) => format!("failed {part}: {why}"),
            },
            host: recorded.host,
            overload: summary.overload,
        });
        self.ran.ended = match recorded.ending {
            TapeEnding::Done if summary.finished == 0 => Some(setting.nothing_fits(spec, &run)),
            TapeEnding::Done => None,
            TapeEnding::Interrupted => Some(interrupted(&format!("in {label}, {part}"))),
            TapeEnding::Failed(why) => Some(
                Problem::failed(format!("{label}: the device failed {part}: {why}"))
                    .help("what was recorded until then is kept; smaller pools or batches need less memory"),
            ),
        };
        self.ran.speed.cells += 1;
        self.ran.speed.request_steps += summary.request_steps;
        let shown = summary.finished > 0;
        let stored = Stored::of(run, summary, warnings);
        if shown {
            self.store.save(id, &stored)?;
            self.ran.cells += 1;
        }
        Ok(self.ran.ended.is_none())
    }
}

/// The last time in a run at which any request was first scheduled, got its first token, or finished.
fn seen(r: &RequestRecords) -> Time {
    let times = [&r.first_scheduled, &r.first_token, &r.finish].into_iter().flatten();
    times.filter(|at| **at != Time::MAX).max().copied().unwrap_or_default()
}

fn interrupted(when: &str) -> Box<Problem> {
    Problem::new(Exit::Interrupted, format!("interrupted {when}: what was done is kept"))
        .help("the folder says that it is partial; `foretoken validate` reads its recordings")
}
