//! Compares the live runs of a folder with simulations of these runs. The comparison reads recordings and uses no
//! device.

use super::costs_of_other_cells::CostsOfOtherCells;
use super::machine_speed::{Pace, drift, paces, typical, usual_of};
use super::probe::spread;
use super::read_tapes::{CellTapes, TapeReader, Tapes};
use super::runs::{Load, Piece, RunEntry, Runs};
use super::simulated_piece::{Replay, requests_of, simulate_piece};
use super::timed_passes::{PredictedPasses, predict_passes};
use crate::serve::HostClock;
use crate::serve::tape::{Head, Tape};
use foretoken_profiler::ProbedPass;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_report::ValidatedRun;
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::validate::ValidateSpec;
use foretoken_servers::compare::live_runs::{
    CellReport, CellRuns, HostTimes, LoadName, PieceReport, PolicyValue, SCHEMA_VERSION, SpeedRange, Standing,
    Undecided, Validation, checks, rankings, repeats, service, speedups,
};
use foretoken_servers::compare::pass_errors::over_cells;
use foretoken_servers::compare::token_flow;
use foretoken_sim::metrics::Slo;
use foretoken_sim::{ContextReads, Pair};

/// The pass costs of the target and the draft, from a measured or a calibrated profile.
#[derive(Clone, Debug, PartialEq)]
pub struct PassCosts {
    /// For the target and for the draft, the latency model that predicts the times of passes.
    pub models: Pair<LatencySpec>,
    /// How the target's costs count the context tokens of a verification pass: once per request, or once per new
    /// token.
    pub reads: ContextReads,
    /// Passes of fixed shapes with their usual times. They show the speed that the machine had when the costs were
    /// fitted. Empty for a measured profile.
    pub probes: Vec<ProbedPass>,
}

/// The input of a comparison of live runs with simulations.
pub struct Compared<'a> {
    /// The plan of the experiment. Its first policy is the baseline.
    pub plan: &'a Plan,
    pub tapes: Tapes<'a>,
    /// The cells of the folder. A cell has pieces and probes of the machine's speed.
    pub runs: &'a Runs,
    /// The costs that predict the pass times of the runs. `None`: the costs of the experiment predict them.
    pub profile: Option<&'a PassCosts>,
    /// A text that says where the pass costs that predict the runs come from.
    pub costs: String,
    /// Sentences that limit what the comparison shows, for example about changed files. The comparison adds sentences
    /// about partial runs, whose recordings end before the runs had served all requests.
    pub caveats: Vec<String>,
}

impl Compared<'_> {
    /// Compares every run with its simulations. Returns the validation, and the data of the figures.
    pub fn validation(&self) -> Result<(Validation, Vec<ValidatedRun>)> {
        let spec = self.plan.variants[0].experiment.validate.clone().unwrap_or_default();
        let ComparedCells { cells: found, undecided, figures, device, mut notes } = self.compare_cells(&spec)?;
        let changed = |u: &Undecided| u.pieces.iter().any(|p| p.standing == Standing::Changed);
        if found.is_empty() && !undecided.iter().any(changed) {
            return Err(Problem::bad_input(format!("{}: no recording holds a step", self.tapes.folder.display()))
                .help("the runs ended before their first step, or within their first piece: run it again"));
        }
        if self.runs.probed.is_empty() {
            notes.push("the machine was not probed: `foretoken validate FILE.toml` does it".into());
        }
        let service: Vec<PolicyValue> = found.iter().filter_map(|f| f.rate.clone()).collect();
        let speedups = self.speedups(&found, &spec);
        let rankings = rankings(&service, &speedups);
        let cells: Vec<CellReport> = found.into_iter().map(|f| f.report).collect();
        let caveats = not_decided(&cells, &undecided).into_iter().chain(self.partial(&cells));
        let caveats = caveats.chain(self.caveats.iter().cloned()).collect();
        let pieces = || cells.iter().map(|c| &c.pieces).chain(undecided.iter().map(|u| &u.pieces)).flatten();
        let counts = pieces().filter(|p| p.standing == Standing::Counts).count();
        let loads: Vec<LoadName> =
            spec.loads.iter().map(|&share| LoadName { share, name: Load::Own(share).to_string() }).collect();
        let validation = Validation {
            caveats,
            schema_version: SCHEMA_VERSION,
            name: self.plan.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device,
            costs: self.costs.clone(),
            rule: self.rule(spec.tolerance.steady),
            counted: (counts as u64, pieces().count() as u64),
            drift: SpeedRange::over(pieces()),
            repeats: repeats(&cells, &undecided, &loads, spec.tolerance.repeats),
            regions: over_cells(cells.iter().map(|c| c.regions.as_slice())),
            learned_regions: over_cells(cells.iter().map(|c| c.learned_regions.as_slice())),
            service,
            speedups: speedups.into_iter().flat_map(|(_, values)| values).collect(),
            checks: checks(&cells, &rankings, &spec.tolerance),
            rankings,
            cells,
            undecided,
            notes,
        };
        Ok((validation, figures))
    }

    /// Simulates each cell and compares the simulation with the cell's live runs. Some pieces are not compared, for
    /// example if the machine changed its speed during the piece. If no piece of a cell can be compared, the cell is
    /// not simulated: it is undecided.
    fn compare_cells(&self, spec: &ValidateSpec) -> Result<ComparedCells<'_>> {
        let mut found = ComparedCells::default();
        let typical = typical(self.runs.probes());
        let report = |piece: &Piece| PieceReport {
            tapes: piece.tapes.clone(),
            standing: self.runs.standing(piece, spec.tolerance.steady),
            spread: spread(&piece.probes),
            drift: drift(&piece.probes, &typical),
        };
        let pieces: Vec<Vec<PieceReport>> =
            self.runs.entries.iter().map(|entry| entry.pieces.iter().map(report).collect()).collect();
        let usual = usual_of(self.runs, self.profile.map_or(&[], |profile| &profile.probes));
        let paces = paces(self.runs, &usual);
        let others = CostsOfOtherCells::of(&self.tapes, &pieces, &paces)?;
        let mut reader = TapeReader::new(&self.tapes);
        for (n, (entry, pieces)) in self.runs.entries.iter().zip(pieces).enumerate() {
            let tapes = reader.read_cell(&pieces)?;
            let Some(first) = tapes.pieces.first() else {
                found.undecided.extend(self.undecided(entry, pieces));
                continue;
            };
            first.tapes[0].head.device.clone_into(&mut found.device);
            let runs = self.cell(entry, pieces, tapes, Predict { paces: &paces[n], learned: others.for_cell(n) })?;
            let cell = ComparedCell {
                entry,
                report: runs.report(),
                rate: match entry.load {
                    Load::Closed(clients) => service(&runs.policy, &runs.counted, clients),
                    _ => None,
                },
            };
            found.notes.extend(remarks(&cell.report));
            if cell.rate.is_none() && matches!(entry.load, Load::Closed(_)) {
                found.notes.push(format!("{}: its closed loop is too short to rank by", runs.policy));
            }
            found.figures.push(runs.figure_data());
            found.cells.push(cell);
        }
        found.notes.splice(0..0, reader.notes);
        Ok(found)
    }

    /// A text for the report: the rule that decides which pieces are a part of the comparison, and the list of the
    /// passes whose times show the machine's speed. `None` if the machine's speed was not measured.
    fn rule(&self, steady: f64) -> Option<String> {
        let probed: Vec<String> = self.runs.probed.iter().map(ToString::to_string).collect();
        (!probed.is_empty()).then(|| {
            format!(
                "a piece counts when none of the probed passes took more than {:.1} % longer in the slowest of its three \
                 probes than in the fastest (validate.tolerance.steady), whatever its runs say; probed: {}",
                steady * 100.0,
                probed.join(", ")
            )
        })
    }

    /// The report of a cell of which no piece is compared. A piece is not compared if it was not finished, if none of
    /// its tapes has a step, or if the machine changed its speed during the piece. `None` if no piece was begun, or if
    /// the machine's speed was not measured.
    fn undecided(&self, entry: &RunEntry, pieces: Vec<PieceReport>) -> Option<Undecided> {
        let probed = !self.runs.probed.is_empty() && !pieces.is_empty();
        let policy = self.plan.policies.get(entry.policy).filter(|_| probed)?.spec.label();
        Some(Undecided { policy, load: self.load(entry), share: self.share(entry), pieces })
    }

    /// A sentence that lists the runs that are missing or partial (recorded only up to some step); `None` if all runs
    /// are complete.
    fn partial(&self, cells: &[CellReport]) -> Option<String> {
        let mut parts = Vec::new();
        let (manifest, recorded) = (self.tapes.manifest, self.runs.entries.len());
        let live = self.runs.entries.iter().all(|e| e.load == Load::AsRun);
        match manifest.complete {
            true => {}
            false if live => parts.push(format!("{recorded} of {} runs were begun", manifest.cells)),
            false => parts.push("the validation did not end".to_owned()),
        }
        for cell in cells {
            parts.extend(cell.parts.iter().map(|part| format!("{}, {}: {part}", cell.policy, cell.load)));
        }
        (!parts.is_empty()).then(|| {
            let more = parts.len().saturating_sub(MOST_PARTS);
            parts.truncate(MOST_PARTS);
            parts.extend((more > 0).then(|| format!("and {more} more")));
            format!("PART OF THE RUNS: {}", parts.join("; "))
        })
    }

    /// Simulates the pieces of a cell that count in the comparison. Also predicts the time of each pass of these live
    /// runs.
    fn cell(&self, entry: &RunEntry, pieces: Vec<PieceReport>, tapes: CellTapes, by: Predict) -> Result<CellRuns> {
        let (Some(variant), Some(&seed), Some(entrant)) = (
            self.plan.variants.get(entry.variant),
            self.plan.seeds.get(entry.seed),
            self.plan.policies.get(entry.policy),
        ) else {
            let tapes: Vec<&str> = entry.tapes().map(String::as_str).collect();
            return Err(Problem::bad_input(format!("{}: the experiment has no such run", tapes.join(", ")))
                .help("the folder's experiment.toml and its recordings do not belong together"));
        };
        let with_costs = |costs: Option<(Pair<&LatencySpec>, ContextReads)>| {
            let mut setting = Setting::new(variant, seed)?;
            if let Some((models, reads)) = costs {
                setting.set_costs(models, reads);
            }
            Ok::<Setting, Box<Problem>>(setting)
        };
        let mut setting = with_costs(None)?;
        // The given costs predict the pass times. The policies decide by the costs by which they decided in the live
        // runs.
        let costs = with_costs(self.profile.map(|p| (p.models.as_ref(), p.reads)))?;
        let learned = by.learned.as_ref().map(|models| with_costs(Some((models.as_ref(), ContextReads::Once))));
        let learned = learned.transpose()?;
        let own = setting.workload.clone();
        let mut counted = Vec::new();
        for piece in &tapes.pieces {
            let (head, first) = (&piece.tapes[0].head, entry.pieces[piece.index].first);
            setting.set_workload(requests_of(head, &own, first));
            setting.set_arrivals(head.arrivals());
            let bound = Some(head.slo_tpot_s).filter(|s| s.is_finite());
            let slo = Slo { tpot_s: bound, ..setting.slo(None) };
            let pace = &by.paces[piece.index];
            let replay = Replay { setting: &setting, costs: &costs, pace, head, spec: &entrant.spec };
            counted.push(simulate_piece(&replay, learned.as_ref(), &piece.tapes, first, slo));
        }
        let predicted = |costs: &Setting| {
            let paced = tapes.pieces.iter().flat_map(|p| p.tapes.iter().map(|tape| (tape, &by.paces[p.index])));
            predict_passes(paced, costs.costs(), costs.reads().0)
        };
        let PredictedPasses { errors, steps } = predicted(&costs);
        let heads = || tapes.pieces.iter().map(|p| &p.tapes[0].head);
        Ok(CellRuns {
            policy: entrant.spec.label(),
            load: self.load(entry),
            share: self.share(entry),
            pieces,
            counted,
            pass_errors: errors,
            step_times: steps,
            learned_pass_errors: learned.as_ref().map(predicted).unwrap_or_default().errors,
            requests: heads().map(|head: &Head| head.arrival.len() as u64).sum(),
            overhead_s: heads().map(|head| head.overhead_s).sum::<f64>() / tapes.pieces.len() as f64,
            host: host_times(&tapes.pieces[0].tapes[0]),
            parts: tapes.parts,
        })
    }

    /// The speedups of policies over the baseline, at the arrival rate that all policies have in common. In a folder of
    /// `foretoken live`, this is the rate of the runs. Cells (policies at loads) with an equal seed and equal swept
    /// values form a group. The result has (seed and swept values as text, speedups) for each group.
    fn speedups(&self, found: &[ComparedCell], spec: &ValidateSpec) -> Vec<(String, Vec<PolicyValue>)> {
        let mut groups: Vec<(&RunEntry, Vec<&ComparedCell>)> = Vec::new();
        for cell in found {
            let same = |entry: &RunEntry| (entry.variant, entry.seed) == (cell.entry.variant, cell.entry.seed);
            match groups.iter_mut().find(|(entry, _)| same(entry)) {
                Some((_, cells)) => cells.push(cell),
                None => groups.push((cell.entry, vec![cell])),
            }
        }
        let at_common = |cell: &&&ComparedCell| match cell.entry.load {
            Load::Common(_) | Load::AsRun => true,
            Load::Own(share) => cell.entry.policy == 0 && share == spec.common_load,
            Load::Closed(_) => false,
        };
        let speedup = |(entry, cells): (&RunEntry, Vec<&ComparedCell>)| {
            let common: Vec<&&ComparedCell> = cells.iter().filter(at_common).collect();
            let baseline = common.iter().find(|cell| cell.entry.policy == 0)?;
            let reports: Vec<&CellReport> = common.iter().map(|cell| &cell.report).collect();
            Some((self.group(entry), speedups(&baseline.report, &reports)))
        };
        groups.into_iter().filter_map(speedup).filter(|(_, values)| !values.is_empty()).collect()
    }

    /// The arrival rate of a run as a share of the policy's own service rate. The service rates are those that were
    /// measured before the loads were set. `None` if the run's rate was not set, or if no rates were measured.
    fn share(&self, entry: &RunEntry) -> Option<f64> {
        let rate = |policy: usize| self.runs.rates.get(policy).copied();
        match entry.load {
            Load::Own(share) => Some(share),
            Load::Common(share) => Some(share * rate(0)? / rate(entry.policy)?),
            Load::Closed(_) | Load::AsRun => None,
        }
    }

    /// How the requests of a cell arrive, as text. If the experiment has several seeds or swept values, the text also
    /// has the seed and the swept values.
    fn load(&self, entry: &RunEntry) -> String {
        match self.group(entry) {
            name if name.is_empty() => entry.load.to_string(),
            name => format!("{}, {name}", entry.load),
        }
    }

    fn group(&self, entry: &RunEntry) -> String {
        let choices = self.plan.variants[entry.variant].choices.iter();
        let mut parts: Vec<String> = choices.map(|c| format!("{} = {}", c.path, c.value)).collect();
        if self.plan.seeds.len() > 1 {
            parts.push(format!("seed {}", self.plan.seeds[entry.seed]));
        }
        parts.join(", ")
    }
}

/// The inputs of the prediction of one cell that differ from cell to cell.
struct Predict<'a> {
    /// For each piece, the machine's pace: the factor by which passes took longer than usual.
    paces: &'a [Pace],
    /// Costs fitted to the live runs of all other cells (a cell is a policy at a load). `None` if the other cells
    /// lack a kind of pass that this cell ran.
    learned: Option<Pair<LatencySpec>>,
}

/// The results of comparing all cells of a results folder with their simulations.
#[derive(Default)]
struct ComparedCells<'a> {
    cells: Vec<ComparedCell<'a>>,
    undecided: Vec<Undecided>,
    figures: Vec<ValidatedRun>,
    device: String,
    notes: Vec<String>,
}

/// The comparison of a cell of which at least one piece is compared.
struct ComparedCell<'a> {
    entry: &'a RunEntry,
    report: CellReport,
    /// The measured and the predicted service rate of a closed loop. `None` for other loads, and for a closed loop that
    /// is too short.
    rate: Option<PolicyValue>,
}

/// Statistics of the host time of a run's steps, from its tape (log).
fn host_times(tape: &Tape) -> HostTimes {
    let mut clock = HostClock::default();
    tape.steps.iter().for_each(|step| clock.add(step));
    clock.times()
}

/// A sentence names at most this number of partial runs (recorded only up to some step), or of undecided cells. If
/// there are more, the sentence gives only the number of the further ones.
const MOST_PARTS: usize = 5;

/// A sentence that names the undecided cells. A cell is undecided if all its pieces are left out of the comparison.
/// `None` if no cell is undecided.
fn not_decided(cells: &[CellReport], undecided: &[Undecided]) -> Option<String> {
    let mut names: Vec<String> = undecided.iter().map(|u| format!("{}, {}", u.policy, u.load)).collect();
    let (n, all) = (names.len(), names.len() + cells.len());
    let more = n.saturating_sub(MOST_PARTS);
    names.truncate(MOST_PARTS);
    names.extend((more > 0).then(|| format!("and {more} more")));
    (n > 0).then(|| {
        format!("NOT DECIDED: {n} of {all} cells have no piece in which the machine was steady: {}", names.join("; "))
    })
}

/// Notes for the reader about a cell: that a live run is partial (recorded only up to some step), and where the
/// simulation's acceptance differs from the recorded acceptance.
fn remarks(cell: &CellReport) -> Vec<String> {
    let mut all = Vec::new();
    if !cell.parts.is_empty() {
        all.push(format!("{}, {}: the live run is a part; what it holds was compared", cell.policy, cell.load));
    }
    if let Some(parted) = cell.flow.parted.as_ref().filter(|p| p.what == token_flow::Difference::Acceptance) {
        all.push(format!("{}, {}, step {}: {}", cell.policy, cell.load, parted.step, parted.how));
    }
    all
}
