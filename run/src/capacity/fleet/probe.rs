//! A probe: a simulated run that tries one number of replicas. It shows whether enough of the counted requests keep
//! their SLO bounds, and whether the fleet keeps up with the arrivals.

use super::search::Tried;
use crate::capacity::load::Load;
use crate::capacity::probe::{Seen, Trial};
use crate::setting::Setting;
use crate::spec::problem::Result;
use foretoken_sim::Run;
use foretoken_sim::metrics::Quantiles;
use serde::{Deserialize, Serialize};

/// The result of a simulated run that tried one number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub replicas: u32,
    /// Did enough requests keep their SLO bounds, and did the fleet keep up with the arrivals?
    pub carried: bool,
    /// Number of requests that count for the result. Requests in the warm-up at both ends, or outside of the
    /// experiment's window, do not count.
    pub counted: u32,
    /// Number of counted requests that had kept their SLO bounds when the run ended.
    pub kept: u32,
    /// Number of counted requests that had missed an SLO bound when the run ended.
    pub missed: u32,
    /// Did the fleet keep up with the arrivals, that is, did its queue not grow? `None` if the run was stopped before
    /// all counted requests ended.
    pub steady: Option<bool>,
    /// The latencies of the counted requests; `None` if the run was stopped early, or none finished.
    pub latencies: Option<Latencies>,
}

/// Latencies of the counted requests that finished, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Time to first token of the counted requests, seconds.
    pub ttft: Quantiles,
    /// Time per output token after the first of the counted requests, seconds; `None` if every finished output has one
    /// token.
    pub tpot: Option<Quantiles>,
    /// End-to-end latency of the counted requests, seconds.
    pub e2e: Quantiles,
}

impl Probe {
    /// The number of replicas of this run, and whether they carried the load. The search for the fewest replicas takes
    /// this pair as its input.
    pub fn tried(&self) -> Tried {
        Tried { replicas: self.replicas, carried: self.carried }
    }

    /// Share of the counted requests that kept their SLO bounds; `None` if the run was stopped early.
    pub fn attainment(&self) -> Option<f64> {
        (self.kept + self.missed == self.counted).then(|| f64::from(self.kept) / f64::from(self.counted))
    }
}

/// Runs a fleet of `replicas` replicas at `rate` requests per second. The run ends as soon as it is certain whether
/// the fleet carries the load. If `to_the_end` is true, the run ends when all counted requests have ended.
pub fn probe(trial: &Trial, setting: &mut Setting, replicas: u32, rate: f64, to_the_end: bool) -> Result<Probe> {
    setting.set_replicas(replicas);
    let Seen { carried, counted: [counted, kept, missed], steady, run } =
        trial.run(setting, rate, to_the_end, || format!("with {replicas} replicas"))?;
    let latencies = steady.and_then(|_| latencies(&run, trial.load));
    Ok(Probe { replicas, carried, counted, kept, missed, steady, latencies })
}

/// What is stored of the search for the fewest replicas, for one policy with one seed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Probes {
    /// Has the search ended? False if a file of an earlier version of Foretoken lacks this field.
    #[serde(default)]
    pub ended: bool,
    /// The probes of the search, one per tried number of replicas, at the experiment's request rate.
    pub probes: Vec<Probe>,
    /// The runs that compare fleets with and without drafting, as (rate in requests per second, result).
    pub others: Vec<(f64, Probe)>,
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
