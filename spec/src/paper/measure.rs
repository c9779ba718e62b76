//! The quantities that a claim may be about. There are a few general kinds of quantity. Each is computed over the
//! variants (combinations of swept values) that `at` picks. The crate `foretoken-run` computes them.

use super::Metric;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Values of swept settings by path, which pick variants. A swept table is picked by its index in the sweep, from 0.
pub type At = BTreeMap<String, toml::Value>;

/// The quantity that a claim measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Measure {
    /// A metric of a policy.
    Value(Value),
    /// How far a policy is ahead of others in a metric, relative to the best of the others.
    Gain(Gain),
    /// How much larger a policy's metric is than another policy's, as a share of the other's, even if less is better.
    Increase(Increase),
    /// Which policy has the best metric.
    Best(Best),
    /// The swept value from which on a policy no longer beats another.
    Crossing(Crossing),
    /// The least swept number from which on a policy's metric keeps a bound.
    Keeps(Keeps),
    /// A metric at the last swept value minus the metric at the first.
    Change(Change),
    /// Draft lengths in windows of time whose batch size is in a range.
    Windows(Windows),
    /// Accepted tokens as confidences estimate them over the actual ones, minus 1, for a fixed draft length.
    Estimate(Estimate),
    /// The draft length with the best goodput under the linear cost model that policies assume.
    BeliefLength(BeliefLength),
    /// Tokens a round that a throughput implies under the true costs.
    ImpliedLength(ImpliedLength),
}

impl Measure {
    /// Is the quantity a share, to be shown in percent?
    pub fn is_share(&self) -> bool {
        match self {
            Measure::Gain(_) | Measure::Increase(_) | Measure::Estimate(_) => true,
            Measure::Change(m) => m.relative,
            _ => false,
        }
    }

    /// Is the value of the quantity the name of a policy and not a number?
    pub fn names_a_policy(&self) -> bool {
        matches!(self, Measure::Best(_))
    }
}

/// Settings of `value`: a metric of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The metric whose value is taken.
    pub metric: Metric,
    /// Label of the policy.
    pub policy: String,
    /// Swept values that pick variants, by path; empty: all variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
    /// How the values of several variants are reduced: to a range, or to the least or the greatest.
    #[serde(default, skip_serializing_if = "is_range")]
    pub keep: Keep,
}

/// Settings of `gain`: how far a policy is ahead of others in a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// The metric that is compared.
    pub metric: Metric,
    /// Label of the policy.
    pub policy: String,
    /// Labels of the other policies: the best of them counts in each variant.
    pub over: Vec<String>,
    /// Swept values that pick variants, by path; empty: all variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
    /// How the values of several variants are reduced: to a range, or to the least or the greatest.
    #[serde(default, skip_serializing_if = "is_range")]
    pub keep: Keep,
}

/// Settings of `increase`: how much larger a policy's metric is than another policy's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Increase {
    /// The metric that is compared.
    pub metric: Metric,
    /// Label of the policy.
    pub policy: String,
    /// Label of the other policy.
    pub over: String,
    /// Swept values that pick variants, by path; empty: all variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
    /// How the values of several variants are reduced: to a range, or to the least or the greatest.
    #[serde(default, skip_serializing_if = "is_range")]
    pub keep: Keep,
}

/// Settings of `best`: the policy with the best metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The metric that is compared.
    pub metric: Metric,
    /// Labels of the policies to choose from.
    pub among: Vec<String>,
    /// Swept values that pick variants, by path; empty: all variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Settings of `crossing`: the swept value from which on a policy no longer beats another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Crossing {
    /// The metric that is compared.
    pub metric: Metric,
    /// Label of the policy.
    pub policy: String,
    /// Label of the other policy.
    pub over: String,
    /// Path of the swept number.
    pub along: String,
    /// Does the policy fall behind as the number grows, or get ahead?
    #[serde(default, skip_serializing_if = "is_behind")]
    pub turns: Turns,
    /// Swept values that pick variants, by path; empty: all variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Settings of `keeps`: the least swept number from which on a policy's metric keeps a bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keeps {
    /// The metric that has a bound.
    pub metric: Metric,
    /// Label of the policy.
    pub policy: String,
    /// The bound, in the metric's unit: the most, if less is better, else the least.
    pub bound: f64,
    /// Path of the swept number.
    pub along: String,
    /// Swept values that pick variants, by path; empty: all variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Settings of `change`: a metric at the last swept value minus the metric at the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The metric whose value is taken.
    pub metric: Metric,
    /// Label of the policy.
    pub policy: String,
    /// Path of the swept setting: numbers in their order, names in the order of the sweep.
    pub along: String,
    /// Is the change divided by the first value?
    #[serde(default)]
    pub relative: bool,
    /// Swept values that pick variants, by path; empty: all variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// How the values of several variants are reduced: to a range, or to the least or the greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// The range from the least to the greatest.
    #[default]
    Range,
    /// The least value.
    Least,
    /// The greatest value.
    Most,
}

/// Which way a policy crosses another as the swept number grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Turns {
    /// From ahead to behind: the first value at which it is no longer ahead.
    #[default]
    Behind,
    /// From behind to ahead: the value above which it is always ahead.
    Ahead,
}

/// The 10th to the 90th percentile of a policy's mean draft length in windows of `seconds`. Only windows with a mean
/// batch size in [`batch[0]`, `batch[1]`) count; all seeds are pooled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    /// Label of the policy.
    pub policy: String,
    /// Length of a window, seconds.
    pub seconds: f64,
    /// Range of mean batch sizes.
    pub batch: [f64; 2],
    /// Swept values that pick variants, by path; empty: all variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// The sum of cumulative confidences (the estimated number of accepted drafts) over the number of accepted drafts,
/// minus 1, in rounds of `length` drafts on every output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Number of draft tokens of a round.
    pub length: u32,
    /// Swept values that pick variants, by path; empty: all variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// The draft length that `smartspec` chooses for `batch` requests of `context` tokens each at a known acceptance: the
/// one with the most expected tokens a second under the linear cost model that policies assume (SmartSpec, Eq. 3, 7
/// and 8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BeliefLength {
    /// Probability that a draft token is accepted when those before it were.
    pub acceptance: f64,
    /// Number of decode requests in the batch.
    pub batch: u32,
    /// Tokens of each request in KV.
    pub context: u32,
    /// Swept values that pick variants, by path; empty: all variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Tokens a round that the throughput `tokens_per_s` of one request implies: the throughput times the time of a round
/// under the true costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImpliedLength {
    /// The published throughput, tokens a second.
    pub tokens_per_s: f64,
    /// Number of draft passes of a round.
    pub draft_passes: u32,
    /// Tokens in each draft pass (a tree's frontier).
    pub draft_width: u32,
    /// Tokens in the verify pass, the root included.
    pub verify_tokens: u32,
    /// Tokens of the request in KV.
    pub context: u32,
    /// Swept values that pick variants, by path; empty: all variants.
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
