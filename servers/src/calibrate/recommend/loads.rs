//! The gain of drafting as the load grows, and the load above which drafting no longer pays.

use super::gain::Gain;
use super::names::name_of;
use super::question::{Question, fill, without_instants};
use crate::calibrate::loads::mean_rate;
use foretoken_policies::{Fixed, PolicySpec};
use foretoken_run::cells::play;
use foretoken_run::load::with_defaults;
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_run::spec::problem::Result;
use foretoken_sim::Arrivals;
use foretoken_traces::generate::Poisson;
use foretoken_traces::{ArrivalSpec, Transform, WorkloadSpec};
use rayon::prelude::*;
use serde::Serialize;
use std::sync::atomic::AtomicBool;

/// The gains in mean E2E of drafting and of plain decoding at several request rates.
#[derive(Clone, Debug, Serialize)]
pub struct Loads {
    /// The name of the candidate policy that drafts.
    pub drafting: String,
    /// The name of the policy that the server runs now.
    pub now: String,
    /// A text that says how requests arrive in the simulations at several request rates.
    pub requests: String,
    /// Requests per second that plain decoding sustains with a full engine.
    pub service_req_s: f64,
    /// The gains in mean E2E at each simulated request rate, by rising rate.
    pub points: Vec<Load>,
    /// The request rate, per second, above which drafting no longer pays against plain decoding. `None` if drafting
    /// pays at no simulated rate, or also at the highest simulated rate.
    pub stops_at: Option<f64>,
}

/// The gains in mean E2E at one request rate. The gain of A over B is 1 − mean E2E of A / mean E2E of B.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    /// Arrival rate in requests per second.
    pub rate: f64,
    /// Gain in mean E2E of drafting over plain decoding.
    pub pays: Option<Gain>,
    /// Gain in mean E2E of drafting over the server's policy; `None` if the server runs this drafting policy.
    pub gain: Option<Gain>,
    /// Gain in mean E2E of plain decoding over the server's policy; `None` if the server runs plain decoding.
    pub plain: Option<Gain>,
    /// Gain in mean E2E over the server's policy of each fixed draft length that was tried, as (length, gain). Lengths
    /// that `drafting` or the server has are left out.
    pub lengths: Vec<(u32, Option<Gain>)>,
}

/// The simulated request rates, as shares of the rate that plain decoding sustains with a full engine.
const SHARES: [f64; 8] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0];

/// If more fixed draft lengths than this are candidates, only some of them are simulated at several request rates.
const MOST_LENGTHS: usize = 8;

/// Simulates drafting, plain decoding, the server's policy and the other draft lengths of `specs` at several request
/// rates. The arrival times of an open load are scaled; the requests of a closed loop arrive as a Poisson process.
pub fn sweep(
    ask: &Question,
    mut plan: Plan,
    specs: &[PolicySpec],
    drafting: &PolicySpec,
    interrupt: &AtomicBool,
) -> Result<Loads> {
    let plain = with_defaults("autoregressive").expect("the registry has the baseline");
    let seeds = plan.seeds.clone();
    let own = Setting::new(&plan.variants[0], seeds[0])?;
    let workload = plan.variants[0].experiment.workload.clone();
    let variant = &mut plan.variants[0];
    fill(variant, &own.workload);
    let full = Setting::new(variant, seeds[0])?;
    let summary = play(&full, &plain, Some(full.slo(None)), interrupt)?.stored.summary;
    let service_req_s = summary.finished as f64 / summary.duration_s;
    let rate = if own.arrivals() == Arrivals::Open { mean_rate(&own.workload) } else { 0.0 };
    let now = &ask.now.spec;
    let lengths = || specs.iter().filter(|spec| matches!(spec, PolicySpec::Fixed(Fixed { k: 1.. })));
    let lengths = lengths().step_by(lengths().count().div_ceil(MOST_LENGTHS).max(1));
    // Plain decoding, drafting and the server's policy are in front; two of them may be the same.
    let mut tried = vec![&plain];
    for spec in [drafting, now].into_iter().chain(lengths) {
        if !tried.contains(&spec) {
            tried.push(spec);
        }
    }
    let variant = &plan.variants[0];
    let requests = own.workload.len() as u32;
    let at_share = |share: &f64| -> Result<Load> {
        let mut variant = variant.clone();
        let at = share * service_req_s;
        variant.experiment.workload = at_rate(&workload, rate, at, requests);
        let settings = seeds.iter().map(|&seed| Setting::new(&variant, seed)).collect::<Result<Vec<_>>>()?;
        let costs = |spec: &&PolicySpec| -> Result<Vec<Option<f64>>> {
            let cost = |setting: &Setting| -> Result<Option<f64>> {
                let played = play(setting, spec, Some(setting.slo(None)), interrupt)?;
                Ok(played.stored.summary.e2e.map(|q| q.mean))
            };
            settings.iter().map(cost).collect()
        };
        let costs = tried.iter().map(costs).collect::<Result<Vec<_>>>()?;
        let of = |spec: &PolicySpec| &costs[tried.iter().position(|one| *one == spec).expect("it was tried")];
        let over_now = |spec: &PolicySpec| (spec != now).then(|| Gain::of(of(now), of(spec))).flatten();
        let lengths = tried.iter().copied().filter(|spec| *spec != drafting && *spec != now);
        let lengths = lengths.filter_map(|spec| match spec {
            PolicySpec::Fixed(fixed) => Some((fixed.k, over_now(spec))),
            _ => None,
        });
        Ok(Load {
            rate: at,
            pays: Gain::of(of(&plain), of(drafting)),
            gain: over_now(drafting),
            plain: over_now(&plain),
            lengths: lengths.collect(),
        })
    };
    let points = SHARES.par_iter().map(at_share).collect::<Result<Vec<Load>>>()?;
    let requests = match (rate > 0.0, &workload.arrivals) {
        (true, ArrivalSpec::Trace(_)) => "the requests of the log, faster or slower",
        (true, ArrivalSpec::Poisson(_)) => "Poisson arrivals",
        (true, _) => "requests as they come, faster or slower",
        (false, _) => "Poisson arrivals, requests as in the closed loop",
    };
    let requests = requests.to_owned();
    let (drafting, now) = (name_of(drafting), ask.now.name.clone());
    Ok(Loads { drafting, now, requests, service_req_s, stops_at: stops_at(&points), points })
}

/// Returns `workload` with arrivals at `rate` requests per second. `own` is the present rate of `workload`; it is 0
/// for a closed loop or a batch. A closed loop or a batch becomes a Poisson process of `requests` requests.
fn at_rate(workload: &WorkloadSpec, own: f64, rate: f64, requests: u32) -> WorkloadSpec {
    let mut other = workload.clone();
    match &mut other.arrivals {
        ArrivalSpec::Poisson(p) if other.transform.is_empty() => p.rate = rate,
        _ if own > 0.0 => other.transform.push(Transform::RateScale(rate / own)),
        _ => {
            without_instants(&mut other);
            other.arrivals = ArrivalSpec::Poisson(Poisson { rate });
            other.requests = Some(requests);
        }
    }
    other
}

/// The request rate above which drafting has no gain over plain decoding. It is interpolated between the last
/// simulated rate with a gain and the next simulated rate. `None` if no rate has a gain, or if the last rate has one.
fn stops_at(loads: &[Load]) -> Option<f64> {
    let points: Vec<(f64, f64)> = loads.iter().filter_map(|l| Some((l.rate, l.pays?.mean))).collect();
    let last = points.iter().rposition(|p| p.1 > 0.0)?;
    let ((x0, y0), (x1, y1)) = (points[last], *points.get(last + 1)?);
    Some(x0 + (x1 - x0) * y0 / (y0 - y1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_replaced_or_scaled() {
        let workload = |arrivals: &str| -> WorkloadSpec {
            toml::from_str(&format!("arrivals = {arrivals}\nlengths = {{ fixed = {{ prompt = 9, output = 5 }} }}"))
                .unwrap()
        };
        let poisson = at_rate(&workload("{ poisson = { rate = 2.0 } }"), 1.9, 6.0, 50);
        assert_eq!(poisson, workload("{ poisson = { rate = 6.0 } }"));
        let gamma = workload("{ gamma = { rate = 2.0, cv = 3.0 } }");
        let scaled = WorkloadSpec { transform: vec![Transform::RateScale(3.0)], ..gamma.clone() };
        assert_eq!(at_rate(&gamma, 2.0, 6.0, 50), scaled);
        let closed = at_rate(&workload("{ closed-loop = 4 }"), 0.0, 6.0, 50);
        assert_eq!(closed, WorkloadSpec { requests: Some(50), ..workload("{ poisson = { rate = 6.0 } }") });
    }

    #[test]
    fn drafting_stops_at_the_last_zero_of_the_gain() {
        let load = |rate: f64, pays: f64| Load {
            rate,
            pays: Gain::of(&[Some(1.0)], &[Some(1.0 - pays)]),
            gain: None,
            plain: None,
            lengths: Vec::new(),
        };
        let falls = [load(1.0, -0.1), load(2.0, 0.2), load(3.0, 0.1), load(4.0, -0.3)];
        assert!((stops_at(&falls).unwrap() - 3.25).abs() < 1e-12);
        assert_eq!(stops_at(&falls[..3]), None, "it pays at the highest load");
        assert_eq!(stops_at(&falls[..1]), None, "it never pays");
        let unknown = [load(1.0, 0.2), Load { rate: 2.0, pays: None, gain: None, plain: None, lengths: vec![] }];
        assert_eq!(stops_at(&unknown), None);
    }
}
