//! The whole validation: every cell's comparison, the rankings, and the verdict. Made from recordings alone.

use super::beside::Beside;
use super::compare::{CellReport, Comparison};
use super::drift::{Drift, typical};
use super::flow;
use super::gather::{Counted, Gather};
use super::others::Others;
use super::pace::{Pace, paces, usual_of};
use super::rank::{Found, rankings, service, speedups};
use super::regions::{RegionError, regions, together};
use super::repeats::{Repeats, repeats};
use super::runs::{Load, RunEntry, Runs, Standing};
use super::simulate::{Replay, requests_of};
use super::standing::{self, PieceReport, Undecided};
use super::tapes::Tapes;
use super::verdict::{self, Check, Ranked, Service};
use foretoken_profiler::ProbedPass;
use foretoken_report::ValidatedRun;
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_sim::ContextReads;
use foretoken_sim::latency::LatencySpec;
use foretoken_sim::metrics::Slo;
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};

/// The version of `validation.json`.
pub const SCHEMA_VERSION: u32 = 4;

/// The content of `validation.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// Sentences that limit the verdict: it covers a part of the runs, or the compared experiment is not the one that
    /// ran. Empty if nothing limits it.
    pub caveats: Vec<String>,
    /// Version of this format.
    pub schema_version: u32,
    /// The experiment's name.
    pub name: String,
    /// The version of Foretoken.
    pub version: String,
    /// The name of the device that served.
    pub device: String,
    /// The source of the predicted pass times, as text.
    pub costs: String,
    /// The rule by which pieces count, as stated before the runs; absent if nothing was probed.
    pub rule: Option<String>,
    /// (number of pieces that count, number of pieces).
    pub counted: (u64, u64),
    /// The range of the machine's speed over all pieces; absent if nothing was probed.
    pub drift: Option<Drift>,
    /// Whether live runs repeat; counted before the errors.
    pub repeats: Vec<Repeats>,
    /// The policies' service rates.
    pub service: Vec<Service>,
    /// Speedup of each policy over the baseline, by mean E2E at the common load.
    pub speedups: Vec<Service>,
    /// The rankings of the policies.
    pub rankings: Vec<Ranked>,
    /// The cells with at least one piece that counts.
    pub cells: Vec<CellReport>,
    /// The cells without a piece that counts: they are in no number and in no bound.
    pub undecided: Vec<Undecided>,
    /// Errors of passes by kind, over all cells.
    pub regions: Vec<RegionError>,
    /// Errors of passes by kind, each cell predicted with costs learned from the other cells' live runs.
    pub learned_regions: Vec<RegionError>,
    /// Every bound, and whether it is kept.
    pub checks: Vec<Check>,
    /// Notes that a reader must know.
    pub notes: Vec<String>,
}

impl Validation {
    /// True if at least one cell has a piece that counts.
    pub fn decided(&self) -> bool {
        !self.cells.is_empty()
    }

    /// True if the machine was steady in every piece, as far as probes show.
    pub fn steady(&self) -> bool {
        self.counted.0 == self.counted.1
    }
}

/// The costs of passes, from any kind of profile.
#[derive(Clone, Debug, PartialEq)]
pub struct PassCosts {
    /// Costs of the target.
    pub target: LatencySpec,
    /// Costs of the draft.
    pub draft: LatencySpec,
    /// How the target's costs count the context of a verify pass.
    pub reads: ContextReads,
    /// Probes of the machine of these costs; empty if it is the machine of the runs.
    pub probes: Vec<ProbedPass>,
}

/// The input of a comparison.
pub struct Compared<'a> {
    /// The experiment, the baseline first.
    pub plan: &'a Plan,
    /// The tapes of the runs.
    pub tapes: Tapes<'a>,
    /// The list of the runs.
    pub runs: &'a Runs,
    /// Costs that replace the experiment's in predictions, if given.
    pub profile: Option<&'a PassCosts>,
    /// The source of the predicting costs, as text.
    pub costs: String,
    /// Sentences that limit the verdict, beside partial runs.
    pub caveats: Vec<String>,
}

impl Compared<'_> {
    /// Compares every run. Returns the validation, and the runs for the figures.
    pub fn validation(&self) -> Result<(Validation, Vec<ValidatedRun>)> {
        let experiment = &self.plan.variants[0].experiment;
        let spec = experiment.validate.clone().unwrap_or_default();
        let (mut found, mut drawn, mut undecided) = (Vec::new(), Vec::new(), Vec::new());
        let (mut device, mut notes, mut gather) = (String::new(), Vec::new(), Gather::from(&self.tapes));
        let typical = typical(self.runs.probes());
        let pieces = |entry: &RunEntry| standing::of(self.runs, entry, spec.tolerance.steady, &typical);
        let all: Vec<Vec<PieceReport>> = self.runs.entries.iter().map(pieces).collect();
        let usual = usual_of(self.runs, self.profile.map_or(&[], |profile| &profile.probes));
        let paces = paces(self.runs, &usual);
        let others = Others::of(&self.tapes, &all, &paces)?;
        for (at, (entry, pieces)) in self.runs.entries.iter().zip(all).enumerate() {
            let (counted, parts) = gather.of(&pieces)?;
            let Some((_, first)) = counted.first() else {
                undecided.extend(self.undecided(entry, pieces));
                continue;
            };
            first[0].head.device.clone_into(&mut device);
            let (one, drawn_of_it) = self.cell(entry, pieces, (counted, parts), (&paces[at], others.than(at)))?;
            notes.extend(remarks(&one.cell));
            if one.rate.is_none() && matches!(entry.load, Load::Closed(_)) {
                notes.push(format!("{}: its closed loop is too short to rank by", one.cell.policy));
            }
            found.push(one);
            drawn.push(drawn_of_it);
        }
        let changed = |u: &Undecided| u.pieces.iter().any(|p| p.standing == Standing::Changed);
        if found.is_empty() && !undecided.iter().any(changed) {
            return Err(Problem::bad_input(format!("{}: no recording holds a step", self.tapes.folder.display()))
                .help("the runs ended before their first step, or within their first piece: run it again"));
        }
        let service: Vec<Service> = found.iter().filter_map(|f| f.rate.clone()).collect();
        let groups = self.groups(&found);
        let speedups: Vec<(String, Vec<Service>)> = groups
            .iter()
            .map(|(name, group)| (name.clone(), speedups(group, &spec)))
            .filter(|g| !g.1.is_empty())
            .collect();
        let rankings = rankings(&service, &speedups);
        notes.splice(0..0, gather.notes);
        if self.runs.probed.is_empty() {
            notes.push("the machine was not probed: `foretoken validate FILE.toml` does it".into());
        }
        let cells: Vec<CellReport> = found.into_iter().map(|f| f.cell).collect();
        let checks = verdict::checks(&cells, &rankings, &spec.tolerance);
        let caveats = not_decided(&cells, &undecided).into_iter().chain(self.part(&cells));
        let caveats = caveats.chain(self.caveats.iter().cloned()).collect();
        let pieces = || cells.iter().map(|c| &c.pieces).chain(undecided.iter().map(|u| &u.pieces)).flatten();
        let counts = pieces().filter(|p| p.standing == Standing::Counts).count();
        let validation = Validation {
            caveats,
            schema_version: SCHEMA_VERSION,
            name: self.plan.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device,
            costs: self.costs.clone(),
            rule: self.rule(spec.tolerance.steady),
            counted: (counts as u64, pieces().count() as u64),
            drift: standing::range(pieces()),
            repeats: repeats(&cells, &undecided, &spec.loads),
            regions: together(cells.iter().map(|c| c.regions.as_slice())),
            learned_regions: together(cells.iter().map(|c| c.learned_regions.as_slice())),
            service,
            speedups: speedups.into_iter().flat_map(|(_, all)| all).collect(),
            rankings,
            cells,
            undecided,
            checks,
            notes,
        };
        Ok((validation, drawn))
    }

    /// The rule as text, with the probed passes.
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

    /// The report of a cell (a policy at a load) of which no piece may be used; `None` if no piece was begun.
    fn undecided(&self, entry: &RunEntry, pieces: Vec<PieceReport>) -> Option<Undecided> {
        let probed = !self.runs.probed.is_empty() && !pieces.is_empty();
        let policy = self.plan.policies.get(entry.policy).filter(|_| probed)?.spec.label();
        Some(Undecided { policy, load: self.load(entry), share: self.share(entry), pieces })
    }

    /// A sentence that the verdict covers a part of the runs, and how much.
    fn part(&self, cells: &[CellReport]) -> Option<String> {
        let mut said = Vec::new();
        let (manifest, recorded) = (self.tapes.manifest, self.runs.entries.len());
        let live = self.runs.entries.iter().all(|e| e.load == Load::AsRun);
        match manifest.complete {
            true => {}
            false if live => said.push(format!("{recorded} of {} runs were begun", manifest.cells)),
            false => said.push("the validation did not end".to_owned()),
        }
        for cell in cells {
            said.extend(cell.parts.iter().map(|part| format!("{}, {}: {part}", cell.policy, cell.load)));
        }
        (!said.is_empty()).then(|| {
            let more = said.len().saturating_sub(MOST_PARTS);
            said.truncate(MOST_PARTS);
            said.extend((more > 0).then(|| format!("and {more} more")));
            format!("PART OF THE RUNS: {}", said.join("; "))
        })
    }

    fn cell(
        &self,
        entry: &RunEntry,
        pieces: Vec<PieceReport>,
        (counted, parts): Counted,
        (paces, by_others): (&[Pace], Option<(LatencySpec, LatencySpec)>),
    ) -> Result<(Found, ValidatedRun)> {
        let (Some(variant), Some(&seed), Some(entrant)) = (
            self.plan.variants.get(entry.variant),
            self.plan.seeds.get(entry.seed),
            self.plan.policies.get(entry.policy),
        ) else {
            let tapes: Vec<&str> = entry.tapes().map(String::as_str).collect();
            return Err(Problem::bad_input(format!("{}: the experiment has no such run", tapes.join(", ")))
                .help("the folder's experiment.toml and its recordings do not belong together"));
        };
        let mut setting = Setting::new(variant, seed)?;
        // The predicting costs may know more than the belief that policies had before the runs.
        let mut costs = Setting::new(variant, seed)?;
        if let Some(PassCosts { target, draft, reads, .. }) = self.profile {
            costs.set_costs((target, draft), *reads);
        }
        let learned = by_others.map(|(target, draft)| {
            let mut costs = Setting::new(variant, seed)?;
            costs.set_costs((&target, &draft), ContextReads::Once);
            Ok::<Setting, Box<Problem>>(costs)
        });
        let learned = learned.transpose()?;
        let own = setting.workload.clone();
        let mut beside = Vec::new();
        for (n, tapes) in &counted {
            let (head, first) = (&tapes[0].head, entry.pieces[*n].first);
            setting.set_workload(requests_of(head, &own, first));
            setting.set_arrivals(head.arrivals());
            let bound = Some(head.slo_tpot_s).filter(|s| s.is_finite());
            let slo = Slo { tpot_s: bound, ..setting.slo(None) };
            let replay = Replay { setting: &setting, costs: &costs, pace: &paces[*n], head, spec: &entrant.spec };
            beside.push(Beside::of(&replay, learned.as_ref(), tapes, first, slo));
        }
        let by = |costs: &Setting| {
            let tapes = counted.iter().flat_map(|(n, tapes)| tapes.iter().map(|tape| (tape, &paces[*n])));
            regions(tapes, costs.costs(), costs.reads().0)
        };
        let (passes, learned_regions) = (by(&costs), learned.as_ref().map(by).unwrap_or_default().0);
        let rate = match entry.load {
            Load::Closed(clients) => service(&entrant.spec.label(), &beside, clients),
            _ => None,
        };
        let comparison = Comparison {
            policy: entrant.spec.label(),
            load: (self.load(entry), self.share(entry)),
            pieces,
            counted: beside,
            tapes: counted.into_iter().map(|(_, tapes)| tapes).collect(),
            parts,
            passes,
            learned_regions,
        };
        let (cell, drawn) = comparison.report();
        Ok((Found { entry: entry.clone(), cell, rate }, drawn))
    }

    /// The load of a run as a share of the policy's own service rate, by the rates from which loads were set.
    fn share(&self, entry: &RunEntry) -> Option<f64> {
        let rate = |policy: usize| self.runs.rates.get(policy).copied();
        match entry.load {
            Load::Own(share) => Some(share),
            Load::Common(share) => Some(share * rate(0)? / rate(entry.policy)?),
            Load::Closed(_) | Load::AsRun => None,
        }
    }

    /// The load as text, with the seed and swept values if there are several.
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

    /// The runs by seed and swept values. Policies are compared within such a group.
    fn groups<'a>(&self, found: &'a [Found]) -> Vec<(String, Vec<&'a Found>)> {
        let mut groups: Vec<((usize, usize), String, Vec<&Found>)> = Vec::new();
        for f in found {
            let key = (f.entry.variant, f.entry.seed);
            match groups.iter_mut().find(|g| g.0 == key) {
                Some(group) => group.2.push(f),
                None => groups.push((key, self.group(&f.entry), vec![f])),
            }
        }
        groups.into_iter().map(|(_, name, group)| (name, group)).collect()
    }
}

/// Most partial runs, or cells, that one sentence names.
const MOST_PARTS: usize = 5;

/// A sentence that names the undecided cells; `None` if there are none.
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

/// Remarks about a cell that a reader must know.
fn remarks(cell: &CellReport) -> Vec<String> {
    let mut all = Vec::new();
    if !cell.parts.is_empty() {
        all.push(format!("{}, {}: the live run is a part; what it holds was compared", cell.policy, cell.load));
    }
    if let Some(parted) = cell.flow.parted.as_ref().filter(|p| p.what == flow::Difference::Acceptance) {
        all.push(format!("{}, {}, step {}: {}", cell.policy, cell.load, parted.step, parted.how));
    }
    all
}
