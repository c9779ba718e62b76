//! The live side of a validation: a profile, service rates, runs at shares of them, everything twice, and a short profile at the
//! end that says how steady the machine was. Nothing is predicted here.

use super::numbers::service_rate;
use super::spec::ValidateSpec;
use crate::live::tape::read_tape;
use crate::live::{Bench, HostTimes, LiveSpec, Machine, Recorded};
use crate::problem::{Exit, Problem, Result};
use crate::setting::Setting;
use foretoken_policies::PolicySpec;
use foretoken_sim::metrics::Slo;
use foretoken_sim::{Arrivals, Time};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Each live run is done so often.
pub const REPEATS: usize = 2;

/// One recorded run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEntry {
    /// Index of the policy.
    pub policy: usize,
    /// What it was run at.
    pub load: Load,
    /// Its recordings, below the folder.
    pub tapes: Vec<String>,
    /// Host time between steps, measured while warming up, seconds.
    pub overhead_s: f64,
    /// The TPOT bound shown to the policy; absent: none.
    pub slo_tpot_s: Option<f64>,
    /// Host time of the first run.
    pub host: Option<HostTimes>,
}

/// What a run was run at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// A closed loop of so many clients: what the service rate is measured by.
    Closed(u32),
    /// Arrivals at this share of the policy's own service rate.
    Own(f64),
    /// Arrivals at this share of the baseline's service rate: where policies are compared.
    Common(f64),
    /// The arrivals of a live run, as they were.
    AsRun,
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Load::Closed(clients) => write!(f, "closed loop of {clients}"),
            Load::Own(share) => write!(f, "{share} of its service rate"),
            Load::Common(share) => write!(f, "{share} of the baseline's service rate"),
            Load::AsRun => write!(f, "as run"),
        }
    }
}

/// What measuring needs.
pub struct Measuring<'a> {
    /// What serves.
    pub machine: &'a mut dyn Machine,
    /// The `[live]` table.
    pub live: &'a LiveSpec,
    /// The `[validate]` table.
    pub spec: &'a ValidateSpec,
    /// The policies, the baseline first.
    pub policies: &'a [PolicySpec],
    /// A fresh world and its prompts, of the whole workload.
    pub world: &'a dyn Fn() -> Result<(Setting, Vec<Vec<u32>>)>,
    /// Where recordings go.
    pub folder: &'a Path,
    /// Set from outside to end early.
    pub interrupt: &'a AtomicBool,
}

impl Measuring<'_> {
    /// Measures everything; the entries in the order of the plan. The order in time: closed loops of all policies, twice, and
    /// then all open runs, all a first time before any a second time, so that what drifts shows between the repeats.
    pub fn run(&mut self) -> Result<Vec<RunEntry>> {
        let mut entries = self.closed_loops()?;
        let rates = self.service_rates(&entries)?;
        let mut open: Vec<RunEntry> = Vec::new();
        for policy in 0..self.policies.len() {
            let overhead_s = entries[policy].overhead_s;
            let own = self.spec.loads.iter().map(|&share| Load::Own(share));
            let common = (self.spec.common_load > 0.0).then_some(Load::Common(self.spec.common_load));
            // The baseline's own service rate is the common one.
            let known = |load: &Load| policy == 0 && matches!(load, Load::Common(s) if self.spec.loads.contains(s));
            for load in own.chain(common).filter(|load| !known(load)) {
                open.push(RunEntry { policy, load, tapes: vec![], overhead_s, slo_tpot_s: None, host: None });
            }
        }
        let mut bound: Option<Slo> = None;
        let runs = REPEATS * open.len();
        for repeat in 0..REPEATS {
            let done = repeat * open.len();
            for (i, entry) in open.iter_mut().enumerate() {
                let rate = match entry.load {
                    Load::Own(share) => share * rates[entry.policy],
                    Load::Common(share) => share * rates[0],
                    Load::Closed(_) | Load::AsRun => unreachable!("open runs only"),
                };
                entry.slo_tpot_s = bound.and_then(|s| s.tpot_s);
                let which = format!("[{} of {runs}]", done + i + 1);
                let name = format!("p{}-{i}-{repeat}.tape", entry.policy);
                let recorded = self.open_run(entry, rate, &name, &which)?;
                // The baseline's first run sets the bound that all others are shown, as in an experiment.
                bound.get_or_insert_with(|| recorded.1);
                entry.tapes.push(name);
                if repeat == 0 {
                    entry.host = Some(recorded.0.host);
                }
            }
        }
        entries.append(&mut open);
        Ok(entries)
    }

    /// Every policy in a closed loop, twice.
    fn closed_loops(&mut self) -> Result<Vec<RunEntry>> {
        let mut entries = Vec::new();
        for repeat in 0..REPEATS {
            for policy in 0..self.policies.len() {
                let (mut setting, prompts) = (self.world)()?;
                let clients = self.clients(&setting);
                setting.set_arrivals(Arrivals::Closed { clients });
                let spec = &self.policies[policy];
                let warm = self.live.warm_up_requests.max(2 * clients);
                let (host, rate) = self.bench(&setting, &prompts).warm_up(spec, warm)?;
                let wanted = (rate * self.spec.service_s).ceil() as usize;
                setting.set_workload(crate::live::first(&setting.workload, wanted.max(4 * clients as usize)));
                let name = format!("p{policy}-closed-{repeat}.tape");
                let which = format!("[service rate {}]", repeat + 1);
                let recorded = self.record(&setting, &prompts, policy, f64::INFINITY, &name, &which)?;
                if repeat == 0 {
                    entries.push(RunEntry {
                        policy,
                        load: Load::Closed(clients),
                        tapes: vec![],
                        overhead_s: host.overhead_s.unwrap_or(0.0),
                        slo_tpot_s: None,
                        host: Some(recorded.host),
                    });
                }
                entries[policy].tapes.push(name);
            }
        }
        Ok(entries)
    }

    /// Requests a second of each policy, the mean of its closed loops.
    fn service_rates(&self, entries: &[RunEntry]) -> Result<Vec<f64>> {
        let rate = |entry: &RunEntry| {
            let Load::Closed(clients) = entry.load else { unreachable!("closed loops only") };
            let each = entry.tapes.iter().map(|name| {
                let tape = read_tape(&self.folder.join(name)).map_err(|e| unreadable(name, &e))?;
                service_rate(&tape.told().records, clients).ok_or_else(|| {
                    let label = self.policies[entry.policy].label();
                    Problem::bad_input(format!("{label}: a closed loop of {clients} clients is too short to measure a rate"))
                        .help("raise validate.service_s or workload.requests, or lower validate.clients")
                })
            });
            let each = each.collect::<Result<Vec<f64>>>()?;
            Ok(each.iter().sum::<f64>() / each.len() as f64)
        };
        entries.iter().map(rate).collect()
    }

    /// One open run at `rate` requests a second.
    fn open_run(&mut self, entry: &RunEntry, rate: f64, name: &str, which: &str) -> Result<(Recorded, Slo)> {
        let (mut setting, prompts) = (self.world)()?;
        at_rate(&mut setting, rate, self.spec.run_s)?;
        let bound = entry.slo_tpot_s.unwrap_or(f64::INFINITY);
        let warm = self.live.warm_up_requests;
        self.bench(&setting, &prompts).warm_up(&self.policies[entry.policy], warm)?;
        let recorded = self.record(&setting, &prompts, entry.policy, bound, name, which)?;
        let p90 = setting.summary(&recorded.run, Slo::default()).tpot.map(|q| q.p90);
        let slo = setting.slo(p90);
        Ok((recorded, slo))
    }

    fn record(
        &mut self,
        setting: &Setting,
        prompts: &Vec<Vec<u32>>,
        policy: usize,
        bound: f64,
        name: &str,
        which: &str,
    ) -> Result<Recorded> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        let (path, spec) = (self.folder.join(name), &self.policies[policy]);
        let recorded = self.bench(setting, prompts).record(spec, bound, &path, which)?;
        match &recorded.ending {
            crate::live::tape::TapeEnding::Done => Ok(recorded),
            crate::live::tape::TapeEnding::Interrupted => Err(interrupted()),
            crate::live::tape::TapeEnding::Failed(why) => {
                Err(Problem::failed(format!("{}: the device failed: {why}", spec.label()))
                    .help("what was recorded until then is kept"))
            }
        }
    }

    fn bench<'b>(&'b mut self, setting: &'b Setting, prompts: &'b Vec<Vec<u32>>) -> Bench<'b> {
        Bench {
            machine: &mut *self.machine,
            setting,
            acceptance: self.live.acceptance,
            prompts,
            seed: setting.seed(),
            interrupt: self.interrupt,
        }
    }

    fn clients(&self, setting: &Setting) -> u32 {
        self.spec.clients.unwrap_or(setting.engine(true).max_num_seqs)
    }
}

/// Plays the workload's arrivals at this mean rate, and keeps those of the first `run_s` seconds.
fn at_rate(setting: &mut Setting, rate: f64, run_s: f64) -> Result<()> {
    let own = &setting.workload;
    let span = own.arrival.last().zip(own.arrival.first()).map_or(0.0, |(last, first)| (*last - *first).as_s());
    if setting.arrivals() != Arrivals::Open || span <= 0.0 {
        return Err(Problem::bad_input("validate: the workload has no arrivals whose rate could be set")
            .help("take arrivals = { poisson = { rate = 1.0 } } with requests = 2000; the rate is set by the loads"));
    }
    let factor = (own.len() - 1) as f64 / span / rate;
    let first = own.arrival[0].as_s();
    let scaled: Vec<Time> = own.arrival.iter().map(|at| Time::from_s((at.as_s() - first) * factor)).collect();
    let kept = scaled.iter().take_while(|at| at.as_s() < run_s).count();
    if kept == own.len() {
        let message = format!("{kept} requests are too few for {run_s} s at {rate:.1} requests/s");
        return Err(Problem::bad_input(format!("validate: {message}")).help("raise workload.requests, or lower validate.run_s"));
    }
    let mut workload = crate::live::first(own, kept.max(2));
    workload.arrival = scaled[..workload.len()].to_vec();
    setting.set_workload(workload);
    Ok(())
}

/// A recording that cannot be used.
pub fn unreadable(name: &str, error: &std::io::Error) -> Box<Problem> {
    Problem::bad_input(format!("{name}: {error}")).help("make it again with `foretoken live` or `foretoken validate`")
}

fn interrupted() -> Box<Problem> {
    Problem::new(Exit::Interrupted, "interrupted: the recordings made so far are kept, and nothing was compared")
        .help("a validation is made in one go, on a machine in one state: start it again with --overwrite")
}
