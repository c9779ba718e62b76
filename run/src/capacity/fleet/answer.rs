//! The results of the search for the smallest fleet. For each policy: the fewest replicas that carry the load, their
//! price, and the number of replicas that perfect scaling would need. Also compares fleets with and without drafting.

use super::host::WithHost;
use super::probe::Probe;
use crate::spec::capacity::CapacitySpec;
use foretoken_report::{Swept, spread};
use foretoken_sim::Time;
use foretoken_sim::metrics::{Interval, Range, Slo};
use serde::Serialize;

/// The result of the search for the fewest replicas, for one policy with one seed.
#[derive(Clone, Debug, Serialize)]
pub struct SeedResult {
    pub seed: u64,
    /// The fewest replicas that carry the load. `None` if even `fleet.most_replicas` replicas do not carry the load.
    pub replicas: Option<u32>,
    /// The latency bounds (SLO) that requests had to keep.
    pub slo: Slo,
    /// The capacity of one replica alone, requests per second. `None` if the replica carries no rate, or carries every
    /// tried rate.
    pub one_req_s: Option<f64>,
    /// The number of replicas of an ideal fleet, which splits the load without loss. `None` if `one_req_s` is `None`.
    pub perfect: Option<Perfect>,
    /// The result of each tried number of replicas, ascending by number.
    pub probes: Vec<Probe>,
}

/// The size of an ideal fleet, which follows the load and splits it without loss. In a time window with the request
/// rate λ(t) this fleet has ⌈λ(t) / μ⌉ replicas, and at least one. μ is the capacity of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Perfect {
    /// The largest number of replicas that the ideal fleet has in any time window.
    pub peak: u32,
    /// The mean number of replicas of the ideal fleet over time.
    pub mean: f64,
}

/// The request rate of the fleet's load over time, in windows of equal width.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadOverTime {
    pub window_s: f64,
    /// Request rate in each time window, requests per second.
    pub req_s: Vec<f64>,
    /// Seconds from the load's first request to its last.
    pub span_s: f64,
    pub requests: u32,
    /// Number of requests whose SLO bounds count.
    pub counted: u32,
}

/// When the load is cut into time windows, their width is chosen so that a window has at least this number of requests
/// on average. With fewer requests, the peak rate would mostly be chance.
const LEAST_IN_A_WINDOW: f64 = 100.0;
/// Least width of a time window into which the load is cut, seconds.
const SHORTEST_S: f64 = 60.0;

impl LoadOverTime {
    /// Counts arrivals in windows of equal width. Takes the largest number of windows with at least 60 s and, on
    /// average, at least 100 requests each; one window if none fits. The first arrival must be at 0 s. `counted` is
    /// the number of requests whose SLO bounds count.
    pub fn of(arrivals: &[Time], counted: u32) -> LoadOverTime {
        let span_s = arrivals.last().map_or(0.0, |t| t.as_s());
        let least = span_s * LEAST_IN_A_WINDOW / arrivals.len() as f64;
        let windows = (span_s / least.max(SHORTEST_S)).floor().max(1.0);
        let window_s = span_s / windows;
        let mut counts = vec![0u32; windows as usize];
        // A window has the gaps that end in it, as the mean rate does.
        for t in arrivals.iter().skip(1) {
            counts[((t.as_s() / window_s) as usize).min(windows as usize - 1)] += 1;
        }
        let req_s = counts.iter().map(|&n| f64::from(n) / window_s).collect();
        LoadOverTime { window_s, req_s, span_s, requests: arrivals.len() as u32, counted }
    }

    pub fn mean(&self) -> f64 {
        self.req_s.iter().sum::<f64>() / self.req_s.len() as f64
    }

    /// Request rate in the load's busiest time window, requests per second.
    pub fn peak(&self) -> f64 {
        self.req_s.iter().copied().fold(0.0, f64::max)
    }

    /// The number of replicas of an ideal fleet, which splits this load without loss, if one replica carries `one`
    /// requests per second.
    pub fn perfect(&self, one: f64) -> Perfect {
        let need = |rate: &f64| (rate / one).ceil().max(1.0);
        let peak = self.req_s.iter().map(need).fold(1.0, f64::max) as u32;
        Perfect { peak, mean: self.req_s.iter().map(need).sum::<f64>() / self.req_s.len() as f64 }
    }
}

/// The fewest replicas that carry the load and their price, for one policy at one combination of swept values.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyFleet {
    /// The label of the policy that the fleet's replicas run, such as `fixed-3`.
    pub policy: String,
    /// Is the policy autoregressive decoding, without drafting?
    pub baseline: bool,
    /// Does the policy or the router see the hidden truth (which draft tokens will be accepted)? Then no real server
    /// can run the fleet, and the fleet is only a reference for other fleets.
    pub bound: bool,
    /// The name of the router, which chooses the replica of each request.
    pub router: String,
    #[serde(serialize_with = "crate::capacity::answer::by_path")]
    pub sweep: Vec<Swept>,
    /// Number of GPUs that one replica needs.
    pub gpus_of_one: u32,
    /// Price of one GPU per hour, in the currency of `fleet.price_gpu_hour`.
    pub price_gpu_hour: f64,
    /// The fewest replicas that carry the load with every seed: the largest number over seeds. `None` if with some seed
    /// even `fleet.most_replicas` replicas do not carry the load.
    pub replicas: Option<u32>,
    /// The fewest replicas for each seed: mean over seeds and 95 % interval. `None` if `replicas` is `None`.
    pub over_seeds: Option<Interval>,
    /// Number of GPUs of a fleet with `replicas` replicas; `None` if `replicas` is `None`.
    pub gpus: Option<u32>,
    /// Price of the fleet's `gpus` GPUs per hour, in the currency of `fleet.price_gpu_hour`; `None` if `replicas` is
    /// `None`.
    pub cost_hour: Option<f64>,
    /// Price of a million output tokens at the experiment's load, in the currency of `fleet.price_gpu_hour`; `None` if
    /// `replicas` is `None`.
    pub cost_mtok: Option<f64>,
    pub seeds: Vec<SeedResult>,
}

impl PolicyFleet {
    /// The number of replicas of an ideal fleet, which splits the load without loss, from the search with the first
    /// seed.
    pub fn perfect(&self) -> Option<Perfect> {
        self.seeds.first().and_then(|s| s.perfect)
    }

    /// The capacity of one replica alone, requests per second: mean over seeds and 95 % interval. `None` if with some
    /// seed the replica has no capacity.
    pub fn one_req_s(&self) -> Option<Interval> {
        let rates: Option<Vec<f64>> = self.seeds.iter().map(|s| s.one_req_s).collect();
        Interval::within(Range::FromZero, &rates?)
    }

    /// How far the number of replicas varies over seeds, as (half the width of its interval, text for a table). `None`
    /// if it does not vary.
    pub fn spread(&self) -> Option<(f64, String)> {
        let i = self.over_seeds?;
        i.half_width.filter(|half| *half > 0.0).zip(spread(&i, 1.0, 1, ""))
    }
}

/// One of three fleets that are compared: without drafting, with drafting, and without drafting but with one more
/// replica.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// The swept values at which the fleets are compared, as text; empty if nothing is swept.
    pub at: String,
    /// The fleet as text: the policy that its replicas run and the number of replicas.
    pub what: String,
    pub replicas: u32,
    /// Price of the fleet's GPUs per hour, in the currency of `fleet.price_gpu_hour`.
    pub cost_hour: f64,
    /// Share (0 to 1) of the counted requests that kept their SLO bounds: mean over seeds and 95 % interval. Requests
    /// count if they arrive in the experiment's window or, without a window, if they are not in the warm-up at either
    /// end.
    pub kept: Interval,
    /// 99th percentile of the counted requests' time to first token, seconds, mean over seeds; `None` if no request
    /// finished in the run of some seed.
    pub ttft_p99_s: Option<f64>,
    /// 99th percentile of the counted requests' time per output token, seconds, mean over seeds; `None` if the run of
    /// some seed finished no output of two tokens or more.
    pub tpot_p99_s: Option<f64>,
    /// Mean end-to-end latency of the counted requests, seconds, mean over seeds; `None` if no request finished in the
    /// run of some seed.
    pub e2e_mean_s: Option<f64>,
}

/// A comparison of fleets with and without drafting at several request rates, and the rate at which drafting begins or
/// ceases to pay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crossover {
    /// The swept values at which the fleets are compared, as text; empty if nothing is swept.
    pub at: String,
    /// The label, such as `fixed-3`, of the policy that drafts in one of the two compared fleets.
    pub policy: String,
    /// Number of replicas of each of the two compared fleets.
    pub replicas: u32,
    /// The speedup by drafting at each tried request rate: (requests per second, mean E2E without drafting / mean E2E
    /// with drafting).
    pub speedups: Vec<(f64, f64)>,
    /// The request rate at which drafting begins or ceases to pay (the speedup is 1), requests per second, interpolated
    /// between two tried rates. `None` if drafting is faster at all tried rates, or slower at all tried rates.
    pub req_s: Option<f64>,
}

impl Crossover {
    /// Makes the comparison of fleets with and without drafting. Finds the highest request rate at which the speedup
    /// crosses 1, by linear interpolation of the speedup's logarithm over the rate's logarithm. `speedups` must ascend
    /// by rate.
    pub fn of(at: String, policy: String, replicas: u32, speedups: Vec<(f64, f64)>) -> Crossover {
        let crossing = speedups.windows(2).rev().find(|w| (w[0].1 >= 1.0) != (w[1].1 >= 1.0));
        let req_s = crossing.map(|w| {
            let ((low, a), (high, b)) = ((w[0].0.ln(), w[0].1.ln()), (w[1].0.ln(), w[1].1.ln()));
            (low + (high - low) * a / (a - b)).exp()
        });
        Crossover { at, policy, replicas, speedups, req_s }
    }
}

/// The answer of the search for the smallest fleet, for all policies of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct FleetAnswer {
    pub name: String,
    /// Where the numbers come from, such as `simulated`.
    pub source: String,
    /// The answer in sentences: what to run; then, if something is swept, what to run at each combination of values.
    pub headlines: Vec<String>,
    /// Share (0 to 1) of the counted requests that must keep their SLO bounds. Requests count if they arrive in the
    /// experiment's window or, without a window, if they are not in the warm-up at either end.
    pub share: f64,
    /// The largest number of replicas that the search may try (`fleet.most_replicas`).
    pub most_replicas: u32,
    /// The experiment's request rate over time, from the workload of the first seed.
    pub load: LoadOverTime,
    /// What the experiment asks for: which requests it wants to count.
    #[serde(skip)]
    pub asked: CapacitySpec,
    /// Warnings about cost profiles that were edited or are not trusted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The smallest fleet of each policy at each combination of swept values. Policies vary fastest in the list.
    pub fleets: Vec<PolicyFleet>,
    /// Three fleets to compare at each combination of swept values. Two fleets have the fewest replicas that any
    /// drafting policy needs, one without drafting and one with drafting. The third fleet does not draft and has one
    /// more replica. Empty if no fleet with a drafting policy carries the load.
    pub ways: Vec<Alternative>,
    /// The request rate at which drafting begins or ceases to pay, for each combination of swept values at which a
    /// fleet with a drafting policy carries the load.
    pub crossovers: Vec<Crossover>,
    /// The recommended drafting policy and plain decoding with the host time of a measured server, for combinations of
    /// swept values at which the experiment counts no host time and drafting is recommended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<WithHost>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfect_scaling_follows_the_load() {
        // The load's rates, requests per second: 600 requests in the first and in the second minute, 1800 in the third.
        let rates = [10.0f64, 10.0, 30.0];
        let mut arrivals = Vec::new();
        for (minute, rate) in rates.iter().enumerate() {
            arrivals
                .extend((0..(60.0 * rate) as u32).map(|i| Time::from_s(60.0 * minute as f64 + f64::from(i) / rate)));
        }
        arrivals.push(Time::from_s(180.0));
        let load = LoadOverTime::of(&arrivals, 3000);
        assert_eq!((load.window_s, load.req_s.len()), (60.0, 3));
        assert!((load.peak() - 30.0).abs() < 0.1 && (load.mean() - 50.0 / 3.0).abs() < 0.1, "{load:?}");
        // 20 requests, one every second, are one a second: gaps are counted, and not requests.
        let even: Vec<Time> = (0..20).map(|s| Time::from_s(f64::from(s))).collect();
        assert_eq!(LoadOverTime::of(&even, 16).mean(), 1.0);
        let perfect = load.perfect(12.5);
        assert_eq!((perfect.peak, perfect.mean), (3, 5.0 / 3.0));
    }

    #[test]
    fn drafts_cross_where_the_line_does() {
        let crossing = |speedups: &[(f64, f64)]| Crossover::of(String::new(), "x".into(), 1, speedups.to_vec()).req_s;
        assert_eq!(crossing(&[(1.0, 1.5), (2.0, 1.2)]), None);
        let rate = crossing(&[(1.0, 1.5), (4.0, 1.5f64.recip())]).unwrap();
        assert!((rate - 2.0).abs() < 1e-9, "{rate}");
    }
}
