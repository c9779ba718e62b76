//! A probe: a simulated run that tries one number of replicas. It shows whether enough of the counted requests (without
//! the warm-up) keep their SLO bounds, and whether the fleet keeps up with the arrivals.

use super::search::Tried;
use crate::capacity::load::Load;
use crate::capacity::probe::keeps_up;
use crate::guard::guarded;
use crate::interrupt;
use crate::setting::Setting;
use crate::spec::problem::{Problem, Result};
use foretoken_policies::PolicySpec;
use foretoken_sim::metrics::{Quantiles, Slo};
use foretoken_sim::{Ending, Patience, Run};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

/// The result of a simulated run that tried one number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The number of replicas that was tried.
    pub replicas: u32,
    /// Did enough requests keep their SLO bounds, and did the fleet keep up with the arrivals?
    pub carried: bool,
    /// Number of requests that count for the result. Requests in the warm-up at both ends, or outside of the
    /// experiment's window, do not count.
    pub counted: u32,
    /// Number of counted requests (without the warm-up) that had kept their SLO bounds when the run ended.
    pub kept: u32,
    /// Number of counted requests (without the warm-up) that had missed an SLO bound when the run ended.
    pub missed: u32,
    /// Did the fleet keep up with the arrivals, that is, did its queue not grow? `None` if the run was stopped before
    /// all counted requests (without the warm-up) ended.
    pub steady: Option<bool>,
    /// The latencies of the counted requests (without the warm-up); `None` if the run was stopped early, or none
    /// finished.
    pub latencies: Option<Latencies>,
}

/// Latencies of the counted requests (without the warm-up) that finished, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Time to first token of the counted requests (without the warm-up), seconds.
    pub ttft: Quantiles,
    /// Time per output token after the first of the counted requests (without the warm-up), seconds; `None` if every
    /// finished output has one token.
    pub tpot: Option<Quantiles>,
    /// End-to-end latency of the counted requests (without the warm-up), seconds.
    pub e2e: Quantiles,
}

impl Probe {
    /// The number of replicas of this run, and whether they carried the load (served it within the SLO). The search for
    /// the fewest replicas takes this pair as its input.
    pub fn tried(&self) -> Tried {
        Tried { replicas: self.replicas, carried: self.carried }
    }

    /// Share of the counted requests (without the warm-up) that kept their SLO bounds; `None` if the run was stopped
    /// early.
    pub fn attainment(&self) -> Option<f64> {
        (self.kept + self.missed == self.counted).then(|| f64::from(self.kept) / f64::from(self.counted))
    }
}

/// What all runs of a search have in common, whatever number of replicas they try: requests, policy and bounds.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// The requests, whose arrivals can be scaled to any rate.
    pub load: &'a Load,
    /// The policy that the replicas run.
    pub policy: &'a PolicySpec,
    /// The SLO bounds that requests must keep.
    pub slo: Slo,
    /// The flag that becomes true when the user interrupts; the run then stops.
    pub flag: &'a AtomicBool,
}

impl Trial<'_> {
    /// Runs a fleet of `replicas` replicas at `rate` requests per second. The run ends as soon as it is certain whether
    /// the fleet carries the load (enough requests keep their SLO bounds, and the queue does not grow). If `to_the_end`
    /// is true, the run ends when all counted requests (without the warm-up) have ended.
    ///
    /// # Errors
    /// The run is interrupted, or lasts longer than the simulated clock can count (213 days).
    pub fn probe(&self, setting: &mut Setting, replicas: u32, rate: f64, to_the_end: bool) -> Result<Probe> {
        let Trial { load, policy, slo, flag } = *self;
        setting.workload.arrival = load.at(rate);
        setting.set_replicas(replicas);
        let counted = load.counted.len() as u32;
        let patience = Patience::new(load.counted.clone(), slo, &setting.workload.slo_tpot_s, load.may_miss as u32);
        let patience = if to_the_end { patience.to_the_end() } else { patience };
        let bound = slo.tpot_s.unwrap_or(f64::INFINITY);
        let carries = |run: &Run, patience: &Patience| {
            patience.carried() && patience.complete() && keeps_up(&run.records, &load.counted)
        };
        let (run, patience) = guarded(&policy.label(), || setting.find_out(policy, bound, &patience, flag, carries))?;
        match run.ending {
            Ending::Interrupted => return Err(interrupt::problem()),
            Ending::OutOfTime => {
                let message = format!("{}: the clock ran past its end with {replicas} replicas", policy.label());
                return Err(Problem::bad_input(message)
                    .help("some time in the experiment is absurd: check hardware and engine.step_overhead_s"));
            }
            Ending::Done | Ending::Certain | Ending::Failed => {}
        }
        let (kept, missed) = patience.seen();
        let steady = patience.complete().then(|| keeps_up(&run.records, &load.counted));
        let latencies = if patience.complete() { latencies(&run, load) } else { None };
        Ok(Probe { replicas, carried: carries(&run, &patience), counted, kept, missed, steady, latencies })
    }
}

fn latencies(run: &Run, load: &Load) -> Option<Latencies> {
    let r = &run.records;
    let ids = || load.counted.clone().map(|id| id as usize).filter(|&i| r.finished(i));
    let quantiles = |f: &dyn Fn(usize) -> Option<f64>| Quantiles::of(&mut ids().filter_map(f).collect::<Vec<f64>>());
    Some(Latencies {
        ttft: quantiles(&|i| Some(r.ttft_s(i)))?,
        tpot: quantiles(&|i| r.tpot_s(i)),
        e2e: quantiles(&|i| Some(r.e2e_s(i)))?,
    })
}
