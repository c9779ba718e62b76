//! A probe: a simulated run that tries one rate. It shows whether enough of the counted requests keep their SLO bounds,
//! and whether the server keeps up with the arrivals.

use crate::capacity::load::Load;
use crate::capacity::search::Tried;
use crate::guard::guarded;
use crate::interrupt;
use crate::setting::Setting;
use crate::spec::problem::{Problem, Result};
use foretoken_policies::PolicySpec;
use foretoken_sim::metrics::{Slo, overload_among};
use foretoken_sim::{Ending, Patience, RequestId, RequestRecords, Run};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::AtomicBool;

/// The result of a simulated run that tried one request rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The request rate that was tried, per second.
    pub rate: f64,
    /// Did enough requests keep their SLO bounds, and did the server keep up with the arrivals?
    pub carried: bool,
    /// Number of requests that count for the result. Requests in the warm-up at both ends, or outside of the
    /// experiment's window, do not count.
    pub counted: u32,
    /// Number of counted requests that had kept their SLO bounds when the run ended.
    pub kept: u32,
    /// Number of counted requests that had missed an SLO bound when the run ended.
    pub missed: u32,
    /// Did the server keep up with the arrivals, that is, did its queue not grow? `None` if the run was stopped before
    /// all counted requests ended.
    pub steady: Option<bool>,
}

impl Probe {
    /// The tried request rate, per second, and whether it was carried. The capacity search takes this pair as its
    /// input.
    pub fn tried(&self) -> Tried {
        Tried { rate: self.rate, carried: self.carried }
    }

    /// Did all counted requests end in the run? If not, the run was stopped early, and `kept` and `missed` are
    /// incomplete.
    pub fn is_whole(&self) -> bool {
        self.kept + self.missed == self.counted
    }

    /// Share of the counted requests that kept their SLO bounds; `None` if the run was stopped early.
    pub fn attainment(&self) -> Option<f64> {
        self.is_whole().then(|| f64::from(self.kept) / f64::from(self.counted))
    }
}

/// The probes of a search for a capacity, as they are stored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Probes {
    pub probes: Vec<Probe>,
}

/// What all runs of a search have in common, whatever rate or number of replicas they try.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// The requests, whose arrivals can be scaled to any rate.
    pub load: &'a Load,
    pub policy: &'a PolicySpec,
    /// The SLO bounds that requests must keep.
    pub slo: Slo,
    /// The flag that becomes true when the user interrupts; the run then stops.
    pub flag: &'a AtomicBool,
}

pub struct Seen {
    /// Did enough requests keep their SLO bounds, and did the server keep up?
    pub carried: bool,
    /// Numbers of requests that count, that kept their SLO bounds, and that missed one.
    pub counted: [u32; 3],
    /// Did the server keep up? `None` if the run was stopped before all counted requests ended.
    pub steady: Option<bool>,
    pub run: Run,
}

impl Trial<'_> {
    /// Runs the requests at `rate` requests per second. The run ends as soon as it is certain whether the rate is
    /// carried (enough requests keep their SLO bounds, and the queue does not grow). If `to_the_end` is true, the run
    /// ends when all counted requests have ended.
    pub fn probe(&self, setting: &mut Setting, rate: f64, to_the_end: bool) -> Result<Probe> {
        let Seen { carried, counted: [counted, kept, missed], steady, .. } =
            self.run(setting, rate, to_the_end, || format!("at {rate} requests/s"))?;
        Ok(Probe { rate, carried, counted, kept, missed, steady })
    }

    /// As [`Trial::probe`], with the whole run as its result. `at` says in an error what was tried.
    pub fn run(&self, setting: &mut Setting, rate: f64, to_the_end: bool, at: impl Fn() -> String) -> Result<Seen> {
        let Trial { load, policy, slo, flag } = *self;
        setting.workload.arrival = load.at(rate);
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
                let message = format!("{}: the clock ran past its end {}", policy.label(), at());
                return Err(Problem::bad_input(message)
                    .help("some time in the experiment is absurd: check hardware and engine.step_overhead_s"));
            }
            Ending::Done | Ending::Certain | Ending::Failed => {}
        }
        let (kept, missed) = patience.seen();
        let steady = patience.complete().then(|| keeps_up(&run.records, &load.counted));
        Ok(Seen { carried: carries(&run, &patience), counted: [counted, kept, missed], steady, run })
    }
}

/// Did the server keep up while the `counted` requests arrived? False if the queue grew during their arrivals. Also
/// false if fewer requests ended in this time than half of the number of counted requests: then the run is too short to
/// show a steady state.
pub fn keeps_up(records: &RequestRecords, counted: &Range<RequestId>) -> bool {
    let ids = counted.start as usize..counted.end as usize;
    let (first, last) = (records.arrival[ids.start], records.arrival[ids.end - 1]);
    let ended = records.finish.iter().filter(|&&end| end > first && end <= last).count();
    2 * ended >= ids.len() && overload_among(records, ids).is_none()
}
