//! Makes one piece of a cell on the device: a warm-up, a probe of the machine's speed, the live run, a probe, the same
//! run again, a probe. Then measures a part of the profile, unless a profile is given.

use super::piece_requests::{PieceRequests, arriving, counted};
use super::probe::probe;
use super::profile_slices::Slices;
use super::runs::{Load, PARTS, Piece, RunEntry, Runs};
use super::shifted_acceptance::ShiftedAcceptance;
use crate::serve::tape::{TapeEnding, read_tape};
use crate::serve::{Bench, Recorded, Timed, Warm};
use foretoken_policies::PolicySpec;
use foretoken_profiler::Until;
use foretoken_run::cells::Folder;
use foretoken_run::cells::{RUNS_JSON, TAPES};
use foretoken_run::setting::Setting;
use foretoken_run::spec::live::LiveSpec;
use foretoken_run::spec::problem::{Exit, Problem, Result};
use foretoken_run::spec::validate::ValidateSpec;
use foretoken_servers::compare::live_runs::Records;
use foretoken_servers::compare::service_rate::service_rate;
use foretoken_sim::metrics::Slo;
use foretoken_sim::{AcceptanceSource, Arrivals, Workload};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// What is needed to make the live runs of a validation.
pub struct Measuring<'a> {
    /// The machine that serves the live runs and times passes between them.
    pub machine: &'a mut dyn Timed,
    /// The experiment's `[live]` table: the device, the models and the prompts.
    pub live: &'a LiveSpec,
    /// The experiment's `[validate]` table: how the live runs are made, and which errors are accepted.
    pub spec: &'a ValidateSpec,
    /// The policies, the baseline first.
    pub policies: &'a [PolicySpec],
    /// The engine's settings, the pass costs by which policies decide, and the whole workload. Each piece serves a part
    /// of the workload.
    pub setting: Setting,
    /// The prompt tokens of all requests of the workload.
    pub prompts: Vec<Vec<u32>>,
    /// The profile, of which a part (slice) is measured after each piece. `None` if a profile is given.
    pub slices: Option<&'a mut Slices>,
    /// The results folder, which gets the tapes and the list of runs.
    pub folder: &'a Folder,
    /// Another thread sets this flag to end the measurement early.
    pub interrupt: &'a AtomicBool,
}

/// The share of the profile's time budget that is spent before the live runs. Policies decide by the costs measured in
/// this first slice. The rest of the budget is spent between the pieces: each round gets a share equal to the first
/// slice.
pub fn first_slice(spec: &ValidateSpec) -> f64 {
    1.0 / (f64::from(spec.pieces) + 1.0)
}

/// The pieces of a validation, while they are made.
pub struct Pieces<'a> {
    /// The content of `runs.json`: the cells, with the pieces made so far.
    pub runs: Runs,
    measuring: Measuring<'a>,
    /// The whole workload. Each piece serves a part of it.
    own: Workload,
    /// The SLO bounds that policies see. `None` until they are determined by the baseline's first run with arrivals at
    /// a given rate (not in a closed loop).
    bound: Option<Slo>,
    made: usize,
    all: usize,
}

impl<'a> Pieces<'a> {
    /// Starts without any piece. `own` is the whole workload, and `all` is the number of pieces to make.
    pub fn new(measuring: Measuring<'a>, own: Workload, runs: Runs, all: usize) -> Pieces<'a> {
        Pieces { runs, measuring, own, bound: None, made: 0, all }
    }

    /// Makes the next piece of the cell with index `at` in the list of runs. Then measures a part of the profile,
    /// unless a profile is given.
    pub fn make(&mut self, at: usize) -> Result<()> {
        self.piece(at)?;
        self.made += 1;
        let first = first_slice(self.measuring.spec);
        let until = match self.made < self.all {
            true => Until::Share(first + (1.0 - first) * self.made as f64 / self.all as f64),
            false => Until::Spent,
        };
        match &mut self.measuring.slices {
            Some(slices) => slices.go_on(self.measuring.machine, until, self.measuring.interrupt),
            None => Ok(()),
        }
    }

    fn piece(&mut self, at: usize) -> Result<()> {
        let RunEntry { policy, load, ref mut pieces, .. } = self.runs.entries[at];
        let nth = pieces.len();
        pieces.push(Piece::default());
        let place = if let Load::Closed(_) = load { "closed".to_owned() } else { at.to_string() };
        let name = |part: usize| format!("p{policy}-{place}-{nth}-{part}.tape");
        let mut path = self.list_tape(at, name(0))?;
        let warm = self.warm_up(policy, load, &path)?;
        let requests = self.requests(policy, load, nth, warm)?;
        self.runs.entries[at].pieces[nth].first = requests.first;
        self.probe_cell(at)?;
        for part in 0..PARTS {
            if part > 0 {
                path = self.list_tape(at, name(part))?;
            }
            self.live(policy, load, &requests, warm, &path)?;
            self.probe_cell(at)?;
        }
        self.write_list()
    }

    /// Warms up with the first requests of the workload. One warm-up comes before both live runs of the piece.
    fn warm_up(&mut self, policy: usize, load: Load, tape: &Path) -> Result<Warm> {
        let Measuring { machine, live, policies, setting, prompts, interrupt, .. } = &mut self.measuring;
        let requests = match load {
            Load::Closed(clients) => live.warm_up_requests.max(2 * clients),
            _ => live.warm_up_requests,
        };
        setting.set_workload(self.own.clone());
        let declared = setting.acceptance();
        bench(*machine, live, setting, declared, prompts, interrupt).warm_up(&policies[policy], requests, tape)
    }

    /// Chooses the requests of piece number `nth` (from 0) of a cell, and their arrivals. A cell is a policy at a
    /// load; a piece is a live run and its repeat.
    fn requests(&self, policy: usize, load: Load, nth: usize, warm: Warm) -> Result<PieceRequests> {
        let (spec, rates) = (self.measuring.spec, &self.runs.rates);
        match load {
            Load::Closed(clients) => {
                let wanted = (warm.rate * spec.service_s).ceil() as usize;
                Ok(counted(&self.own, wanted.max(4 * clients as usize), nth))
            }
            Load::Own(share) => arriving(&self.own, share * rates[policy], spec.run_s, nth),
            Load::Common(share) => arriving(&self.own, share * rates[0], spec.run_s, nth),
            Load::AsRun => unreachable!("a validation sets its loads"),
        }
    }

    /// Serves `requests` once and records the run in the file `tape`. Then adds the tape to the manifest, the list of
    /// finished files. The baseline's first run with arrivals at a given rate (not in a closed loop) determines the SLO
    /// bounds.
    fn live(&mut self, policy: usize, load: Load, requests: &PieceRequests, warm: Warm, tape: &Path) -> Result<()> {
        let which = format!("[piece {} of {}]", self.made + 1, self.all);
        let Measuring { machine, live, policies, setting, prompts, interrupt, .. } = &mut self.measuring;
        let (spec, from) = (&policies[policy], requests.first as usize);
        setting.set_workload(requests.workload.clone());
        let (arrivals, shown) = match load {
            Load::Closed(clients) => (Arrivals::Closed { clients }, None),
            _ => (Arrivals::Open, self.bound.and_then(|s| s.tpot_s)),
        };
        setting.set_arrivals(arrivals);
        let asked = prompts[from..from + requests.workload.len()].to_vec();
        let declared = ShiftedAcceptance { whole: setting.acceptance(), first: requests.first };
        let recorded = bench(*machine, live, setting, &declared, &asked, interrupt).record(
            spec,
            shown.unwrap_or(f64::INFINITY),
            warm,
            tape,
            &which,
        )?;
        let file = tape.file_name().unwrap_or_default().to_string_lossy();
        // The manifest gets the digest of the finished tape, so that a later damage of the tape is found.
        self.measuring.folder.enter(&[&format!("{TAPES}/{file}")])?;
        let recorded = whole(spec, recorded)?;
        if arrivals == Arrivals::Open {
            // The first run with arrivals at a given rate (not in a closed loop) is a run of the baseline. It
            // determines the SLO bound that later runs see.
            let p90 = || self.measuring.setting.summary(&recorded.run, Slo::default()).tpot.map(|q| q.p90);
            self.bound.get_or_insert_with(|| self.measuring.setting.slo(p90()));
        }
        Ok(())
    }

    fn probe_cell(&mut self, at: usize) -> Result<()> {
        let found = probe(self.measuring.machine, &self.runs.probed)
            .map_err(|e| Problem::failed(format!("a pass that is probed failed: {e}")))?;
        let pieces = &mut self.runs.entries[at].pieces;
        pieces.last_mut().expect("a piece is being made").probes.push(found);
        Ok(())
    }

    /// Computes the service rate of each policy: the requests per second that its closed loops sustained. The arrival
    /// rates of all runs that are not closed loops are shares of these rates.
    pub fn know_rates(&mut self) -> Result<()> {
        let rate = |entry: &RunEntry| {
            let Load::Closed(clients) = entry.load else { unreachable!("closed loops only") };
            let records = |name: &String| {
                let path = self.measuring.folder.path().join(TAPES).join(name);
                let tape = read_tape(&path).map_err(|e| Problem::failed(format!("{}: {e}", path.display())))?;
                Ok(tape.records())
            };
            let records = entry.tapes().map(records).collect::<Result<Vec<Records>>>()?;
            service_rate(records.iter().map(|r| &r.requests), clients).ok_or_else(|| {
                let label = self.measuring.policies[entry.policy].label();
                let message = format!("{label}: a closed loop of {clients} clients is too short to measure a rate");
                Problem::bad_input(message)
                    .help("raise validate.service_s or workload.requests, or lower validate.clients")
            })
        };
        self.runs.rates = self.runs.entries.iter().map(rate).collect::<Result<_>>()?;
        Ok(())
    }

    /// Adds a tape to the list of runs before the run begins, so that the list is complete even if the process is
    /// killed. Returns the tape's path.
    fn list_tape(&mut self, at: usize, name: String) -> Result<PathBuf> {
        if self.measuring.interrupt.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        let path = self.measuring.folder.path().join(TAPES).join(&name);
        self.runs.entries[at].pieces.last_mut().expect("a piece is being made").tapes.push(name);
        self.write_list()?;
        Ok(path)
    }

    fn write_list(&self) -> Result<()> {
        self.measuring.folder.write(RUNS_JSON, self.runs.to_json().as_bytes())
    }
}

fn bench<'b>(
    machine: &'b mut dyn Timed,
    live: &LiveSpec,
    setting: &'b Setting,
    declared: &'b dyn AcceptanceSource,
    prompts: &'b Vec<Vec<u32>>,
    interrupt: &'b AtomicBool,
) -> Bench<'b> {
    Bench { machine, setting, acceptance: live.acceptance, declared, prompts, seed: setting.seed(), interrupt }
}

/// Returns the run if all its requests ended. Otherwise returns an error that says why the run ended early.
fn whole(spec: &PolicySpec, recorded: Recorded) -> Result<Recorded> {
    match &recorded.ending {
        TapeEnding::Done => Ok(recorded),
        TapeEnding::Interrupted => Err(interrupted()),
        TapeEnding::Failed(why) => Err(Problem::failed(format!("{}: the device failed: {why}", spec.label()))
            .help("what was recorded until then is kept")),
    }
}

fn interrupted() -> Box<Problem> {
    Problem::new(Exit::Interrupted, "interrupted: the recordings made so far are kept, and nothing was compared").help(
        "`foretoken validate DIR` compares these recordings; an interrupted validation cannot be continued: start \
             again with --overwrite",
    )
}

#[cfg(test)]
#[path = "piece_tests.rs"]
mod tests;
