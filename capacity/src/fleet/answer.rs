//! The result of a fleet's search: for each policy the fewest replicas, what they cost, and what perfect scaling needs.

use super::probe::Probe;
use foretoken_report::Swept;
use foretoken_sim::Time;
use foretoken_sim::metrics::{Interval, Slo};
use serde::Serialize;

/// The search of one policy with one seed.
#[derive(Clone, Debug, Serialize)]
pub struct OfSeed {
    /// The seed of the runs' random draws.
    pub seed: u64,
    /// The fewest replicas that carry the load; `None` if the most that may be tried do not.
    pub replicas: Option<u32>,
    /// The bounds that requests had to keep.
    pub slo: Slo,
    /// Requests a second that one replica alone carries; `None` if it carries no rate.
    pub one_req_s: Option<f64>,
    /// What a fleet needs that follows the load and scales perfectly; `None` without `one_req_s`.
    pub perfect: Option<Perfect>,
    /// All numbers of replicas that were tried, ascending.
    pub probes: Vec<Probe>,
}

/// What a fleet needs that follows the load at every moment and loses nothing by being split: ⌈λ(t) / μ⌉ replicas, with
/// λ(t) the rate in a window and μ what one replica carries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Perfect {
    /// The most replicas at any time.
    pub peak: u32,
    /// The replicas over time, on average.
    pub mean: f64,
}

/// The load over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadOverTime {
    /// Width of a window, seconds.
    pub window_s: f64,
    /// Rate in each window, requests a second.
    pub req_s: Vec<f64>,
    /// Seconds from the first request to the last.
    pub span_s: f64,
}

/// Fewest requests in a window on average: with fewer, the peak is chance.
const LEAST_IN_A_WINDOW: f64 = 100.0;
/// Shortest window, seconds.
const SHORTEST_S: f64 = 60.0;

impl LoadOverTime {
    /// The load of arrivals, of which the first is at 0 s.
    pub fn of(arrivals: &[Time]) -> LoadOverTime {
        let span_s = arrivals.last().map_or(0.0, |t| t.as_s());
        let least = span_s * LEAST_IN_A_WINDOW / arrivals.len() as f64;
        let windows = (span_s / least.max(SHORTEST_S)).floor().max(1.0);
        let window_s = span_s / windows;
        let mut counts = vec![0u32; windows as usize];
        for t in arrivals {
            counts[((t.as_s() / window_s) as usize).min(windows as usize - 1)] += 1;
        }
        LoadOverTime { window_s, req_s: counts.iter().map(|&n| f64::from(n) / window_s).collect(), span_s }
    }

    /// Mean rate, requests a second.
    pub fn mean(&self) -> f64 {
        self.req_s.iter().sum::<f64>() / self.req_s.len() as f64
    }

    /// Rate in the busiest window, requests a second.
    pub fn peak(&self) -> f64 {
        self.req_s.iter().copied().fold(0.0, f64::max)
    }

    /// What perfect scaling needs if one replica carries `one` requests a second.
    pub fn perfect(&self, one: f64) -> Perfect {
        let need = |rate: &f64| (rate / one).ceil().max(1.0);
        let peak = self.req_s.iter().map(need).fold(1.0, f64::max) as u32;
        Perfect { peak, mean: self.req_s.iter().map(need).sum::<f64>() / self.req_s.len() as f64 }
    }
}

/// The fleet of one policy at one combination of swept values.
#[derive(Clone, Debug, Serialize)]
pub struct FleetOf {
    /// The policy's label in tables and figures.
    pub policy: String,
    /// Is it autoregressive decoding, without drafts?
    pub baseline: bool,
    /// Does the policy or the router see what none can see? Then it is a reference that nothing can run.
    pub bound: bool,
    /// The router.
    pub router: String,
    /// The swept values, by path.
    #[serde(serialize_with = "crate::answer::by_path")]
    pub sweep: Vec<Swept>,
    /// GPUs of one replica.
    pub gpus_of_one: u32,
    /// The fewest replicas that carry the load with every seed; `None` if some seed has none.
    pub replicas: Option<u32>,
    /// The fewest replicas of each seed: mean and 95 % interval.
    pub over_seeds: Option<Interval>,
    /// GPUs of `replicas`.
    pub gpus: Option<u32>,
    /// Their price for an hour.
    pub cost_hour: Option<f64>,
    /// Price of a million output tokens at the experiment's load.
    pub cost_mtok: Option<f64>,
    /// The result of each seed.
    pub seeds: Vec<OfSeed>,
}

impl FleetOf {
    /// The perfect-scaling bound with the first seed.
    pub fn perfect(&self) -> Option<Perfect> {
        self.seeds.first().and_then(|s| s.perfect)
    }

    /// What one replica alone carries, requests a second, over seeds; `None` if some seed has none.
    pub fn one_req_s(&self) -> Option<Interval> {
        let all: Option<Vec<f64>> = self.seeds.iter().map(|s| s.one_req_s).collect();
        Interval::of(&all?)
    }
}

/// One of the three ways to use the same GPUs, over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Way {
    /// The swept values, as text.
    pub at: String,
    /// What it is: the policy, and the number of replicas.
    pub what: String,
    /// Number of replicas.
    pub replicas: u32,
    /// Price for an hour.
    pub cost_hour: f64,
    /// Share of the counted requests that kept their bounds: mean and interval over seeds.
    pub kept: Interval,
    /// P99 of time to first token, seconds: mean over seeds; `None` if a seed finished nothing.
    pub ttft_p99_s: Option<f64>,
    /// P99 of time per output token, seconds.
    pub tpot_p99_s: Option<f64>,
    /// Mean end-to-end latency, seconds.
    pub e2e_mean_s: Option<f64>,
}

/// Where drafts stop paying on a fleet, as the rate grows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crossover {
    /// The swept values, as text.
    pub at: String,
    /// The policy that drafts.
    pub policy: String,
    /// Number of replicas.
    pub replicas: u32,
    /// The rates that were tried, requests a second, and mean end-to-end latency without drafts over that with them.
    pub speedups: Vec<(f64, f64)>,
    /// The rate at which both are equal, between two tried rates; `None` if one is always faster.
    pub req_s: Option<f64>,
}

impl Crossover {
    /// Where the speedups cross 1, by a straight line over the logarithm of the rate.
    pub fn of(at: String, policy: String, replicas: u32, speedups: Vec<(f64, f64)>) -> Crossover {
        let crossing = speedups.windows(2).rev().find(|w| (w[0].1 >= 1.0) != (w[1].1 >= 1.0));
        let req_s = crossing.map(|w| {
            let ((low, a), (high, b)) = ((w[0].0.ln(), w[0].1.ln()), (w[1].0.ln(), w[1].1.ln()));
            (low + (high - low) * a / (a - b)).exp()
        });
        Crossover { at, policy, replicas, speedups, req_s }
    }
}

/// The answer for all policies of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct FleetAnswer {
    /// The name of the experiment.
    pub name: String,
    /// Where the numbers come from.
    pub source: String,
    /// Share of requests that must keep their bounds.
    pub share: f64,
    /// Price of a GPU for an hour.
    pub price_gpu_hour: f64,
    /// The most replicas that were tried.
    pub most_replicas: u32,
    /// The load of the first seed over time.
    pub load: LoadOverTime,
    /// Warnings of the profiles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The fleets. Swept values vary slowest, then policies.
    pub fleets: Vec<FleetOf>,
    /// The same GPUs, three ways, at each combination of swept values.
    pub ways: Vec<Way>,
    /// Where drafts stop paying, at each combination of swept values.
    pub crossovers: Vec<Crossover>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfect_scaling_follows_the_load() {
        // 600 requests in each of two minutes, then 1800 in one.
        let rates = [10.0f64, 10.0, 30.0];
        let mut arrivals = Vec::new();
        for (minute, rate) in rates.iter().enumerate() {
            arrivals
                .extend((0..(60.0 * rate) as u32).map(|i| Time::from_s(60.0 * minute as f64 + f64::from(i) / rate)));
        }
        arrivals.push(Time::from_s(180.0));
        let load = LoadOverTime::of(&arrivals);
        assert_eq!((load.window_s, load.req_s.len()), (60.0, 3));
        assert!((load.peak() - 30.0).abs() < 0.1 && (load.mean() - 50.0 / 3.0).abs() < 0.1, "{load:?}");
        let perfect = load.perfect(12.5);
        assert_eq!((perfect.peak, perfect.mean), (3, 5.0 / 3.0));
    }

    #[test]
    fn drafts_cross_where_the_line_does() {
        let of = |speedups: &[(f64, f64)]| Crossover::of(String::new(), "x".into(), 1, speedups.to_vec()).req_s;
        assert_eq!(of(&[(1.0, 1.5), (2.0, 1.2)]), None);
        let at = of(&[(1.0, 1.5), (4.0, 1.5f64.recip())]).unwrap();
        assert!((at - 2.0).abs() < 1e-9, "{at}");
    }
}
