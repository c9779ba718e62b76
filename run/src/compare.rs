//! Compares policies. Each policy's numbers are paired, seed by seed, with the numbers of the autoregressive baseline
//! and of the oracle, then averaged over seeds with 95 % intervals (Student t, docs/model.md 14). This module computes
//! from summaries of runs; it runs nothing.

use crate::arena::Scenario;
use crate::host_band::HostBand;
use crate::inert::Inert;
use crate::offered::Offered;
use crate::papers::PaperReport;
use crate::plan::{Plan, Variant};
use crate::questions::Answer;
use crate::scaled::ScaledResult;
use crate::spec::document::Choice;
use crate::spec::problem::{Problem, Result};
use foretoken_report::{Cell, Mark, Why};
use foretoken_sim::metrics::{Interval, Overload, Quantiles, Range, RatioInterval, Slo};
use foretoken_sim::{DraftKv, Summary};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Name of the file in a results folder with the comparison as JSON.
pub const REPORT_JSON: &str = "report.json";

/// The comparison of all policies of an experiment, with all numbers that the table and `--format json` show. It is
/// written to [`REPORT_JSON`] and read back. A field that an older version did not write gets its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Comparison {
    /// The part of a live or observed run that the numbers cover; absent if they cover the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// The main result in one paragraph, as on the HTML page.
    pub headline: String,
    /// The label of the policy that the headline names first; absent if no policy is compared with plain decoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advised: Option<String>,
    /// A line that says for which models, hardware, load and bounds the results hold.
    pub scope: String,
    pub name: String,
    /// Where the numbers come from: simulated, measured on a device, or observed on a server.
    pub source: String,
    pub version: String,
    /// The seeds; each policy has one run per seed.
    pub seeds: Vec<u64>,
    /// The results of all policies, one entry for each combination of swept values.
    pub variants: Vec<VariantResult>,
    /// Warnings about the experiment's inputs, policies and engine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How the host time (scheduler, Python, kernel launches) that was measured on a real server would change the
    /// speedup of the fastest policy. Absent if the run counts host time, or if the pass times were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_band: Option<HostBand>,
    /// Settings that changed no number of the run; absent if none was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Inert>,
    /// The claims of a paper, each with this run's value; absent for an experiment without claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperReport>,
    /// The answer to the public question that the experiment studies; absent for an experiment without a question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<Answer>,
    /// The numbers of each policy and seed for the arena's ranking of policies; absent if the experiment is no scenario
    /// of the arena.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena: Option<Scenario>,
}

/// The results of all policies under one combination of swept values.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VariantResult {
    /// The swept settings, each with its value in the combination to which these results belong.
    pub sweep: Vec<Choice>,
    /// Number of requests that arrived in one policy's run, summed over seeds.
    pub requests: u64,
    pub requests_by_seed: Vec<u64>,
    /// The load of plain decoding's run, mean over seeds; absent if all requests came at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Offered>,
    /// The latency bounds (SLO) of the requests, one entry per seed.
    pub slo: Vec<Slo>,
    /// The autoregressive run whose P90 TPOT times a factor is the TPOT bound; absent if the bound does not come from
    /// an autoregressive run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo_scaled_from: Option<ScaledFrom>,
    /// Number of KV blocks that requests can use without a drafter.
    pub kv_blocks_plain: u32,
    /// Number of KV blocks that requests can use with a drafter; absent if it equals `kv_blocks_plain`.
    pub kv_blocks_drafting: Option<u32>,
    /// Number of blocks of the KV pool that only the draft model uses; absent if there is no such pool.
    pub kv_blocks_draft_pool: Option<u32>,
    /// One result per policy, in the order in which the plan lists the policies.
    pub policies: Vec<PolicyResult>,
}

/// The autoregressive run whose P90 TPOT times a factor is the TPOT bound.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScaledFrom {
    /// The swept values of the autoregressive run whose P90 TPOT times a factor is the TPOT bound.
    pub sweep: Vec<Choice>,
    /// The factor of the TPOT bound: the bound / the 90th percentile of the TPOT in the autoregressive run.
    pub scale: f64,
    /// Seeds with which the autoregressive run was overloaded. With these seeds, the TPOT bound that comes from this
    /// run depends on the length of the queue.
    pub overloaded_seeds: Vec<u64>,
}

/// The overload of a policy: with some seeds its queue grew as long as requests arrived. The numbers are means over
/// these seeds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FellBehind {
    /// The seeds with which the policy was overloaded.
    pub seeds: Vec<u64>,
    /// Requests per second that arrived, mean over the seeds with which the policy was overloaded.
    pub offered_req_s: f64,
    /// Requests per second that finished until the last arrival, mean over the seeds with which the policy was
    /// overloaded.
    pub completed_req_s: f64,
    /// Number of requests that waited when the last request arrived, mean over the seeds with which the policy was
    /// overloaded.
    pub waiting_at_end: f64,
}

/// A policy's numbers, each as mean over seeds and 95 % interval. A number is absent if it does not exist with some
/// seed (for example, no token was drafted or no bound is set).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyResult {
    /// The policy's label in tables and figures.
    pub policy: String,
    /// Was the policy added as the autoregressive baseline, because the experiment does not list it?
    pub implied: bool,
    /// Does the policy see the hidden truth (which draft tokens will be accepted, or the true pass times)? No server
    /// can.
    pub sees_hidden_truth: bool,
    /// Does the policy stop drafting in steps that it expects to miss the TPOT bound? If so, the legend below the table
    /// says this.
    #[serde(skip)]
    pub stops_for_slo: bool,
    /// The overload of the policy; its latencies depend on the length of the run. Absent if the policy was not
    /// overloaded with any seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overload: Option<FellBehind>,
    /// The caveats of the policy's numbers, such as an overload or an attainment by definition.
    pub marks: Vec<Mark>,
    /// Mean end-to-end latency of finished requests, seconds.
    pub e2e_mean_s: Option<Interval>,
    /// Mean E2E of autoregressive decoding / mean E2E of this policy, with the same seed.
    pub speedup: Option<RatioInterval>,
    /// The difference in E2E to autoregressive decoding, split into the parts of a request's latency, such as waiting
    /// or draft passes. Absent for autoregressive decoding itself, and if the runs did not record the parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// Mean E2E of this policy / mean E2E of the oracle `oracle-goodput` with the same seed, − 1. The oracle knows
    /// which draft tokens are right. Absent if the experiment does not list `oracle-goodput`.
    pub regret_to_oracle_goodput: Option<RatioInterval>,
    /// Mean time to first token of requests, seconds.
    pub ttft_mean_s: Option<Interval>,
    /// Median over requests of the time per output token, seconds.
    pub tpot_p50_s: Option<Interval>,
    /// 90th percentile over requests of the time per output token, seconds.
    pub tpot_p90_s: Option<Interval>,
    /// 99th percentile over requests of the time per output token, seconds.
    pub tpot_p99_s: Option<Interval>,
    /// Share of requests (0 to 1) that met every latency bound of the experiment's `[slo]` table.
    pub slo_attainment: Option<Interval>,
    /// Requests per second that finished and met every latency bound of the experiment's `[slo]` table.
    pub slo_goodput_req_s: Option<Interval>,
    /// Output tokens of finished requests per second.
    pub token_goodput_tok_s: Option<Interval>,
    /// Accepted draft tokens / drafted tokens.
    pub acceptance_rate: Option<Interval>,
    /// 1 + accepted draft tokens / number of rounds.
    pub mean_acceptance_length: Option<Interval>,
    /// Mean number of drafted tokens of a decoding request in a step.
    pub draft_len: Option<Interval>,
    /// Mean number of verified draft tokens of a decoding request in a step.
    pub verify_len: Option<Interval>,
    /// Mean number of decoding requests in a step, weighted by the step's time.
    pub batch_size: Option<Interval>,
    /// Largest share (0 to 1) of the KV blocks that requests held at any time; in a fleet, in any one replica.
    pub kv_use_peak: Option<Interval>,
    /// For a fleet in which a scaling rule starts and stops replicas: what its replicas cost, such as GPU-hours. Absent
    /// for other fleets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaled: Option<ScaledResult>,
    /// Number of preemptions (a request loses its KV and is computed again), summed over seeds.
    pub preempted: u64,
    /// Number of requests that the engine rejected because they could never fit, summed over seeds.
    pub rejected: u64,
}

impl Comparison {
    /// The policy to mark in the table of variant number `variant`: the advised one, or, of several settings, the
    /// fastest that a server can run. `None` without such a policy.
    pub fn best_at(&self, variant: usize) -> Option<&str> {
        if self.variants.len() == 1 && variant == 0 {
            return self.advised.as_deref();
        }
        let able = self.variants.get(variant)?.policies.iter().filter(|p| !p.sees_hidden_truth);
        let timed = able.filter_map(|p| Some((p, p.e2e_mean_s?.mean)));
        Some(&timed.min_by(|a, b| a.1.total_cmp(&b.1))?.0.policy)
    }

    pub fn kept_in(folder: &Path) -> Result<Comparison> {
        let path = folder.join(REPORT_JSON);
        let text = fs_err::read_to_string(&path).map_err(|e| Problem::failed(e.to_string()))?;
        serde_json::from_str(&text)
            .map_err(|e| Problem::failed(format!("{}: cannot be read back: {e}", path.display())))
    }

    /// Compares the policies by the finished runs (`cells`) of a plan. Leaves the headline, the warnings and all
    /// optional fields empty; the caller fills them in. `usable_blocks` has the number of KV blocks that requests could
    /// use, for each run. `cells` and `usable_blocks` have one entry per run, in the order of the plan.
    pub fn of(plan: &Plan, cells: &[Cell], usable_blocks: &[u32]) -> Comparison {
        let size = plan.seeds.len() * plan.policies.len();
        let variants = plan.variants.iter().zip(cells.chunks(size)).zip(usable_blocks.chunks(size));
        Comparison {
            partial: None,
            headline: String::new(),
            advised: None,
            scope: crate::scope::of(plan),
            name: plan.name.clone(),
            source: plan.source().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seeds: plan.seeds.clone(),
            variants: variants
                .enumerate()
                .map(|(at, ((v, cells), kv))| variant_result(plan, at, v, cells, kv))
                .collect(),
            warnings: Vec::new(),
            host_band: None,
            settings: None,
            paper: None,
            question: None,
            arena: None,
        }
    }
}

fn variant_result(plan: &Plan, at: usize, variant: &Variant, cells: &[Cell], kv: &[u32]) -> VariantResult {
    let n = plan.policies.len();
    let baselines: Vec<&Cell> = cells.iter().skip(plan.baseline).step_by(n).collect();
    let oracle = plan.policies.iter().position(|p| p.spec.name() == "oracle-goodput");
    VariantResult {
        sweep: variant.choices.clone(),
        requests: baselines.iter().map(|c| c.summary.requests).sum(),
        load: None,
        requests_by_seed: baselines.iter().map(|c| c.summary.requests).collect(),
        slo: baselines.iter().map(|c| c.summary.slo).collect(),
        slo_scaled_from: plan.bound_from(at).map(|from| ScaledFrom {
            sweep: plan.variants[from].choices.clone(),
            scale: variant.experiment.slo.adaspec_scale.unwrap_or(1.0),
            overloaded_seeds: baselines.iter().filter(|c| c.bound_of_overload).map(|c| c.key().seed).collect(),
        }),
        kv_blocks_plain: kv[plan.baseline],
        kv_blocks_drafting: kv.iter().copied().find(|&blocks| blocks != kv[plan.baseline]),
        kv_blocks_draft_pool: match variant.experiment.engine.draft_kv {
            DraftKv::Separate { blocks } => Some(blocks),
            _ => None,
        },
        policies: (0..n).map(|p| policy(plan, p, oracle, cells)).collect(),
    }
}

fn policy(plan: &Plan, at: usize, oracle: Option<usize>, cells: &[Cell]) -> PolicyResult {
    let n = plan.policies.len();
    let own: Vec<&Cell> = cells.iter().skip(at).step_by(n).collect();
    let baselines: Vec<&Cell> = cells.iter().skip(plan.baseline).step_by(n).collect();
    let mean_of = |range, f: &dyn Fn(&Summary) -> Option<f64>| over_seeds(range, own.iter().map(|c| f(&c.summary)));
    let amount = |f: &dyn Fn(&Summary) -> Option<f64>| mean_of(Range::FromZero, f);
    let quantile =
        |metric: fn(&Summary) -> Option<Quantiles>, part: fn(Quantiles) -> f64| amount(&|s| metric(s).map(part));
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
        marks: Mark::of(&own),
        e2e_mean_s: quantile(|s| s.e2e, |q| q.mean),
        speedup: ratio_over_seeds(own.iter().map(|c| c.speedup)),
        why: (at != plan.baseline).then(|| Why::of(&own, &baselines)).flatten(),
        regret_to_oracle_goodput: regret,
        ttft_mean_s: quantile(|s| s.ttft, |q| q.mean),
        tpot_p50_s: quantile(|s| s.tpot, |q| q.p50),
        tpot_p90_s: quantile(|s| s.tpot, |q| q.p90),
        tpot_p99_s: quantile(|s| s.tpot, |q| q.p99),
        slo_attainment: mean_of(Range::Share, &|s| s.slo_attainment),
        slo_goodput_req_s: amount(&|s| s.slo_goodput_req_s),
        token_goodput_tok_s: amount(&|s| Some(s.token_goodput_tok_s)),
        acceptance_rate: mean_of(Range::Share, &|s| s.acceptance_rate),
        mean_acceptance_length: mean_of(Range::FromOne, &|s| s.mean_acceptance_length),
        draft_len: amount(&|s| Some(s.drafted_per_step)),
        verify_len: amount(&|s| Some(s.verified_per_step)),
        batch_size: amount(&|s| Some(s.mean_batch_size)),
        kv_use_peak: mean_of(Range::Share, &|s| Some(s.kv_use_peak)),
        scaled: None,
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

/// The mean of `values` (one value per seed) of a quantity with this range, and its 95 % interval. `None` if the value
/// is missing with some seed, because means over different seeds cannot be compared.
fn over_seeds(range: Range, values: impl Iterator<Item = Option<f64>>) -> Option<Interval> {
    values.collect::<Option<Vec<f64>>>().and_then(|v| Interval::within(range, &v))
}

/// The mean of `values` and its 95 % interval. Each value is a ratio of two runs with the same seed. `None` if the
/// ratio is missing with some seed.
fn ratio_over_seeds(values: impl Iterator<Item = Option<f64>>) -> Option<RatioInterval> {
    values.collect::<Option<Vec<f64>>>().and_then(|v| RatioInterval::of(&v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_mean_if_a_seed_lacks_the_value() {
        assert_eq!(over_seeds(Range::FromZero, [Some(1.0), Some(3.0)].into_iter()).map(|i| i.mean), Some(2.0));
        assert_eq!(over_seeds(Range::FromZero, [Some(1.0), None].into_iter()), None);
    }
}
