//! One rate, tried: are enough of the requests that count within their bounds, and does the server keep up?

use crate::load::Load;
use crate::search::Tried;
use foretoken_policies::PolicySpec;
use foretoken_run::guard::guarded;
use foretoken_run::interrupt;
use foretoken_run::setting::Setting;
use foretoken_sim::metrics::{Slo, overload_among};
use foretoken_sim::{Ending, Patience, RequestId, RequestRecords};
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::AtomicBool;

/// A rate that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Requests a second.
    pub rate: f64,
    /// Did enough requests keep their bounds, and did the server keep up?
    pub carried: bool,
    /// Requests that count.
    pub counted: u32,
    /// The number of these that had kept their bounds when the run ended.
    pub kept: u32,
    /// The number of these that had missed them.
    pub missed: u32,
    /// Did the server keep up with the requests? `None` where the run ended before all of those that count had ended.
    pub steady: Option<bool>,
}

impl Probe {
    /// As the search sees it.
    pub fn tried(&self) -> Tried {
        Tried { rate: self.rate, carried: self.carried }
    }

    /// Did all requests that count end? Else the run was cut short, and its shares say nothing of the whole.
    pub fn is_whole(&self) -> bool {
        self.kept + self.missed == self.counted
    }

    /// Share of the requests that count which kept their bounds; `None` where the run was cut short.
    pub fn attainment(&self) -> Option<f64> {
        self.is_whole().then(|| f64::from(self.kept) / f64::from(self.counted))
    }
}

/// What a rate is tried with.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// The requests.
    pub load: &'a Load,
    /// Who drafts.
    pub policy: &'a PolicySpec,
    /// The bounds.
    pub slo: Slo,
    /// Set when the program is to end.
    pub flag: &'a AtomicBool,
}

impl Trial<'_> {
    /// Tries a rate. The run ends as soon as its verdict is certain; with `to_the_end`, when all requests that count
    /// have ended.
    ///
    /// # Errors
    /// An interrupt; times that are absurd.
    pub fn probe(&self, setting: &mut Setting, rate: f64, to_the_end: bool) -> Result<Probe> {
        let Trial { load, policy, slo, flag } = *self;
        setting.workload.arrival = load.at(rate);
        let counted = load.counted.len() as u32;
        let patience = Patience::new(load.counted.clone(), slo, &setting.workload.slo_tpot_s, load.may_miss as u32);
        let patience = if to_the_end { patience.to_the_end() } else { patience };
        let bound = slo.tpot_s.unwrap_or(f64::INFINITY);
        let carries = |run: &foretoken_sim::Run, patience: &Patience| {
            patience.carried() && patience.complete() && keeps_up(&run.records, &load.counted)
        };
        let (run, patience) = guarded(&policy.label(), || setting.find_out(policy, bound, &patience, flag, carries))?;
        match run.ending {
            Ending::Interrupted => return Err(interrupt::problem()),
            Ending::OutOfTime => {
                return Err(Problem::bad_input(format!(
                    "{}: the clock ran past its end at {rate} requests/s",
                    policy.label()
                ))
                .help("some time in the experiment is absurd: look at hardware and engine.step_overhead_s"));
            }
            Ending::Done | Ending::Certain | Ending::Failed => {}
        }
        let (kept, missed) = patience.seen();
        let steady = patience.complete().then(|| keeps_up(&run.records, &load.counted));
        Ok(Probe { rate, carried: carries(&run, &patience), counted, kept, missed, steady })
    }
}

/// Did the server keep up with the requests that count? It did not where they were more than it could serve, or where
/// fewer than half as many requests ended as came: then the run is too short to show a steady state.
fn keeps_up(records: &RequestRecords, counted: &Range<RequestId>) -> bool {
    let ids = counted.start as usize..counted.end as usize;
    let (first, last) = (records.arrival[ids.start], records.arrival[ids.end - 1]);
    let ended = records.finish.iter().filter(|&&end| end > first && end <= last).count();
    2 * ended >= ids.len() && overload_among(records, ids).is_none()
}
