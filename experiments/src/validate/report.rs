//! The whole validation: every cell compared, the rankings, and the verdict. Made from recordings alone.

use super::compare::{self, CellReport, Comparison, Drawn};
use super::flow;
use super::measure::{Load, RunEntry, unreadable};
use super::numbers::{Unit, service_rate};
use super::simulate::{Replay, requests_of};
use super::spec::ValidateSpec;
use super::verdict::{self, Check, Ranked, Service};
use crate::live::tape::{Tape, read_tape};
use crate::plan::Plan;
use crate::problem::{Problem, Result};
use crate::setting::Setting;
use foretoken_policies::PolicySpec;
use foretoken_sim::live::RecordedRounds;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of `validation.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// How steady the machine was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// The largest of the changes below.
    pub largest: f64,
    /// Model, and the change of its passes' median times from the profile before the runs to the one after them.
    pub models: Vec<(String, f64)>,
}

/// `validation.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
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
    /// Is every bound kept?
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|c| c.kept)
    }
}

/// What is compared.
pub struct Compared<'a> {
    /// The experiment, the baseline first.
    pub plan: &'a Plan,
    /// Index of its variant and seed.
    pub at: (usize, usize),
    /// The runs.
    pub entries: &'a [RunEntry],
    /// Where their tapes lie.
    pub tapes: &'a Path,
    /// How steady the machine was.
    pub drift: Option<Drift>,
}

impl Compared<'_> {
    /// Compares every run.
    pub fn validation(&self) -> Result<(Validation, Vec<Drawn>)> {
        let variant = &self.plan.variants[self.at.0];
        let spec = variant.experiment.validate.clone().unwrap_or_default();
        let (mut cells, mut drawn, mut service, mut notes) = (vec![], vec![], vec![], vec![]);
        let mut device = String::new();
        for entry in self.entries {
            let tapes = self.read(entry)?;
            tapes[0].head.device.clone_into(&mut device);
            let (cell, of_cell, rate) = self.cell(entry, &tapes)?;
            notes.extend(remarks(&cell));
            match rate {
                Some(rate) => service.push(rate),
                None if matches!(entry.load, Load::Closed(_)) => {
                    notes.push(format!("{}: its closed loop is too short to rank by", cell.policy));
                }
                None => {}
            }
            cells.push(cell);
            drawn.push(of_cell);
        }
        let speedups = self.speedups(&cells, &spec);
        let rankings = rankings(&service, &speedups);
        let drift = self.drift.as_ref().map(|d| d.largest);
        if drift.is_none() {
            notes.push("drift of the machine was not measured: `foretoken validate FILE.toml` measures it".into());
        }
        let checks = verdict::checks(&cells, &rankings, drift, &spec.tolerance);
        let costs = match &variant.experiment.hardware.profile {
            Some(path) => format!("profiled: {}", path.display()),
            None => "the experiment's [hardware], not profiled".to_owned(),
        };
        let validation = Validation {
            schema_version: SCHEMA_VERSION,
            name: self.plan.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device,
            costs,
            drift: self.drift.clone(),
            service,
            speedups,
            rankings,
            cells,
            checks,
            notes,
        };
        Ok((validation, drawn))
    }

    fn read(&self, entry: &RunEntry) -> Result<Vec<Tape>> {
        let read = |name: &String| read_tape(&self.tapes.join(name)).map_err(|e| unreadable(name, &e));
        let tapes = entry.tapes.iter().map(read).collect::<Result<Vec<_>>>()?;
        match tapes.iter().any(|t| t.steps.is_empty()) {
            true => Err(Problem::bad_input(format!("{}: the recording holds no step", entry.tapes.join(", ")))
                .help("the run ended before its first step: run it again")),
            false => Ok(tapes),
        }
    }

    fn policy(&self, entry: &RunEntry) -> &PolicySpec {
        &self.plan.policies[entry.policy].spec
    }

    fn cell(&self, entry: &RunEntry, tapes: &[Tape]) -> Result<(CellReport, Drawn, Option<Service>)> {
        let head = &tapes[0].head;
        let mut setting = Setting::new(&self.plan.variants[self.at.0], self.plan.seeds[self.at.1])?;
        setting.set_workload(requests_of(head, &setting.workload));
        setting.set_arrivals(head.arrivals());
        let spec = self.policy(entry);
        let comparison = Comparison {
            replay: Replay {
                setting: &setting,
                head,
                spec,
                slo_tpot_s: entry.slo_tpot_s.unwrap_or(f64::INFINITY),
                overhead_s: entry.overhead_s,
            },
            tapes,
            load: (entry.load.to_string(), if let Load::Own(share) = entry.load { Some(share) } else { None }),
            slo: foretoken_sim::metrics::Slo { tpot_s: entry.slo_tpot_s, ..setting.slo(None) },
            host: entry.host,
        };
        let (cell, drawn) = comparison.report();
        let rate = match entry.load {
            Load::Closed(clients) => service(&comparison, clients),
            _ => None,
        };
        Ok((cell, drawn, rate))
    }

    /// Mean E2E of the baseline over that of each policy, at the common load.
    fn speedups(&self, cells: &[CellReport], spec: &ValidateSpec) -> Vec<Service> {
        let at_common = |(entry, _): &(&RunEntry, &CellReport)| match entry.load {
            Load::Common(_) | Load::AsRun => true,
            Load::Own(share) => entry.policy == 0 && share == spec.common_load,
            Load::Closed(_) => false,
        };
        let common: Vec<(&RunEntry, &CellReport)> = self.entries.iter().zip(cells).filter(at_common).collect();
        let Some(base) = common.iter().find(|(entry, _)| entry.policy == 0).and_then(|(_, c)| c.row("E2E, mean")) else {
            return Vec::new();
        };
        let over = |(_, cell): &(&RunEntry, &CellReport)| {
            let own = cell.row("E2E, mean")?;
            let live = base.live.iter().zip(&own.live).map(|(b, o)| b / o).collect();
            let simulated = |b: Option<f64>, o: Option<f64>| b.zip(o).map(|(b, o)| b / o);
            let (recorded, modelled) = (simulated(base.recorded, own.recorded), simulated(base.modelled, own.modelled));
            let rate = compare::row("speedup", Unit::Plain, live, recorded, modelled);
            Some(Service { policy: cell.policy.clone(), rate })
        };
        common.iter().filter_map(over).collect()
    }
}

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

fn rankings(service: &[Service], speedups: &[Service]) -> Vec<Ranked> {
    let of = |by: &str, all: &[Service]| {
        let value = |s: &Service| Some((s.policy.clone(), s.rate.live.clone(), s.rate.recorded?, s.rate.modelled));
        let values = all.iter().map(value).collect::<Option<Vec<_>>>()?;
        (values.len() > 1).then(|| verdict::rank(by, values))
    };
    of("service rate", service).into_iter().chain(of("speedup at the common load", speedups)).collect()
}

/// What a reader must know of a cell.
fn remarks(cell: &CellReport) -> Vec<String> {
    let mut all = Vec::new();
    if cell.partial {
        all.push(format!("{}, {}: the live run is a part; what it holds was compared", cell.policy, cell.load));
    }
    if let Some(parted) = cell.flow.parted.as_ref().filter(|p| p.what == flow::Difference::Acceptance) {
        all.push(format!("{}, {}, step {}: {}", cell.policy, cell.load, parted.step, parted.how));
    }
    all
}
