//! What came of a search, and of all of them.

use crate::load::{Load, Log, Spread};
use crate::probe::Probe;
use crate::search::{Next, Search};
use foretoken_report::Swept;
use foretoken_sim::metrics::{Interval, Slo};
use serde::{Serialize, Serializer};

/// What one seed carries.
#[derive(Clone, Debug, Serialize)]
pub struct OfSeed {
    /// The seed.
    pub seed: u64,
    /// Requests a second; `None` where nothing is carried, or everything is.
    pub req_s: Option<f64>,
    /// Why there is no rate.
    pub why: Option<&'static str>,
    /// What its bounds were.
    pub slo: Slo,
    /// Rates above the answer that were carried all the same.
    pub exceptions: Vec<f64>,
    /// Had the queue stopped growing at the answer?
    pub steady: bool,
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
        let (req_s, why) = match end {
            Next::Found(rate) => (Some(rate), None),
            Next::Nothing => (None, Some("no rate is carried, however low")),
            Next::Everything => (None, Some("every rate is carried, however high")),
            Next::Try(_) => (None, Some("the search was not ended")),
        };
        let tried: Vec<_> = probes.iter().map(Probe::tried).collect();
        let steady = req_s.is_none_or(|rate| probes.iter().any(|p| p.rate == rate && p.steady));
        let tok_s_gpu = req_s.map(|rate| rate * tokens_gpu);
        OfSeed {
            seed,
            req_s,
            why,
            slo,
            exceptions: Search::exceptions(&tried),
            steady,
            tok_s_gpu,
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
            sweep,
            req_s: rates.and_then(|r| Interval::of(&r)),
            tok_s_gpu: tokens.and_then(|t| Interval::of(&t)),
            seeds,
        }
    }

    /// What whoever reads the number should know.
    pub fn notes(&self) -> Vec<String> {
        let mut all = Vec::new();
        let why: Vec<&str> = self.seeds.iter().filter_map(|s| s.why).collect();
        if let Some(why) = why.first() {
            all.push(format!("{why} ({} of {} seeds)", why_count(&self.seeds, why), self.seeds.len()));
        }
        let odd = self.seeds.iter().filter(|s| !s.exceptions.is_empty()).count();
        if odd > 0 {
            all.push(format!("more load is not always carried worse ({odd} seeds): the answer is below every rate that was not carried"));
        }
        let growing = self.seeds.iter().filter(|s| !s.steady).count();
        if growing > 0 {
            all.push(format!("the queue was still growing at the answer ({growing} seeds): a longer run carries less"));
        }
        all
    }
}

fn by_path<S: Serializer>(sweep: &[Swept], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(sweep.iter().map(|s| (&s.path, &s.value)))
}

fn why_count(seeds: &[OfSeed], why: &str) -> usize {
    seeds.iter().filter(|s| s.why == Some(why)).count()
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
