//! The result of one search for a capacity, and the results of all searches of a plan.

use crate::load::{Load, Log, Spread};
use crate::probe::Probe;
use crate::search::{Next, Search};
use foretoken_report::Swept;
use foretoken_sim::metrics::{Interval, Slo};
use serde::{Serialize, Serializer};

/// The outcome of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The search found the highest rate that is carried.
    Rate,
    /// No rate is carried, not even a very low one.
    NoRate,
    /// Every rate that was tried is carried.
    EveryRateTried,
}

/// Why a policy does not carry a higher rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Too many requests miss their bounds.
    Bounds,
    /// The server does not keep up: the queue grows as long as requests arrive.
    Queue,
}

/// The capacity of a policy with one seed.
#[derive(Clone, Debug, Serialize)]
pub struct OfSeed {
    /// The seed of the runs' random draws.
    pub seed: u64,
    /// The outcome of the search.
    pub verdict: Verdict,
    /// The capacity, requests a second; `None` if no rate is carried, or every rate that was tried.
    pub req_s: Option<f64>,
    /// Why the policy does not carry more; `None` if every rate that was tried is carried.
    pub limit: Option<Limit>,
    /// The bounds that requests had to keep.
    pub slo: Slo,
    /// Rates above the capacity that were carried although a lower rate was not.
    pub exceptions: Vec<f64>,
    /// The highest rate that was tried, requests a second.
    pub tried_up_to: f64,
    /// Output tokens a second per GPU at the capacity; `None` without one.
    pub tok_s_gpu: Option<f64>,
    /// How the arrivals are spread over time.
    pub spread: Spread,
    /// The requests of a log that were run; absent for generated arrivals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Log>,
    /// All rates that were tried, ascending.
    pub probes: Vec<Probe>,
}

impl OfSeed {
    /// The result of a search that has ended. `end`: the search's last answer. `tokens_gpu`: mean output tokens of a
    /// counted request, divided by the number of GPUs.
    pub fn of(seed: u64, end: Next, slo: Slo, tokens_gpu: f64, load: &Load, mut probes: Vec<Probe>) -> OfSeed {
        probes.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let (verdict, req_s) = match end {
            Next::Found(rate) => (Verdict::Rate, Some(rate)),
            Next::Nothing | Next::Try(_) => (Verdict::NoRate, None),
            Next::Everything => (Verdict::EveryRateTried, None),
        };
        let tried: Vec<_> = probes.iter().map(Probe::tried).collect();
        let limit = probes.iter().find(|p| !p.carried).map(|p| match p.steady {
            Some(false) if f64::from(p.missed) <= load.may_miss => Limit::Queue,
            _ => Limit::Bounds,
        });
        OfSeed {
            seed,
            verdict,
            req_s,
            limit,
            slo,
            exceptions: Search::exceptions(&tried),
            tried_up_to: probes.last().map_or(0.0, |p| p.rate),
            tok_s_gpu: req_s.map(|rate| rate * tokens_gpu),
            spread: load.spread,
            log: load.log,
            probes,
        }
    }
}

/// The capacity of a policy at one combination of swept values.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// The policy's label in tables and figures.
    pub policy: String,
    /// Is it autoregressive decoding, without drafts?
    pub baseline: bool,
    /// Does the policy see which drafts will be accepted? Then no server can run it: it is a bound.
    pub bound: bool,
    /// The swept values, by path.
    #[serde(serialize_with = "by_path")]
    pub sweep: Vec<Swept>,
    /// The capacity over seeds, requests a second; `None` if a seed has none.
    pub req_s: Option<Interval>,
    /// Output tokens a second per GPU at the capacity, over seeds; `None` if a seed has none.
    pub tok_s_gpu: Option<Interval>,
    /// The result of each seed.
    pub seeds: Vec<OfSeed>,
}

impl Capacity {
    /// Averages the results of all seeds of a policy.
    pub fn of(policy: String, sweep: Vec<Swept>, seeds: Vec<OfSeed>) -> Capacity {
        let rates: Option<Vec<f64>> = seeds.iter().map(|s| s.req_s).collect();
        let tokens: Option<Vec<f64>> = seeds.iter().map(|s| s.tok_s_gpu).collect();
        Capacity {
            policy,
            baseline: false,
            bound: false,
            sweep,
            req_s: rates.and_then(|r| Interval::of(&r)),
            tok_s_gpu: tokens.and_then(|t| Interval::of(&t)),
            seeds,
        }
    }

    /// Number of seeds with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.seeds.iter().filter(|s| s.verdict == verdict).count()
    }

    /// The lowest of the highest tried rates of the seeds that carry every rate; infinite without such a seed.
    pub fn tried_up_to(&self) -> f64 {
        let every = self.seeds.iter().filter(|s| s.verdict == Verdict::EveryRateTried);
        every.map(|s| s.tried_up_to).fold(f64::INFINITY, f64::min)
    }

    /// Notes on the capacity for its reader, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut all = Vec::new();
        let seeds = self.seeds.len();
        if let some @ 1.. = self.count(Verdict::NoRate) {
            all.push(format!("no rate is carried, however low ({some} of {seeds} seeds)"));
        }
        if let some @ 1.. = self.count(Verdict::EveryRateTried) {
            let up_to = self.tried_up_to();
            all.push(format!(
                "every rate that was tried is carried, up to {up_to:.0} requests/s ({some} of {seeds} seeds): the requests of a \
                 probe are too few to fill the server, raise capacity.requests"
            ));
        }
        let queue = self.seeds.iter().filter(|s| s.limit == Some(Limit::Queue)).count();
        if queue > 0 {
            all.push(format!(
                "the queue sets the limit, not the bounds ({queue} of {seeds} seeds): at higher rates the server does not keep up"
            ));
        }
        let odd = self.seeds.iter().filter(|s| !s.exceptions.is_empty()).count();
        if odd > 0 {
            all.push(format!(
                "a higher rate is sometimes carried where a lower one is not ({odd} of {seeds} seeds): the answer is below every rate that was not carried"
            ));
        }
        all
    }
}

/// Writes swept values as a table by path.
///
/// # Errors
/// The serializer fails.
pub fn by_path<S: Serializer>(sweep: &[Swept], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(sweep.iter().map(|s| (&s.path, &s.value)))
}

/// The capacities of all policies of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The name of the experiment.
    pub name: String,
    /// Where the numbers come from.
    pub source: String,
    /// Share of requests that must keep their bounds.
    pub share: f64,
    /// Relative distance between the answer and the lowest rate that is not carried, at most.
    pub tolerance: f64,
    /// The seconds of the workload whose requests count; `None` if no window was asked for.
    pub window_s: Option<[f64; 2]>,
    /// Warnings of the profiles: that one was edited, or is not trusted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The capacities. Swept values vary slowest, then policies.
    pub capacities: Vec<Capacity>,
}
