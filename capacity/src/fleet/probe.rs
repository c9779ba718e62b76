//! A probe: a simulated run that tries one number of replicas. It shows whether enough of the counted requests keep
//! their SLO bounds, and whether the fleet keeps up with the arrivals.

use super::search::Tried;
use crate::load::Load;
use crate::probe::keeps_up;
use foretoken_policies::PolicySpec;
use foretoken_run::guard::guarded;
use foretoken_run::interrupt;
use foretoken_run::setting::Setting;
use foretoken_sim::metrics::{Quantiles, Slo};
use foretoken_sim::{Ending, Patience, Run};
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

/// The result of trying a number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The number of replicas.
    pub replicas: u32,
    /// Did enough requests keep their SLO bounds, and did the fleet keep up with the arrivals?
    pub carried: bool,
    /// Number of requests that count. The first and the last requests are a warm-up and do not count.
    pub counted: u32,
    /// Number of counted requests that had kept their bounds when the run ended.
    pub kept: u32,
    /// Number of counted requests that had missed a bound when the run ended.
    pub missed: u32,
    /// Did the fleet keep up with the arrivals? `None` if the run was stopped before all counted requests ended.
    pub steady: Option<bool>,
    /// The latencies of the counted requests; `None` if the run was stopped early, or none finished.
    pub latencies: Option<Latencies>,
}

/// Latencies of the counted requests that finished, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Time to first token, seconds.
    pub ttft: Quantiles,
    /// Time per output token after the first, seconds; `None` if every finished output has one token.
    pub tpot: Option<Quantiles>,
    /// End-to-end latency, seconds.
    pub e2e: Quantiles,
}

impl Probe {
    /// The number of replicas, and whether they carried the load; the search takes this as its input.
    pub fn tried(&self) -> Tried {
        Tried { replicas: self.replicas, carried: self.carried }
    }

    /// Share of the counted requests that kept their bounds; `None` if the run was stopped early.
    pub fn attainment(&self) -> Option<f64> {
        (self.kept + self.missed == self.counted).then(|| f64::from(self.kept) / f64::from(self.counted))
    }
}

/// The inputs of a probe that do not depend on the number of replicas.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// The requests, whose arrivals can be scaled to any rate.
    pub load: &'a Load,
    /// The policy that is tried.
    pub policy: &'a PolicySpec,
    /// The SLO bounds that requests must keep.
    pub slo: Slo,
    /// The interrupt flag: the run stops once it is true.
    pub flag: &'a AtomicBool,
}

impl Trial<'_> {
    /// Runs a fleet of `replicas` replicas at `rate` requests per second. The run ends as soon as it is certain whether
    /// the fleet carries the load. If `to_the_end` is true, the run ends when all counted requests have ended.
    ///
    /// # Errors
    /// The run is interrupted, or the simulated clock passes its end.
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
