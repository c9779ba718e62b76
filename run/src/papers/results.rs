//! Looks up the numbers of a finished comparison that a paper's claims name. Defines the type of a measured value.

use crate::plan::{Plan, choice, place, variants};
use crate::spec::document::Choice;
use crate::spec::paper::{At, Keep, Metric};
use foretoken_report::Cell;
use foretoken_sim::Summary;
use foretoken_sim::metrics::Quantiles;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The value of a paper's claim, measured in a run or stated in a document: a range of numbers, or names of policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// A range of numbers, as (low end, high end); a single number has equal ends. An absent end is open. In a measured
    /// range, an open end lies beyond the swept values. In a stated range, an open end means a direction, such as "at
    /// least".
    Numbers(Option<f64>, Option<f64>),
    /// Labels of policies. A measured value has one label for each variant.
    Policies(Vec<String>),
    /// The claim's quantity does not exist in this run.
    Nothing,
}

impl Measured {
    /// The range from the least to the greatest of `values`; only the least or only the greatest value if `keep` says
    /// so.
    pub fn of(values: Vec<f64>, keep: Keep) -> Measured {
        let least = values.iter().copied().reduce(f64::min);
        let most = values.iter().copied().reduce(f64::max);
        match (least, most, keep) {
            (Some(least), Some(most), Keep::Range) => Measured::Numbers(Some(least), Some(most)),
            (Some(x), _, Keep::Least) | (_, Some(x), Keep::Most) => Measured::one(x),
            _ => Measured::Nothing,
        }
    }

    /// The smallest range that covers all `ranges`. Its low (high) end is open if one of the ranges has an open low
    /// (high) end. `Nothing` if `ranges` is empty or if one of its values is not a range of numbers.
    pub fn covering(ranges: Vec<Measured>) -> Measured {
        let covering = |a: Measured, b: Measured| match (a, b) {
            (Measured::Numbers(low, high), Measured::Numbers(from, to)) => {
                Measured::Numbers(low.zip(from).map(|(a, b)| a.min(b)), high.zip(to).map(|(a, b)| a.max(b)))
            }
            _ => Measured::Nothing,
        };
        ranges.into_iter().reduce(covering).unwrap_or(Measured::Nothing)
    }

    /// A measured value that is the single number `x`: a range with both ends at `x`.
    pub fn one(x: f64) -> Measured {
        Measured::Numbers(Some(x), Some(x))
    }
}

/// The finished runs of an experiment, from which the claims of a paper are measured.
#[derive(Clone, Copy)]
pub struct Results<'a> {
    pub plan: &'a Plan,
    /// The finished runs of the experiment, in the order of the plan: variants vary slowest, then seeds, then policies.
    pub cells: &'a [Cell],
}

impl<'a> Results<'a> {
    /// The runs of a policy in variant number `variant`, one per seed.
    pub fn cells_of(&self, variant: usize, policy: &str) -> impl Iterator<Item = &'a Cell> + use<'a> {
        let (policies, seeds) = (self.plan.policies.len(), self.plan.seeds.len());
        let at = self.plan.policies.iter().position(|p| p.spec.label() == policy);
        let size = seeds * policies;
        let of_variant = &self.cells[variant * size..(variant + 1) * size];
        of_variant.iter().skip(at.unwrap_or(size)).step_by(policies)
    }

    /// The mean over seeds of a policy's metric; `None` if the metric is missing with some seed.
    pub fn mean(&self, metric: Metric, variant: usize, policy: &str) -> Option<f64> {
        let values: Vec<f64> = self.cells_of(variant, policy).map(|c| of(metric, c)).collect::<Option<_>>()?;
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The policy of `among` that is best by a metric: (its label, its mean over seeds). `None` if a policy lacks the
    /// metric.
    pub fn best<'p>(&self, metric: Metric, variant: usize, among: &'p [String]) -> Option<(&'p String, f64)> {
        let each = among.iter().map(|p| self.mean(metric, variant, p).map(|x| (p, x)));
        let each: Vec<(&String, f64)> = each.collect::<Option<_>>()?;
        let better = |a: f64, b: f64| if metric.less_is_better() { a < b } else { a > b };
        each.into_iter().reduce(|a, b| if better(b.1, a.1) { b } else { a })
    }

    /// The points (x, `f(variant)`) for the values of the swept setting `path`, ascending by x. x is the swept number,
    /// or the index of a swept name. There is one list of points for each combination of the other swept values. `None`
    /// if `f` gives no value for some variant.
    pub fn along(&self, path: &str, at: &At, f: impl Fn(usize) -> Option<f64>) -> Option<Vec<Vec<(f64, f64)>>> {
        let mut lists: BTreeMap<Vec<&str>, Vec<(f64, f64)>> = BTreeMap::new();
        for v in variants(self.plan, at) {
            let variant = &self.plan.variants[v];
            let others = variant.choices.iter().filter(|c| c.path != path).map(|c| c.value.as_str()).collect();
            let number = |c: &Choice| c.number.unwrap_or_else(|| place(self.plan, path, c) as f64);
            let point = choice(variant, path).map(number).zip(f(v))?;
            lists.entry(others).or_default().push(point);
        }
        lists.values_mut().for_each(|points| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        Some(lists.into_values().collect())
    }
}

/// The value of a metric, such as mean E2E, in the results of one run; `None` if the run does not have the metric.
fn of(metric: Metric, cell: &Cell) -> Option<f64> {
    let s: &Summary = &cell.summary;
    let mean = |q: Option<Quantiles>| q.map(|q| q.mean);
    match metric {
        Metric::Speedup => cell.speedup,
        Metric::E2eMeanS => mean(s.e2e),
        Metric::TokenGoodput => Some(s.token_goodput_tok_s),
        Metric::MakespanS => Some(s.duration_s),
        Metric::TtftMeanS => mean(s.ttft),
        Metric::TtftP99S => s.ttft.map(|q| q.p99),
        Metric::TpotMeanS => mean(s.tpot),
        Metric::TpotP99S => s.tpot.map(|q| q.p99),
        Metric::ItlP50S => s.itl.map(|q| q.p50),
        Metric::ItlP99S => s.itl.map(|q| q.p99),
        Metric::SloAttainment => s.slo_attainment,
        Metric::DraftLength => Some(s.drafted_per_step),
        Metric::VerifyLength => Some(s.verified_per_step),
        Metric::AcceptedLength => Some(s.accepted_per_step),
        Metric::AcceptanceLength => s.mean_acceptance_length,
        Metric::DraftedAcceptance => s.acceptance_rate,
        Metric::VerifiedAcceptance => (s.verified > 0).then(|| s.accepted as f64 / s.verified as f64),
        Metric::BatchSize => Some(s.mean_batch_size),
        Metric::BatchedPerRequest => Some(s.verified_per_step + 1.0),
    }
}
