//! The results of capacity searches: of one search, of one policy, and of all policies of an experiment. A capacity is
//! the highest rate that a server carries. A server carries a rate if enough requests keep their SLO bounds and the
//! queue does not grow.

use crate::capacity::host::WithHost;
use crate::capacity::load::{Load, Log, Spread};
use crate::capacity::probe::Probe;
use crate::capacity::search::{Next, Search};
use foretoken_report::{Mark, Swept};
use foretoken_sim::metrics::{Interval, Range, Slo};
use serde::{Serialize, Serializer};

/// How a search for a capacity ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The search found a capacity: the highest request rate that the server carries.
    Rate,
    /// No request rate is carried, not even the lowest rate that the search tries. A server carries a rate if enough
    /// requests keep their SLO bounds and the queue does not grow.
    NoRate,
    /// The server carries every request rate that was tried, so the search found no highest carried rate.
    EveryRateTried,
}

/// Why a server does not carry a tried request rate: too many requests miss their SLO bounds, or the queue grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Too many requests miss their SLO bounds (the server may also fail to keep up).
    Bounds,
    /// Few enough requests miss their bounds, but the server does not keep up with the arrivals.
    Queue,
}

/// The capacity of a policy, as the search with one seed found it.
#[derive(Clone, Debug, Serialize)]
pub struct SeedResult {
    pub seed: u64,
    /// How the search ended: with a capacity, with no carried rate, or with every tried rate carried. A carried rate is
    /// served within the SLO.
    pub verdict: Verdict,
    /// The capacity (highest request rate served within the SLO), requests per second. `None` if no tried rate is
    /// carried, or if every tried rate is carried.
    pub req_s: Option<f64>,
    /// Why the server does not carry the lowest rate that failed: requests miss their SLO bounds, or the queue grows.
    /// `None` if every rate that was tried is carried.
    pub limit: Option<Limit>,
    /// The latency bounds (SLO) that requests had to keep.
    pub slo: Slo,
    /// Request rates, per second, ascending, that the server carried although it did not carry a lower rate.
    pub exceptions: Vec<f64>,
    /// The highest request rate that was tried, per second.
    pub tried_up_to: f64,
    /// Output tokens per second and GPU at the capacity: `req_s` × mean output tokens of a counted request / number of
    /// GPUs. `None` without a capacity.
    pub tok_s_gpu: Option<f64>,
    /// Which limit of the engine requests exceed, so that they are rejected at any rate, and what to change. Only
    /// stated if no rate is carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// How evenly the requests' arrivals are spread over time.
    pub spread: Spread,
    /// Which requests of a log were run; absent for generated arrivals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Log>,
    /// The result of each request rate that was tried, ascending by rate.
    pub probes: Vec<Probe>,
}

impl SeedResult {
    /// Makes the result of a capacity search that has ended. `end` is the search's last step; `Next::Try` gives a
    /// result without a rate. `tokens_gpu` is the mean number of output tokens of a counted request, divided by the
    /// number of GPUs.
    pub fn of(seed: u64, end: Next, slo: Slo, tokens_gpu: f64, load: &Load, mut probes: Vec<Probe>) -> SeedResult {
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
        SeedResult {
            seed,
            verdict,
            req_s,
            limit,
            slo,
            exceptions: Search::exceptions(&tried),
            tried_up_to: probes.last().map_or(0.0, |p| p.rate),
            tok_s_gpu: req_s.map(|rate| rate * tokens_gpu),
            rejected: None,
            spread: load.spread,
            log: load.log,
            probes,
        }
    }
}

/// The capacity of a policy at one combination of swept values.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// The label of the policy whose capacity was searched, such as `fixed-3`.
    pub policy: String,
    /// Is the policy autoregressive decoding, without drafting?
    pub baseline: bool,
    /// Does the policy see the hidden truth, such as which draft tokens will be accepted? Then no server can run it,
    /// and its capacity is a bound for other policies.
    pub bound: bool,
    #[serde(serialize_with = "by_path")]
    pub sweep: Vec<Swept>,
    /// The capacity, requests per second: mean over seeds and 95 % interval. `None` if some seed has no capacity.
    pub req_s: Option<Interval>,
    /// Output tokens per second and GPU at the capacity: mean over seeds and 95 % interval. `None` if some seed has no
    /// capacity.
    pub tok_s_gpu: Option<Interval>,
    pub seeds: Vec<SeedResult>,
}

impl Capacity {
    /// Averages a policy's capacities over the seeds `seeds`. Sets `baseline` and `bound` to false; the caller sets
    /// them.
    pub fn of(policy: String, sweep: Vec<Swept>, seeds: Vec<SeedResult>) -> Capacity {
        let rates: Option<Vec<f64>> = seeds.iter().map(|s| s.req_s).collect();
        let tokens: Option<Vec<f64>> = seeds.iter().map(|s| s.tok_s_gpu).collect();
        Capacity {
            policy,
            baseline: false,
            bound: false,
            sweep,
            req_s: rates.and_then(|r| Interval::within(Range::FromZero, &r)),
            tok_s_gpu: tokens.and_then(|t| Interval::within(Range::FromZero, &t)),
            seeds,
        }
    }

    /// The caveats of the policy's row.
    pub fn marks(&self) -> &'static [Mark] {
        marks(self.bound)
    }

    pub fn count(&self, verdict: Verdict) -> usize {
        self.seeds.iter().filter(|s| s.verdict == verdict).count()
    }

    /// The lowest, over seeds, of the highest tried request rate (`SeedResult::tried_up_to`), per second. Only seeds
    /// count whose search ended with [`Verdict::EveryRateTried`]: up to this rate, the server carried every tried rate
    /// with each of them. Infinity if there is no such seed.
    pub fn tried_up_to(&self) -> f64 {
        let unlimited = self.seeds.iter().filter(|s| s.verdict == Verdict::EveryRateTried);
        unlimited.map(|s| s.tried_up_to).fold(f64::INFINITY, f64::min)
    }

    /// Notes on a policy's capacity, each with its number of seeds. A rate is carried if it is served within the SLO.
    /// There is a note if no rate is carried, if every tried rate is carried, if the growing queue (not an SLO bound)
    /// limits the rate, and if a rate is carried although a lower rate is not.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let seeds = self.seeds.len();
        if let some @ 1.. = self.count(Verdict::NoRate) {
            let why = self.seeds.iter().find_map(|s| s.rejected.as_ref());
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            notes.push(format!("no rate is carried, however low ({some} of {seeds} seeds){why}"));
        }
        if let some @ 1.. = self.count(Verdict::EveryRateTried) {
            let up_to = self.tried_up_to();
            notes.push(format!(
                "every rate that was tried is carried, up to {up_to:.0} requests/s ({some} of {seeds} seeds): the requests of a \
                 probe are too few to fill the server, raise capacity.requests"
            ));
        }
        let queue = self.seeds.iter().filter(|s| s.limit == Some(Limit::Queue)).count();
        if queue > 0 {
            notes.push(format!(
                "the queue sets the limit, not the bounds ({queue} of {seeds} seeds): at higher rates the server does not keep up"
            ));
        }
        let odd = self.seeds.iter().filter(|s| !s.exceptions.is_empty()).count();
        if odd > 0 {
            notes.push(format!(
                "a higher rate is sometimes carried where a lower one is not ({odd} of {seeds} seeds): the answer is below every rate that was not carried"
            ));
        }
        notes
    }
}

/// The caveats of a policy that sees the hidden truth (`bound`), or of another.
pub fn marks(bound: bool) -> &'static [Mark] {
    if bound { &[Mark::SeesHiddenTruth] } else { &[] }
}

/// Serialises swept values as a map from the setting's path to its value.
pub fn by_path<S: Serializer>(sweep: &[Swept], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(sweep.iter().map(|s| (&s.path, &s.value)))
}

/// The capacities of all policies of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The name of the experiment whose policies were searched.
    pub name: String,
    /// Where the numbers come from, such as `simulated`.
    pub source: String,
    /// Share (0 to 1) of the counted requests that must keep their SLO bounds. Requests count if they arrive in the
    /// experiment's window or, without a window, if they are not in the warm-up at either end.
    pub share: f64,
    /// The search's tolerance, a share of the capacity. When the search ends, the lowest rate that failed exceeds the
    /// capacity by at most this share.
    pub tolerance: f64,
    /// The time window (from, to) of the experiment's arrivals, seconds. Only the SLO bounds of requests that arrive in
    /// it count. `None`: no window.
    pub window_s: Option<[f64; 2]>,
    /// Warnings about cost profiles that were edited or are not trusted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The capacity of each policy at each combination of swept values. Policies vary fastest in the list.
    pub capacities: Vec<Capacity>,
    /// The best policy and plain decoding with the host time of a measured server, for combinations of swept values at
    /// which the experiment counts no host time and a drafting policy carries most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<WithHost>,
}
