//! What drafting brings as the load grows, and where it stops to.

use super::question::Question;
use foretoken_policies::{Fixed, PolicySpec};
use foretoken_run::cells::play;
use foretoken_run::load::with_defaults;
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_sim::metrics::Interval;
use foretoken_spec::problem::{Problem, Result};
use serde::Serialize;
use std::sync::atomic::AtomicBool;

/// The gain of a fixed length over plain decoding, load by load.
#[derive(Clone, Debug, Serialize)]
pub struct Loads {
    /// The length.
    pub k: u32,
    /// Requests a second that plain decoding sustains with as many at once as the engine runs.
    pub service_req_s: f64,
    /// The loads, ascending.
    pub points: Vec<Load>,
    /// The load above which it stops to pay, requests a second, where that was met.
    pub stops_at: Option<f64>,
}

/// A load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Load {
    /// Requests a second.
    pub rate: f64,
    /// 1 − mean E2E with drafts / mean E2E without.
    pub gain: Option<Interval>,
}

/// Loads that are tried, as shares of the rate that plain decoding sustains.
const SHARES: [f64; 8] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0];

/// Requests that come by themselves at several rates, with and without drafts.
pub fn sweep(ask: &Question, plan: &Plan, k: u32, interrupt: &AtomicBool) -> Result<Loads> {
    let plain = with_defaults("autoregressive").expect("the registry has the baseline");
    let drafting = PolicySpec::Fixed(Fixed { k });
    let most = plan.variants[0].experiment.engine.max_num_seqs;
    let full = ask.plan(&[format!("workload.arrivals={{ closed-loop = {most} }}")])?;
    let setting = Setting::new(&full.variants[0], full.seeds[0])?;
    let summary = play(&setting, &plain, Some(setting.slo(None)), interrupt)?.stored.summary;
    let service_req_s = summary.finished as f64 / summary.duration_s;
    let mut points = Vec::new();
    for share in SHARES {
        let rate = share * service_req_s;
        let at = ask.plan(&[format!("workload.arrivals={{ poisson = {{ rate = {rate:.6} }} }}")])?;
        let mut gains = Vec::new();
        for &seed in &at.seeds {
            let setting = Setting::new(&at.variants[0], seed)?;
            let cost = |spec: &PolicySpec| {
                let played = play(&setting, spec, Some(setting.slo(None)), interrupt)?;
                Ok::<_, Box<Problem>>(played.stored.summary.e2e.map(|q| q.mean))
            };
            gains.push(cost(&plain)?.zip(cost(&drafting)?).map(|(p, d)| 1.0 - d / p));
        }
        let whole: Option<Vec<f64>> = gains.into_iter().collect();
        points.push(Load { rate, gain: whole.and_then(|gains| Interval::of(&gains)) });
    }
    Ok(Loads { k, service_req_s, stops_at: stops_at(&points), points })
}

/// The load at which the gain falls through zero for good, on the line between its neighbours.
fn stops_at(loads: &[Load]) -> Option<f64> {
    let points: Vec<(f64, f64)> = loads.iter().filter_map(|l| Some((l.rate, l.gain?.mean))).collect();
    let last = points.iter().rposition(|p| p.1 > 0.0)?;
    let ((x0, y0), (x1, y1)) = (points[last], *points.get(last + 1)?);
    Some(x0 + (x1 - x0) * y0 / (y0 - y1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stops_where_the_line_falls_through_zero_for_the_last_time() {
        let load = |rate: f64, gain: f64| Load { rate, gain: Interval::of(&[gain]) };
        let falls = [load(1.0, -0.1), load(2.0, 0.2), load(3.0, 0.1), load(4.0, -0.3)];
        assert!((stops_at(&falls).unwrap() - 3.25).abs() < 1e-12);
        assert_eq!(stops_at(&falls[..3]), None, "it pays at the highest load");
        assert_eq!(stops_at(&falls[..1]), None, "it never pays");
        let unknown = [load(1.0, 0.2), Load { rate: 2.0, gain: None }];
        assert_eq!(stops_at(&unknown), None);
    }
}
