//! Simulates the candidate policies at one load.

use super::candidates::{Candidate, best, compare, evaluate};
use super::gain::Gain;
use super::question::{AskedLoad, Question};
use crate::calibrate::loads::{mean_rate, name_of, short};
use foretoken_policies::PolicySpec;
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_run::spec::problem::Result;
use foretoken_sim::Arrivals;
use foretoken_sim::metrics::Overload;
use foretoken_traces::ArrivalSpec;
use serde::Serialize;
use std::sync::atomic::AtomicBool;

/// A load, with the candidate policies' simulated results at it.
#[derive(Clone, Debug, Serialize)]
pub struct AtLoad {
    /// The load's name, such as `closed loop of 4`, `Poisson 3/s`, or `log of k3, 2.9 requests/s` (the arrivals that
    /// were recorded in the run `k3`).
    pub load: String,
    pub runs: Vec<String>,
    /// Number of requests in the simulations with the first seed.
    pub requests: usize,
    /// True if requests arrive at set times, false for a closed loop.
    pub open: bool,
    /// The label, such as `fixed-3`, of the best candidate policy at this load; `None` if no candidate keeps the limit
    /// on TPOT.
    pub best: Option<String>,
    /// The name, as texts of the advice use it, of the best candidate policy at this load, such as `K = 3`. `None` if
    /// no candidate keeps the limit on TPOT.
    pub best_name: Option<String>,
    /// Gain of the best candidate policy over the policy that the server runs now, as a share of the present cost (such
    /// as mean E2E).
    pub gain: Option<Gain>,
    /// Accepted over drafted tokens of the best candidate policy at this load.
    pub accepted: Option<f64>,
    /// The fixed draft length that is best at this load; 0 is plain decoding.
    pub single: Option<u32>,
    /// Gain of the advised candidate policy over the policy that the server runs now, as a share of the present cost
    /// (such as mean E2E).
    pub advised_gain: Option<Gain>,
    /// The overload with the candidate policy of least cost. `None` if the server keeps up with the arrivals with some
    /// candidate.
    pub overload: Option<Overload>,
    /// The overload with the policy that the server runs now. `None` if the server keeps up with the arrivals with this
    /// policy.
    pub now_overload: Option<Overload>,
    /// All candidate policies with their results at this load, in the order in which they were simulated.
    pub candidates: Vec<Candidate>,
}

impl AtLoad {
    /// Simulates the candidate policies at a load.
    pub fn of(
        ask: &Question,
        load: &AskedLoad,
        plan: &Plan,
        specs: &[PolicySpec],
        interrupt: &AtomicBool,
    ) -> Result<AtLoad> {
        let mut all = evaluate(plan, specs, ask.objective, ask.known.as_ref(), interrupt)?;
        compare(&mut all, &ask.now.spec);
        let now = all.iter_mut().find(|c| c.spec == ask.now.spec).expect("what runs now is a candidate");
        if !now.fixed {
            now.name = format!("{}, as now", ask.now.name);
        }
        let now_overload = now.overload;
        let now = Some(&ask.now.spec);
        let found = best(all.iter(), now).cloned();
        let single = best(all.iter().filter(|c| c.fixed), now).map(|c| c.longest);
        let least = all.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("there are candidates");
        let whole = all.iter().all(|c| c.overload.is_some());
        let (name, requests, open) = described(load, plan)?;
        Ok(AtLoad {
            load: name,
            runs: load.runs().iter().map(|run| run.name.clone()).collect(),
            requests,
            open,
            best: found.as_ref().map(|c| c.policy.clone()),
            best_name: found.as_ref().map(|c| c.name.clone()),
            gain: found.as_ref().and_then(|c| c.gain),
            accepted: found.and_then(|c| c.acceptance_rate),
            single,
            advised_gain: None,
            overload: least.overload.filter(|_| whole),
            now_overload,
            candidates: all,
        })
    }

    /// The least cost (such as mean E2E) of a candidate policy at this load; `None` if no candidate has a cost, because
    /// none keeps the limit on TPOT.
    pub fn least(&self) -> Option<f64> {
        self.candidates.iter().filter_map(|c| c.cost).min_by(f64::total_cmp)
    }

    /// A text for a table row about the overload at this load (how far the server falls behind the arrivals). If the
    /// server falls behind with every candidate policy, the text is about the candidate of least cost. Otherwise it is
    /// about the policy that the server runs now. `None` if the server keeps up with that policy.
    pub fn overloaded(&self) -> Option<String> {
        let words = |o: &Overload, who: &str| {
            let (came, served) = (short(o.offered_req_s), short(o.completed_req_s));
            format!("overloaded {who}: {came} requests/s come, {served} are completed while they come")
        };
        let now = || self.now_overload.as_ref().map(|o| words(o, "as it runs now"));
        self.overload.as_ref().map(|o| words(o, "whatever is drafted")).or_else(now)
    }
}

fn cost(c: &Candidate) -> f64 {
    c.cost.unwrap_or(f64::INFINITY)
}

/// Describes a load. Returns (its name, number of requests in its simulation with the first seed, whether arrivals
/// are open).
pub(super) fn described(load: &AskedLoad, plan: &Plan) -> Result<(String, usize, bool)> {
    let setting = Setting::new(&plan.variants[0], plan.seeds[0])?;
    let requests = setting.workload.len();
    let open = setting.arrivals() == Arrivals::Open;
    let workload = &plan.variants[0].experiment.workload;
    let name = match load {
        AskedLoad::Observed(seen) => seen.name.clone(),
        AskedLoad::Full => format!("full engine: {}", name_of(&workload.arrivals, 0.0, "")),
        AskedLoad::Own => {
            let log = match &workload.arrivals {
                ArrivalSpec::Trace(trace) => trace.path.file_stem().map(|s| s.to_string_lossy().into_owned()),
                _ => None,
            };
            let rate = match &workload.arrivals {
                ArrivalSpec::Poisson(p) if workload.transform.is_empty() => p.rate,
                _ => mean_rate(&setting.workload),
            };
            name_of(&workload.arrivals, rate, &log.unwrap_or_default())
        }
    };
    Ok((name, requests, open))
}
