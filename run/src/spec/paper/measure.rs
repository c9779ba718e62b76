//! The quantities that a claim may be about. There is one type for each kind of quantity. A quantity is computed over
//! the variants that `at` picks. The crate `foretoken-run` computes it.

use super::Metric;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Values of swept settings, by path. They pick the variants whose runs count for a claim. If a swept value is a table,
/// its index in the sweep, from 0, stands for it.
pub type At = BTreeMap<String, toml::Value>;

/// The quantity that is measured for a claim of a paper or a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Measure {
    /// A metric (a number of a run, such as the speedup) of one policy.
    Value(Value),
    /// How much better a policy is in a metric than the best of some other policies, as a share: 0.1 is 10 % better.
    Gain(Gain),
    /// How much larger a policy's metric is than another policy's, as a share: 0.1 is 10 % larger. Larger is positive,
    /// also for times.
    Increase(Increase),
    /// Which of some policies has the best metric (a number of a run, such as the speedup).
    Best(Best),
    /// The value of a swept number from which on a policy is no longer better than another policy.
    Crossing(Crossing),
    /// The least value of a swept number from which on a policy's metric keeps a bound.
    Keeps(Keeps),
    /// How a policy's metric changes along a swept setting: its value at the largest swept number (or the last name in
    /// the sweep) minus its value at the smallest (or the first).
    Change(Change),
    /// Draft lengths of a policy in windows of time in which the batch size is in a range.
    Windows(Windows),
    /// For a fixed draft length: the number of accepted draft tokens that the draft model's confidences (its
    /// probabilities) predict, divided by the actual number, minus 1.
    Estimate(Estimate),
    /// The draft length with the best goodput under the linear cost model that policies assume (their belief).
    BeliefLength(BeliefLength),
    /// The number of output tokens that a step (draft passes and a verify pass) must give a request to reach a
    /// published throughput. The step takes its true pass times.
    ImpliedLength(ImpliedLength),
}

impl Measure {
    /// True if the quantity is a share, which is shown in percent.
    pub fn is_share(&self) -> bool {
        match self {
            Measure::Gain(_) | Measure::Increase(_) | Measure::Estimate(_) => true,
            Measure::Change(m) => m.relative,
            _ => false,
        }
    }

    /// True if the value of the quantity is the name of a policy and not a number.
    pub fn names_a_policy(&self) -> bool {
        matches!(self, Measure::Best(_))
    }
}

/// Settings of `value`: a metric of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The metric (a number of a policy's run, such as its speedup) whose value is taken.
    pub metric: Metric,
    /// Label of the policy whose metric is taken.
    pub policy: String,
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
    /// What is taken if runs with several combinations of swept values count: the range of their values, or only the
    /// least or the greatest value. Default: the range.
    #[serde(default, skip_serializing_if = "is_range")]
    pub keep: Keep,
}

/// Settings of `gain`: how far a policy is ahead of others in a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// The metric (a number of a policy's run, such as its speedup) in which the policies are compared.
    pub metric: Metric,
    /// Label of the policy whose lead over the policies in `over` is measured.
    pub policy: String,
    /// Labels of the policies with which `policy` is compared. For each combination of swept values, the best of them
    /// counts.
    pub over: Vec<String>,
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
    /// What is taken if runs with several combinations of swept values count: the range of their values, or only the
    /// least or the greatest value. Default: the range.
    #[serde(default, skip_serializing_if = "is_range")]
    pub keep: Keep,
}

/// Settings of `increase`: how much larger a policy's metric is than another policy's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Increase {
    /// The metric (a number of a policy's run, such as its speedup) in which the two policies are compared.
    pub metric: Metric,
    /// Label of the policy whose metric is divided by the metric of `over`.
    pub policy: String,
    /// Label of the policy with which `policy` is compared.
    pub over: String,
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
    /// What is taken if runs with several combinations of swept values count: the range of their values, or only the
    /// least or the greatest value. Default: the range.
    #[serde(default, skip_serializing_if = "is_range")]
    pub keep: Keep,
}

/// Settings of `best`: the policy with the best metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The metric (a number of a policy's run, such as its speedup) in which the policies are compared.
    pub metric: Metric,
    /// Labels of the policies to choose from.
    pub among: Vec<String>,
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Settings of `crossing`: the value of a swept number from which on a policy is no longer better than another policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Crossing {
    /// The metric (a number of a policy's run, such as its speedup) in which the two policies are compared.
    pub metric: Metric,
    /// Label of the policy that is compared with `over`. On one side of the crossing `policy` is better, on the other
    /// side it is not.
    pub policy: String,
    /// Label of the policy with which `policy` is compared.
    pub over: String,
    /// Path of the swept number along which the crossing is searched. Between two swept values the lead is interpolated
    /// linearly.
    pub along: String,
    /// Whether `policy` falls behind `over` or gets ahead of it as the swept number grows. Default: it falls behind.
    #[serde(default, skip_serializing_if = "is_behind")]
    pub turns: Turns,
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Settings of `keeps`: the least value of a swept number from which on a policy's metric keeps a bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keeps {
    /// The metric (a number of a policy's run, such as its mean TPOT) that must keep a bound.
    pub metric: Metric,
    /// Label of the policy whose metric has a bound.
    pub policy: String,
    /// The bound, in the metric's unit, above 0. It is an upper bound for metrics of which less is better (times), else
    /// a lower bound.
    pub bound: f64,
    /// Path of the swept number. The answer is one of its swept values.
    pub along: String,
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Settings of `change`: a policy's metric at the largest swept number (or the last name in the sweep) minus the metric
/// at the smallest (or the first).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The metric (a number of a policy's run, such as its speedup) whose value is taken.
    pub metric: Metric,
    /// Label of the policy whose metric is taken.
    pub policy: String,
    /// Path of the swept setting. Numbers are taken in rising order, names in the order of the sweep.
    pub along: String,
    /// Whether the change is divided by the metric at the first value. Default: false.
    #[serde(default)]
    pub relative: bool,
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// What is taken of a claim's values at several combinations of swept values: their range, or only the least or the
/// greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// The range from the least to the greatest of the values at several combinations of swept values.
    #[default]
    Range,
    /// The least of the values at several combinations of swept values.
    Least,
    /// The greatest of the values at several combinations of swept values.
    Most,
}

/// Which way the policy of a `crossing` crosses the other policy as the swept number grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Turns {
    /// From ahead to behind: the crossing is the first value at which the policy is no longer ahead.
    #[default]
    Behind,
    /// From behind to ahead: the crossing is the value above which the policy is always ahead.
    Ahead,
}

/// Settings of `windows`. The run is cut into windows of `seconds`. In each window the mean draft length (tokens of a
/// request in a step) is taken, and the result is the range from the 10th to the 90th percentile of these means. Only
/// windows with a mean batch size in [`batch[0]`, `batch[1]`) count. The windows of all seeds count together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    /// Label of the policy whose draft lengths are taken.
    pub policy: String,
    /// Length of a window of the run's time, seconds.
    pub seconds: f64,
    /// Which windows count: the least and the greatest mean batch size, in decode requests. The greatest itself does
    /// not count.
    pub batch: [f64; 2],
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Settings of `estimate`: every output is decoded with `length` draft tokens in each step. The sum of the draft
/// tokens' cumulative confidences is the estimated number of accepted draft tokens. The quantity is this number over
/// the actual number, minus 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Number of draft tokens of a request in a step, at least 1.
    pub length: u32,
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Settings of `belief-length`: the draft length that the policy `smartspec` chooses for `batch` requests of `context`
/// tokens each, at a known acceptance. It is the length with the most expected tokens a second under the linear cost
/// model that policies assume (SmartSpec, Eq. 3, 7 and 8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BeliefLength {
    /// Probability, [0, 1], that a draft token is accepted if all draft tokens before it in the same step are.
    pub acceptance: f64,
    /// Number of decode requests in the batch.
    pub batch: u32,
    /// Tokens of context (in the KV cache) of each request.
    pub context: u32,
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Settings of `implied-length`: the number of output tokens that a round (draft passes and a verify pass) must yield
/// to reach the throughput `tokens_per_s` of a single request. It is the throughput times the time of a round by the
/// true pass times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImpliedLength {
    /// The published throughput, tokens a second.
    pub tokens_per_s: f64,
    /// Number of draft passes before each verify pass.
    pub draft_passes: u32,
    /// Tokens of each draft pass: 1 for a chain of draft tokens; for a tree, the tokens of one level of the tree.
    pub draft_width: u32,
    /// Tokens of the verify pass: the draft tokens and the request's newest token (the root of a tree).
    pub verify_tokens: u32,
    /// Tokens of context (in the KV cache) of the request.
    pub context: u32,
    /// Which runs count: values of swept settings, by path, such as `{ "engine.max_num_seqs" = 8 }`. If a swept value
    /// is a table, its index in the sweep, from 0, stands for it. Empty: all runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

fn is_range(keep: &Keep) -> bool {
    *keep == Keep::Range
}

fn is_behind(turns: &Turns) -> bool {
    *turns == Turns::Behind
}
