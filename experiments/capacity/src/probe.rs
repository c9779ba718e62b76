//! One rate, tried: are enough of the requests that count within their bounds?

use crate::load::Load;
use crate::search::Tried;
use foretoken_policies::PolicySpec;
use foretoken_run::guard::guarded;
use foretoken_run::interrupt;
use foretoken_run::setting::Setting;
use foretoken_sim::metrics::Slo;
use foretoken_sim::{Ending, Patience, RequestId, RequestRecords, Time};
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::AtomicBool;

/// A rate that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Requests a second.
    pub rate: f64,
    /// Did enough requests keep their bounds?
    pub carried: bool,
    /// Requests that count.
    pub counted: u32,
    /// Of these, those that had kept their bounds when the verdict was certain, and those that had not.
    pub kept: u32,
    /// See above.
    pub missed: u32,
    /// Had the queue stopped growing? A run that had not carries its load for a while only.
    pub steady: bool,
}

impl Probe {
    /// As the search sees it.
    pub fn tried(&self) -> Tried {
        Tried { rate: self.rate, carried: self.carried }
    }

    /// Share of those that had ended which kept their bounds.
    pub fn attainment(&self) -> f64 {
        f64::from(self.kept) / f64::from((self.kept + self.missed).max(1))
    }
}

/// Tries a rate. The run ends as soon as its verdict is certain.
///
/// # Errors
/// An interrupt; times that are absurd.
pub fn probe(
    setting: &mut Setting,
    load: &Load,
    policy: &PolicySpec,
    slo: Slo,
    share: f64,
    rate: f64,
    flag: &AtomicBool,
) -> Result<Probe> {
    setting.workload.arrival = load.at(rate);
    let counted = load.counted.len() as u32;
    // Rounded towards what is asked: 0.99 of 150 are 149.
    let may_miss = ((1.0 - share) * f64::from(counted) + 1e-9).floor() as u32;
    let patience = Patience::new(load.counted.clone(), slo, &setting.workload.slo_tpot_s, may_miss);
    let bound = slo.tpot_s.unwrap_or(f64::INFINITY);
    let (run, patience) = guarded(&policy.label(), || setting.find_out(policy, bound, &patience, flag))?;
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
    Ok(Probe {
        rate,
        carried: patience.carried(),
        counted,
        kept,
        missed,
        steady: steady(&run.records, &setting.workload.arrival, &load.counted),
    })
}

/// Fewer waiting requests than this are no backlog, however the queue grew.
const LEAST_WAITING: usize = 8;

/// Has the queue stopped growing? When the last request that counts comes, no more wait than at half of them, twice over: or so few, 8 or 5 %, that they
/// are no backlog.
fn steady(records: &RequestRecords, arrival: &[Time], counted: &Range<RequestId>) -> bool {
    let ids = || counted.clone().map(|i| i as usize);
    let waiting = |at: Time| ids().filter(|&i| arrival[i] <= at && records.first_scheduled[i] > at).count();
    let half = arrival[(counted.start + (counted.end - counted.start) / 2) as usize];
    let end = arrival[counted.end as usize - 1];
    let (half, end) = (waiting(half), waiting(end));
    end < LEAST_WAITING.max(counted.len() / 20) || end <= 2 * half
}
