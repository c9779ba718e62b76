//! The whole validation: every cell compared, the rankings, and the verdict. Made from recordings alone.

use super::compare::{self, CellReport, Comparison};
use super::drift::Drift;
use super::flow;
use super::numbers::{Unit, service_rate};
use super::runs::{Load, RunEntry, Runs};
use super::simulate::{Replay, requests_of};
use super::tapes::{PartOf, Recording, Tapes};
use super::verdict::{self, Check, Ranked, Service};
use crate::serve::tape::{End, Tape};
use foretoken_profiler::Profile;
use foretoken_report::ValidatedRun;
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_sim::live::RecordedRounds;
use foretoken_sim::metrics::Slo;
use foretoken_spec::problem::{Problem, Result};
use foretoken_spec::validate::ValidateSpec;
use serde::{Deserialize, Serialize};

/// The version of `validation.json`.
pub const SCHEMA_VERSION: u32 = 2;

/// `validation.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// What limits the verdict, one sentence each: it is of a part of the runs, or what was compared is not what was run. Empty:
    /// nothing does.
    pub caveats: Vec<String>,
    /// Version of this format.
    pub schema_version: u32,
    /// The experiment's name.
    pub name: String,
    /// The version of Foretoken.
    pub version: String,
    /// What ran it.
    pub device: String,
    /// Where the predicted times of passes come from.
    pub costs: String,
    /// How steady the machine was; absent where it was not measured.
    pub drift: Option<Drift>,
    /// Service rates.
    pub service: Vec<Service>,
    /// Speedup of each policy over the baseline, by mean E2E at the common load.
    pub speedups: Vec<Service>,
    /// Rankings.
    pub rankings: Vec<Ranked>,
    /// The cells.
    pub cells: Vec<CellReport>,
    /// Every bound.
    pub checks: Vec<Check>,
    /// What to know before believing it.
    pub notes: Vec<String>,
}

impl Validation {
    /// Was the machine the same before and after the runs, as far as that is known?
    pub fn steady(&self) -> bool {
        self.checks.iter().all(|c| c.kept || c.what != verdict::DRIFT)
    }
}

/// What is compared.
pub struct Compared<'a> {
    /// The experiment, the baseline first.
    pub plan: &'a Plan,
    /// The recordings.
    pub tapes: Tapes<'a>,
    /// The runs.
    pub runs: &'a Runs,
    /// What predicts passes instead of the experiment's costs.
    pub profile: Option<&'a Profile>,
    /// What predicts passes, in words.
    pub costs: String,
    /// What limits the verdict beside parts of runs.
    pub caveats: Vec<String>,
}

/// A run with what was found of it.
struct Found {
    entry: RunEntry,
    cell: CellReport,
    drawn: ValidatedRun,
    rate: Option<Service>,
}

impl Compared<'_> {
    /// Compares every run.
    pub fn validation(&self) -> Result<(Validation, Vec<ValidatedRun>)> {
        let experiment = &self.plan.variants[0].experiment;
        let spec = experiment.validate.clone().unwrap_or_default();
        let (mut found, mut unended, mut notes) = (Vec::new(), None, Vec::new());
        let mut device = String::new();
        for entry in &self.runs.entries {
            let (tapes, parts) = self.read(entry, &mut unended, &mut notes)?;
            let Some(first) = tapes.first() else { continue };
            first.head.device.clone_into(&mut device);
            let (cell, drawn, rate) = self.cell(entry, &tapes, &parts, &found)?;
            notes.extend(remarks(&cell));
            if rate.is_none() && matches!(entry.load, Load::Closed(_)) {
                notes.push(format!("{}: its closed loop is too short to rank by", cell.policy));
            }
            found.push(Found { entry: entry.clone(), cell, drawn, rate });
        }
        if found.is_empty() {
            return Err(Problem::bad_input(format!("{}: no recording holds a step", self.tapes.folder.display()))
                .help("the runs ended before their first step: run it again"));
        }
        let service: Vec<Service> = found.iter().filter_map(|f| f.rate.clone()).collect();
        let groups = self.groups(&found);
        let speedups: Vec<(String, Vec<Service>)> = groups
            .iter()
            .map(|(name, group)| (name.clone(), speedups(group, &spec)))
            .filter(|g| !g.1.is_empty())
            .collect();
        let rankings = rankings(&service, &speedups);
        let drift = self.runs.drift.as_ref().map(|d| d.largest);
        if drift.is_none() {
            notes.push("drift of the machine was not measured: `foretoken validate FILE.toml` measures it".into());
        }
        let (cells, drawn): (Vec<CellReport>, Vec<ValidatedRun>) = found.into_iter().map(|f| (f.cell, f.drawn)).unzip();
        let checks = verdict::checks(&cells, &rankings, drift, &spec.tolerance);
        let caveats = self.part(&cells).into_iter().chain(self.caveats.iter().cloned()).collect();
        let validation = Validation {
            caveats,
            schema_version: SCHEMA_VERSION,
            name: self.plan.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device,
            costs: self.costs.clone(),
            drift: self.runs.drift.clone(),
            service,
            speedups: speedups.into_iter().flat_map(|(_, all)| all).collect(),
            rankings,
            cells,
            checks,
            notes,
        };
        Ok((validation, drawn))
    }

    /// The recordings of a run that hold something, and how much they hold where that is not all. `unended` is the recording
    /// without an end that was met before.
    fn read(
        &self,
        entry: &RunEntry,
        unended: &mut Option<String>,
        notes: &mut Vec<String>,
    ) -> Result<(Vec<Tape>, Vec<PartOf>)> {
        let (mut tapes, mut parts) = (Vec::new(), Vec::new());
        for name in &entry.tapes {
            let tape = match self.tapes.read(name)? {
                Recording::Of(tape) => *tape,
                Recording::Nothing(why) => {
                    notes.push(format!("{name}: {why}"));
                    continue;
                }
            };
            let unfinished = matches!(tape.end, End::Cut(_)) && !self.tapes.finished(name) && !self.tapes.intact;
            if unfinished && let Some(other) = unended.replace(name.clone()) {
                let message = format!("{other} and {name} have no end, and a run that is killed leaves one so");
                return Err(Problem::bad_input(message)
                    .help("one of them was cut since: run it again, or compare what is there with --intact"));
            }
            parts.extend(PartOf::of(name, &tape));
            match tape.steps.is_empty() {
                true => notes.push(format!("{name}: it holds no step and was left out")),
                false => tapes.push(tape),
            }
        }
        Ok((tapes, parts))
    }

    /// That it is a verdict on a part, and on how much of the runs.
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
        tapes: &[Tape],
        parts: &[PartOf],
        found: &[Found],
    ) -> Result<(CellReport, ValidatedRun, Option<Service>)> {
        let head = &tapes[0].head;
        let (Some(variant), Some(&seed), Some(entrant)) = (
            self.plan.variants.get(entry.variant),
            self.plan.seeds.get(entry.seed),
            self.plan.policies.get(entry.policy),
        ) else {
            return Err(Problem::bad_input(format!("{}: the experiment has no such run", entry.tapes.join(", ")))
                .help("the folder's experiment.toml and its recordings do not belong together"));
        };
        let mut setting = Setting::new(variant, seed)?;
        setting.set_workload(requests_of(head, &setting.workload));
        setting.set_arrivals(head.arrivals());
        if let Some(profile) = self.profile {
            setting.set_costs(profile);
        }
        let bound = Some(head.slo_tpot_s).filter(|s| s.is_finite());
        let comparison = Comparison {
            replay: Replay { setting: &setting, head, spec: &entrant.spec },
            tapes,
            parts,
            load: (self.load(entry), self.share(entry, found)),
            slo: Slo { tpot_s: bound, ..setting.slo(None) },
        };
        let (cell, drawn) = comparison.report();
        let rate = match entry.load {
            Load::Closed(clients) => service(&comparison, clients),
            _ => None,
        };
        Ok((cell, drawn, rate))
    }

    /// The share of the policy's own service rate that a run was at, as far as closed loops before it say.
    fn share(&self, entry: &RunEntry, found: &[Found]) -> Option<f64> {
        let rate = |policy: usize| {
            let of = found.iter().find(|f| f.entry.policy == policy && f.rate.is_some())?;
            let live = &of.rate.as_ref()?.rate.live;
            Some(live.iter().sum::<f64>() / live.len() as f64)
        };
        match entry.load {
            Load::Own(share) => Some(share),
            Load::Common(share) => Some(share * rate(0)? / rate(entry.policy)?),
            Load::Closed(_) | Load::AsRun => None,
        }
    }

    /// The load in words, with the seed and swept values where there are several.
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

    /// The runs by seed and swept values: policies are compared within.
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

/// Mean E2E of the baseline over that of each policy, at the common load.
fn speedups(found: &[&Found], spec: &ValidateSpec) -> Vec<Service> {
    let at_common = |f: &&&Found| match f.entry.load {
        Load::Common(_) | Load::AsRun => true,
        Load::Own(share) => f.entry.policy == 0 && share == spec.common_load,
        Load::Closed(_) => false,
    };
    let common: Vec<&&Found> = found.iter().filter(at_common).collect();
    let Some(base) = common.iter().find(|f| f.entry.policy == 0).and_then(|f| f.cell.row(E2E)) else {
        return Vec::new();
    };
    let over = |f: &&&Found| {
        let own = f.cell.row(E2E)?;
        let live = base.live.iter().zip(&own.live).map(|(b, o)| b / o).collect();
        let simulated = |b: Option<f64>, o: Option<f64>| b.zip(o).map(|(b, o)| b / o);
        let (recorded, modelled) = (simulated(base.recorded, own.recorded), simulated(base.modelled, own.modelled));
        let rate = compare::row("speedup", Unit::Plain, live, recorded, modelled);
        Some(Service { policy: f.cell.policy.clone(), rate })
    };
    common.iter().filter_map(over).collect()
}

const E2E: &str = "E2E, mean";
/// Parts that are told of in one sentence.
const MOST_PARTS: usize = 5;

/// The service rate, live and simulated.
fn service(of: &Comparison, clients: u32) -> Option<Service> {
    let live = of.tapes.iter().map(|t| service_rate(&t.told().records, clients)).collect::<Option<Vec<f64>>>()?;
    let setting = of.replay.setting;
    let mut acceptance = RecordedRounds::new(setting.workload.len(), setting.acceptance());
    of.tapes[0].steps.iter().for_each(|step| acceptance.add(step));
    let recorded = of.replay.run(&acceptance, 1.0).service_rate(clients);
    let modelled = of.replay.run(setting.acceptance(), 1.0).service_rate(clients);
    let rate = compare::row("service rate", Unit::Plain, live, recorded, modelled);
    Some(Service { policy: of.replay.spec.label(), rate })
}

fn rankings(service: &[Service], speedups: &[(String, Vec<Service>)]) -> Vec<Ranked> {
    let of = |by: &str, all: &[Service]| if all.len() > 1 { verdict::rank(by, all) } else { None };
    let by_speedup = speedups.iter().filter_map(|(group, of_group)| {
        let comma = if group.is_empty() { "" } else { ", " };
        of(&format!("speedup at the common load{comma}{group}"), of_group)
    });
    of("service rate", service).into_iter().chain(by_speedup).collect()
}

/// What a reader must know of a cell.
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
