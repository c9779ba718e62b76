//! The live side of a validation: service rates in closed loops, then runs at shares of them, everything twice. Nothing is
//! predicted here.

use super::numbers::service_rate;
use super::runs::{Load, RunEntry, Runs};
use crate::serve::tape::{TapeEnding, read_tape};
use crate::serve::{Bench, Machine, Recorded};
use foretoken_policies::PolicySpec;
use foretoken_run::cells::Folder;
use foretoken_run::cells::{RUNS_JSON, TAPES};
use foretoken_run::setting::Setting;
use foretoken_run::workload::first;
use foretoken_sim::metrics::Slo;
use foretoken_sim::{Arrivals, Time};
use foretoken_spec::live::LiveSpec;
use foretoken_spec::problem::{Exit, Problem, Result};
use foretoken_spec::validate::ValidateSpec;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Each live run is done so often.
pub const REPEATS: usize = 2;

/// A setting, and the prompts of its requests.
pub type World = (Setting, Vec<Vec<u32>>);

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
    /// A fresh world of the whole workload.
    pub world: &'a dyn Fn() -> Result<World>,
    /// Where recordings go, and the list of them.
    pub folder: &'a Folder,
    /// Set from outside to end early.
    pub interrupt: &'a AtomicBool,
}

impl Measuring<'_> {
    /// Measures everything. The order in time: closed loops of all policies, twice, and then all open runs, all a first time
    /// before any a second time, so that what drifts shows between the repeats.
    pub fn run(&mut self) -> Result<Runs> {
        let mut runs = Runs::default();
        for repeat in 0..REPEATS {
            for policy in 0..self.policies.len() {
                self.closed_loop(&mut runs, policy, repeat)?;
            }
        }
        let rates = self.service_rates(&runs)?;
        let closed = runs.entries.len();
        runs.entries.extend(self.open_loads());
        let each = runs.entries.len() - closed;
        let mut bound: Option<Slo> = None;
        for repeat in 0..REPEATS {
            for at in 0..each {
                let RunEntry { policy, load, .. } = runs.entries[closed + at];
                let rate = match load {
                    Load::Own(share) => share * rates[policy],
                    Load::Common(share) => share * rates[0],
                    Load::Closed(_) | Load::AsRun => unreachable!("open runs only"),
                };
                let path = self.keep(&mut runs, closed + at, &format!("p{policy}-{at}-{repeat}.tape"))?;
                let which = format!("[{} of {}]", repeat * each + at + 1, REPEATS * each);
                let slo = self.open_run(policy, rate, bound, &path, &which)?;
                // The baseline's first run sets the bound that all others are shown, as in an experiment.
                bound.get_or_insert(slo);
            }
        }
        Ok(runs)
    }

    /// A policy in a closed loop: how many requests a second can it sustain?
    fn closed_loop(&mut self, runs: &mut Runs, policy: usize, repeat: usize) -> Result<()> {
        let (mut setting, prompts) = (self.world)()?;
        let clients = self.spec.clients.unwrap_or(setting.engine(true).max_num_seqs);
        if repeat == 0 {
            let load = Load::Closed(clients);
            runs.entries.push(RunEntry { variant: 0, seed: 0, policy, load, tapes: vec![] });
        }
        let path = self.keep(runs, policy, &format!("p{policy}-closed-{repeat}.tape"))?;
        setting.set_arrivals(Arrivals::Closed { clients });
        let requests = self.live.warm_up_requests.max(2 * clients);
        let spec = &self.policies[policy];
        let warm = self.bench(&setting, &prompts).warm_up(spec, requests, &path)?;
        let wanted = (warm.rate * self.spec.service_s).ceil() as usize;
        setting.set_workload(first(&setting.workload, wanted.max(4 * clients as usize)));
        let which = format!("[service rate, {} of {REPEATS}]", repeat + 1);
        let recorded = self.bench(&setting, &prompts).record(spec, f64::INFINITY, warm, &path, &which)?;
        self.ended(&path)?;
        whole(spec, recorded).map(drop)
    }

    /// The open runs: each policy at each share of its own service rate, and all at a common rate.
    fn open_loads(&self) -> Vec<RunEntry> {
        let common = (self.spec.common_load > 0.0).then_some(Load::Common(self.spec.common_load));
        let loads = || self.spec.loads.iter().map(|&share| Load::Own(share)).chain(common);
        let all = (0..self.policies.len()).flat_map(|policy| loads().map(move |load| (policy, load)));
        // The baseline's own service rate is the common one.
        let known = |&(policy, load): &(usize, Load)| match load {
            Load::Common(share) => policy == 0 && self.spec.loads.contains(&share),
            _ => false,
        };
        let entry = |(policy, load)| RunEntry { variant: 0, seed: 0, policy, load, tapes: vec![] };
        all.filter(|run| !known(run)).map(entry).collect()
    }

    /// Requests a second of each policy, the mean of its closed loops.
    fn service_rates(&self, runs: &Runs) -> Result<Vec<f64>> {
        let rate = |entry: &RunEntry| {
            let Load::Closed(clients) = entry.load else { unreachable!("closed loops only") };
            let each = entry.tapes.iter().map(|name| {
                let path = self.folder.path().join(TAPES).join(name);
                let tape = read_tape(&path).map_err(|e| Problem::failed(format!("{}: {e}", path.display())))?;
                service_rate(&tape.told().records, clients).ok_or_else(|| {
                    let label = self.policies[entry.policy].label();
                    let message = format!("{label}: a closed loop of {clients} clients is too short to measure a rate");
                    Problem::bad_input(message)
                        .help("raise validate.service_s or workload.requests, or lower validate.clients")
                })
            });
            let each = each.collect::<Result<Vec<f64>>>()?;
            Ok(each.iter().sum::<f64>() / each.len() as f64)
        };
        runs.entries.iter().map(rate).collect()
    }

    /// One open run at `rate` requests a second; says which bounds it would set as the baseline's.
    fn open_run(&mut self, policy: usize, rate: f64, bound: Option<Slo>, path: &Path, which: &str) -> Result<Slo> {
        let (mut setting, prompts) = (self.world)()?;
        at_rate(&mut setting, rate, self.spec.run_s)?;
        let spec = &self.policies[policy];
        let shown = bound.and_then(|s| s.tpot_s).unwrap_or(f64::INFINITY);
        let requests = self.live.warm_up_requests;
        let warm = self.bench(&setting, &prompts).warm_up(spec, requests, path)?;
        let recorded = self.bench(&setting, &prompts).record(spec, shown, warm, path, which)?;
        self.ended(path)?;
        let recorded = whole(spec, recorded)?;
        let p90 = setting.summary(&recorded.run, Slo::default()).tpot.map(|q| q.p90);
        Ok(setting.slo(p90))
    }

    /// Enters a recording in the list before it is made: a killed process leaves it behind.
    fn keep(&self, runs: &mut Runs, at: usize, name: &str) -> Result<PathBuf> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        runs.entries[at].tapes.push(name.to_owned());
        self.folder.write(RUNS_JSON, runs.to_json().as_bytes())?;
        Ok(self.folder.path().join(TAPES).join(name))
    }

    /// From now on the recording must stay as it is.
    fn ended(&self, tape: &Path) -> Result<()> {
        let name = tape.file_name().unwrap_or_default().to_string_lossy();
        self.folder.enter(&[&format!("{TAPES}/{name}")])
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
}

/// A run that reached its end.
fn whole(spec: &PolicySpec, recorded: Recorded) -> Result<Recorded> {
    match &recorded.ending {
        TapeEnding::Done => Ok(recorded),
        TapeEnding::Interrupted => Err(interrupted()),
        TapeEnding::Failed(why) => Err(Problem::failed(format!("{}: the device failed: {why}", spec.label()))
            .help("what was recorded until then is kept")),
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
    let start = own.arrival[0].as_s();
    let scaled: Vec<Time> = own.arrival.iter().map(|at| Time::from_s((at.as_s() - start) * factor)).collect();
    let kept = scaled.iter().take_while(|at| at.as_s() < run_s).count();
    if kept == own.len() {
        let message = format!("validate: {kept} requests are too few for {run_s} s at {rate:.1} requests/s");
        return Err(Problem::bad_input(message).help("raise workload.requests, or lower validate.run_s"));
    }
    let mut workload = first(own, kept.max(2));
    workload.arrival = scaled[..workload.len()].to_vec();
    setting.set_workload(workload);
    Ok(())
}

fn interrupted() -> Box<Problem> {
    Problem::new(Exit::Interrupted, "interrupted: the recordings made so far are kept, and nothing was compared")
        .help("`foretoken validate DIR` compares what is there; a validation itself is made in one go: start again with --overwrite")
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_run::plan::Plan;

    fn setting(sets: &[&str]) -> Setting {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quickstart.toml");
        let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
        let plan = Plan::load(&file, &sets).unwrap();
        Setting::new(&plan.variants[0], 1).unwrap()
    }

    #[test]
    fn arrivals_are_played_at_the_rate_that_is_asked_for() {
        let poisson = ["workload.arrivals={ poisson = { rate = 1.0 } }", "workload.requests=4000"];
        let mut setting = setting(&poisson);
        at_rate(&mut setting, 50.0, 20.0).unwrap();
        let w = &setting.workload;
        assert!((900..=1100).contains(&w.len()), "{} requests in 20 s at 50 a second", w.len());
        assert_eq!(w.arrival[0], Time::ZERO);
        assert!(*w.arrival.last().unwrap() < Time::from_s(20.0));
        let few = at_rate(&mut setting, 50.0, 1e6).unwrap_err();
        assert!(few.message().contains("too few for 1000000 s"), "{}", few.message());
    }

    #[test]
    fn a_closed_loop_has_no_rate_to_set() {
        let mut setting = setting(&["workload.arrivals={ closed-loop = 4 }", "workload.requests=40"]);
        assert!(at_rate(&mut setting, 1.0, 1.0).unwrap_err().message().contains("no arrivals whose rate"));
    }
}
