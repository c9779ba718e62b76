//! The comparison of policies: per-seed values paired with the baseline and the oracle of the same draws, and their
//! means with 95 % intervals (Student t over seeds, docs/model.md 14). Pure arithmetic on summaries.

use crate::inert::Inert;
use crate::papers::PaperReport;
use crate::plan::{Plan, Variant};
use foretoken_report::Cell;
use foretoken_sim::metrics::{Interval, Overload, Quantiles, RatioInterval, Slo};
use foretoken_sim::{DraftKv, Summary};
use foretoken_spec::document::Choice;
use serde::Serialize;

/// Everything the table and `--format json` show.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// How much of a live run it is, where that is not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// The experiment's name.
    pub name: String,
    /// Where the numbers come from.
    pub source: String,
    /// The version of Foretoken.
    pub version: String,
    /// The seeds, one replication each.
    pub seeds: Vec<u64>,
    /// One a combination of swept values.
    pub variants: Vec<VariantResult>,
    /// What policies and engine want the user to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Settings that did nothing; absent when none is known of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Inert>,
    /// What a paper says of it, and what came out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperReport>,
}

/// The policies under one combination of swept values.
#[derive(Clone, Debug, Serialize)]
pub struct VariantResult {
    /// What was chosen.
    pub sweep: Vec<Choice>,
    /// Requests that arrived, over all seeds.
    pub requests: u64,
    /// Requests of each seed.
    pub requests_by_seed: Vec<u64>,
    /// The bounds of each seed.
    pub slo: Vec<Slo>,
    /// Where a TPOT bound that is scaled from an autoregressive run comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo_scaled_from: Option<ScaledFrom>,
    /// KV blocks that requests can use without a drafter.
    pub kv_blocks_plain: u32,
    /// KV blocks that requests can use with one, when it takes a share of the pool.
    pub kv_blocks_drafting: Option<u32>,
    /// Blocks of the draft's own pool, when it has one.
    pub kv_blocks_draft_pool: Option<u32>,
    /// One a policy, in the order of the experiment.
    pub policies: Vec<PolicyResult>,
}

/// The autoregressive run that a TPOT bound is scaled from.
#[derive(Clone, Debug, Serialize)]
pub struct ScaledFrom {
    /// Its swept values.
    pub sweep: Vec<Choice>,
    /// Bound over its P90 TPOT.
    pub scale: f64,
    /// Seeds in which it was overloaded: there the bound is no promise but a measure of the queue.
    pub overloaded_seeds: Vec<u64>,
}

/// A policy that fell behind its arrivals in some seeds: the queue grew while requests came. Means over those seeds.
#[derive(Clone, Debug, Serialize)]
pub struct FellBehind {
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Requests a second that came.
    pub offered_req_s: f64,
    /// Requests a second that finished while they came.
    pub completed_req_s: f64,
    /// Requests waiting when the last one came.
    pub waiting_at_end: f64,
}

/// A policy's numbers: means over seeds. What does not exist (no request drafted, no bound) is absent.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyResult {
    /// Its label.
    pub policy: String,
    /// Added as the yardstick, not asked for.
    pub implied: bool,
    /// Does it see what no server sees?
    pub sees_hidden_truth: bool,
    /// Does it stop speculating where a step would be over the bound? For the legend.
    #[serde(skip)]
    pub stops_for_slo: bool,
    /// Did the queue grow while requests came? Then latencies grow with the length of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overload: Option<FellBehind>,
    /// Was autoregressive overloaded in some seed? Then the speedup grows with the length of the run.
    pub speedup_over_overload: bool,
    /// Is the attainment 90 % because the bound is this very run's P90 TPOT?
    pub attains_by_definition: bool,
    /// Mean end-to-end latency, seconds.
    pub e2e_mean_s: Option<Interval>,
    /// Mean E2E of autoregressive / mean E2E of this policy, per seed.
    pub speedup: Option<RatioInterval>,
    /// Mean E2E of this policy / mean E2E of oracle-goodput − 1, per seed, when that oracle is in the list.
    pub regret_to_oracle_goodput: Option<RatioInterval>,
    /// Does it draft trees? Then oracle-goodput, which drafts chains, does not bound it.
    pub drafts_trees: bool,
    /// Does it stop speculating for a TPOT bound that another load sets?
    pub stops_for_a_bound_of_another_load: bool,
    /// Time to first token, seconds.
    pub ttft_mean_s: Option<Interval>,
    /// Time per output token, seconds.
    pub tpot_p50_s: Option<Interval>,
    /// Time per output token, seconds.
    pub tpot_p90_s: Option<Interval>,
    /// Time per output token, seconds.
    pub tpot_p99_s: Option<Interval>,
    /// Share of requests that met every bound.
    pub slo_attainment: Option<Interval>,
    /// Requests meeting every bound, a second.
    pub slo_goodput_req_s: Option<Interval>,
    /// Output tokens of finished requests, a second.
    pub token_goodput_tok_s: Option<Interval>,
    /// Accepted / drafted.
    pub acceptance_rate: Option<Interval>,
    /// 1 + accepted / rounds.
    pub mean_acceptance_length: Option<Interval>,
    /// Drafted tokens a request-step.
    pub draft_len: Option<Interval>,
    /// Verified tokens a request-step.
    pub verify_len: Option<Interval>,
    /// Decode batch size, weighted by time.
    pub batch_size: Option<Interval>,
    /// Preemptions, over all seeds.
    pub preempted: u64,
    /// Requests that could never fit, over all seeds.
    pub rejected: u64,
}

impl Comparison {
    /// Of all cells of a plan in its order, with the KV blocks each could use.
    pub fn of(plan: &Plan, cells: &[Cell], usable_blocks: &[u32]) -> Comparison {
        let size = plan.seeds.len() * plan.policies.len();
        let variants = plan.variants.iter().zip(cells.chunks(size)).zip(usable_blocks.chunks(size));
        Comparison {
            partial: None,
            name: plan.name.clone(),
            source: plan.source().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seeds: plan.seeds.clone(),
            variants: variants.enumerate().map(|(at, ((v, cells), kv))| variant(plan, at, v, cells, kv)).collect(),
            warnings: Vec::new(),
            settings: None,
            paper: None,
        }
    }
}

fn variant(plan: &Plan, at: usize, of: &Variant, cells: &[Cell], kv: &[u32]) -> VariantResult {
    let n = plan.policies.len();
    let baselines: Vec<&Cell> = cells.iter().skip(plan.baseline).step_by(n).collect();
    let oracle = plan.policies.iter().position(|p| p.spec.name() == "oracle-goodput");
    VariantResult {
        sweep: of.choices.clone(),
        requests: baselines.iter().map(|c| c.summary.requests).sum(),
        requests_by_seed: baselines.iter().map(|c| c.summary.requests).collect(),
        slo: baselines.iter().map(|c| c.summary.slo).collect(),
        slo_scaled_from: plan.bound_from(at).map(|from| ScaledFrom {
            sweep: plan.variants[from].choices.clone(),
            scale: of.experiment.slo.adaspec_scale.unwrap_or(1.0),
            overloaded_seeds: baselines.iter().filter(|c| c.bound_of_overload).map(|c| c.key().seed).collect(),
        }),
        kv_blocks_plain: kv[plan.baseline],
        kv_blocks_drafting: kv.iter().copied().find(|&blocks| blocks != kv[plan.baseline]),
        kv_blocks_draft_pool: match of.experiment.engine.draft_kv {
            DraftKv::Separate { blocks } => Some(blocks),
            _ => None,
        },
        policies: (0..n).map(|p| policy(plan, p, oracle, cells)).collect(),
    }
}

fn policy(plan: &Plan, at: usize, oracle: Option<usize>, cells: &[Cell]) -> PolicyResult {
    let n = plan.policies.len();
    let own: Vec<&Cell> = cells.iter().skip(at).step_by(n).collect();
    let of = |f: &dyn Fn(&Summary) -> Option<f64>| over_seeds(own.iter().map(|c| f(&c.summary)));
    let quantile = |metric: fn(&Summary) -> Option<Quantiles>, part: fn(Quantiles) -> f64| {
        over_seeds(own.iter().map(|c| metric(&c.summary).map(part)))
    };
    let e2e = |c: &Cell| c.summary.e2e.map(|q| q.mean);
    let regret = oracle.and_then(|o| {
        let oracles = cells.iter().skip(o).step_by(n);
        let ratio = |(c, o): (&&Cell, &Cell)| e2e(c).zip(e2e(o)).map(|(c, o)| c / o);
        ratio_over_seeds(own.iter().zip(oracles).map(ratio)).map(RatioInterval::excess)
    });
    let spec = &plan.policies[at].spec;
    PolicyResult {
        policy: spec.label(),
        implied: plan.policies[at].implied,
        sees_hidden_truth: spec.sees_hidden_truth(),
        stops_for_slo: spec.definition().stops_for_slo(),
        overload: fell_behind(&own),
        speedup_over_overload: own.iter().any(|c| c.over_overload),
        attains_by_definition: own.iter().all(|c| c.attains_by_definition()),
        e2e_mean_s: quantile(|s| s.e2e, |q| q.mean),
        speedup: ratio_over_seeds(own.iter().map(|c| c.speedup)),
        regret_to_oracle_goodput: regret,
        drafts_trees: spec.definition().drafts_trees(),
        stops_for_a_bound_of_another_load: own.iter().any(|c| c.stops_for_a_bound_of_another_load()),
        ttft_mean_s: quantile(|s| s.ttft, |q| q.mean),
        tpot_p50_s: quantile(|s| s.tpot, |q| q.p50),
        tpot_p90_s: quantile(|s| s.tpot, |q| q.p90),
        tpot_p99_s: quantile(|s| s.tpot, |q| q.p99),
        slo_attainment: of(&|s| s.slo_attainment),
        slo_goodput_req_s: of(&|s| s.slo_goodput_req_s),
        token_goodput_tok_s: of(&|s| Some(s.token_goodput_tok_s)),
        acceptance_rate: of(&|s| s.acceptance_rate),
        mean_acceptance_length: of(&|s| s.mean_acceptance_length),
        draft_len: of(&|s| Some(s.drafted_per_step)),
        verify_len: of(&|s| Some(s.verified_per_step)),
        batch_size: of(&|s| Some(s.mean_batch_size)),
        preempted: own.iter().map(|c| c.summary.preemptions).sum(),
        rejected: own.iter().map(|c| c.summary.rejected).sum(),
    }
}

fn fell_behind(cells: &[&Cell]) -> Option<FellBehind> {
    let behind: Vec<(u64, Overload)> = cells.iter().filter_map(|c| Some((c.key().seed, c.summary.overload?))).collect();
    let mean = |of: fn(&Overload) -> f64| behind.iter().map(|(_, o)| of(o)).sum::<f64>() / behind.len() as f64;
    (!behind.is_empty()).then(|| FellBehind {
        seeds: behind.iter().map(|b| b.0).collect(),
        offered_req_s: mean(|o| o.offered_req_s),
        completed_req_s: mean(|o| o.completed_req_s),
        waiting_at_end: mean(|o| o.waiting[2] as f64),
    })
}

/// The interval over seeds; absent when any seed lacks the value, because a mean over fewer seeds is another number.
fn over_seeds(values: impl Iterator<Item = Option<f64>>) -> Option<Interval> {
    values.collect::<Option<Vec<f64>>>().and_then(|v| Interval::of(&v))
}

/// The same of ratios of two runs of a seed.
fn ratio_over_seeds(values: impl Iterator<Item = Option<f64>>) -> Option<RatioInterval> {
    values.collect::<Option<Vec<f64>>>().and_then(|v| RatioInterval::of(&v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_seed_leaves_no_mean() {
        assert_eq!(over_seeds([Some(1.0), Some(3.0)].into_iter()).map(|i| i.mean), Some(2.0));
        assert_eq!(over_seeds([Some(1.0), None].into_iter()), None);
    }
}
