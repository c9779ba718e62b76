//! What came of a search, and of all of them.

use crate::load::{Load, Log, Spread};
use crate::probe::Probe;
use crate::search::{Next, Search};
use foretoken_report::Swept;
use foretoken_sim::metrics::{Interval, Slo};
use serde::{Serialize, Serializer};

/// What came of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// There is a highest rate that is carried.
    Rate,
    /// No rate is carried, however low.
    NoRate,
    /// Every rate that was tried is carried.
    EveryRateTried,
}

/// What keeps a policy from carrying more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Too many requests miss their bounds.
    Bounds,
    /// The server does not keep up: the queue grows for as long as requests come.
    Queue,
}

/// What one seed carries.
#[derive(Clone, Debug, Serialize)]
pub struct OfSeed {
    /// The seed.
    pub seed: u64,
    /// What came of the search.
    pub verdict: Verdict,
    /// Requests a second; `None` where no rate is carried, or every rate that was tried.
    pub req_s: Option<f64>,
    /// What keeps the policy from carrying more; `None` where every rate that was tried is carried.
    pub limit: Option<Limit>,
    /// What its bounds were.
    pub slo: Slo,
    /// Rates above the answer that were carried all the same.
    pub exceptions: Vec<f64>,
    /// The highest rate that was tried, requests a second.
    pub tried_up_to: f64,
    /// Output tokens a second and GPU.
    pub tok_s_gpu: Option<f64>,
    /// How its arrivals are spread over time.
    pub spread: Spread,
    /// Which requests of a log were run; absent for generated arrivals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Log>,
    /// All rates that were tried, ascending.
    pub probes: Vec<Probe>,
}

impl OfSeed {
    /// Of a search that has ended.
    /// `tokens_gpu`: output tokens of a request that counts, on average, over the GPUs.
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

/// What a policy carries.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// Its label.
    pub policy: String,
    /// Is it the plain engine, which does not draft?
    pub baseline: bool,
    /// Does it see what no server sees? Then it is a bound.
    pub bound: bool,
    /// The swept values, by path.
    #[serde(serialize_with = "by_path")]
    pub sweep: Vec<Swept>,
    /// Requests a second over seeds; `None` where a seed has none.
    pub req_s: Option<Interval>,
    /// Output tokens a second and GPU.
    pub tok_s_gpu: Option<Interval>,
    /// Seed by seed.
    pub seeds: Vec<OfSeed>,
}

impl Capacity {
    /// Of all its seeds.
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

    /// Seeds with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.seeds.iter().filter(|s| s.verdict == verdict).count()
    }

    /// Up to which rate all seeds carry every rate that was tried.
    pub fn tried_up_to(&self) -> f64 {
        let every = self.seeds.iter().filter(|s| s.verdict == Verdict::EveryRateTried);
        every.map(|s| s.tried_up_to).fold(f64::INFINITY, f64::min)
    }

    /// What a reader of the number should know.
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
                "more load is not always carried worse ({odd} of {seeds} seeds): the answer is below every rate that was not carried"
            ));
        }
        all
    }
}

fn by_path<S: Serializer>(sweep: &[Swept], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(sweep.iter().map(|s| (&s.path, &s.value)))
}

/// All capacities of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The experiment's name.
    pub name: String,
    /// Where its numbers come from.
    pub source: String,
    /// Share of requests that must keep their bounds.
    pub share: f64,
    /// How near the ends of the last bracket are, as a share.
    pub tolerance: f64,
    /// Of a load that changes in time, the seconds that count.
    pub window_s: Option<[f64; 2]>,
    /// What the profiles of its costs warn of: that one was edited, or is not trusted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The capacities: swept values slowest, then policies.
    pub capacities: Vec<Capacity>,
}
