//! How a claim's quantity is found in a finished comparison: a few general kinds, each over the variants that `at` picks.
//!
//! Everything is computed from the cells' means over seeds, but for what needs no run at all (`cost.rs`) or only the hidden
//! truth (`replay.rs`).

use super::{cost, metric, replay, windows};
use crate::plan::{Plan, Variant};
use foretoken_report::Cell;
use foretoken_spec::document::Choice;
use foretoken_spec::paper::{At, Keep, Measure, Metric, Turns, number};
use foretoken_spec::problem::Result;
use serde::{Deserialize, Serialize};

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// From one number to another (the same for a single one); an absent end is beyond what was swept.
    Numbers(Option<f64>, Option<f64>),
    /// The policies, one a variant.
    Policies(Vec<String>),
    /// The quantity does not exist in this run.
    Nothing,
}

impl Measured {
    /// From the least to the most of some numbers.
    pub fn of(values: Vec<f64>, keep: Keep) -> Measured {
        let least = values.iter().copied().reduce(f64::min);
        let most = values.iter().copied().reduce(f64::max);
        match (least, most, keep) {
            (Some(least), Some(most), Keep::Range) => Measured::Numbers(Some(least), Some(most)),
            (Some(x), _, Keep::Least) | (_, Some(x), Keep::Most) => Measured::one(x),
            _ => Measured::Nothing,
        }
    }

    /// A single number.
    pub fn one(x: f64) -> Measured {
        Measured::Numbers(Some(x), Some(x))
    }
}

/// A finished comparison: cells in the order of the plan.
#[derive(Clone, Copy)]
pub struct Results<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its cells: variants slowest, then seeds, then policies.
    pub cells: &'a [Cell],
}

impl<'a> Results<'a> {
    /// Cells of a policy in a variant, one a seed.
    pub fn cells_of(&self, variant: usize, policy: &str) -> impl Iterator<Item = &'a Cell> + use<'a> {
        let (policies, seeds) = (self.plan.policies.len(), self.plan.seeds.len());
        let at = self.plan.policies.iter().position(|p| p.spec.label() == policy);
        let size = seeds * policies;
        let of_variant = &self.cells[variant * size..(variant + 1) * size];
        of_variant.iter().skip(at.unwrap_or(size)).step_by(policies)
    }

    /// Mean over seeds; absent when a seed lacks it.
    fn mean(&self, metric: Metric, variant: usize, policy: &str) -> Option<f64> {
        let values: Vec<f64> = self.cells_of(variant, policy).map(|c| metric::of(metric, c)).collect::<Option<_>>()?;
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The label of the best policy and its metric.
    fn best<'p>(&self, metric: Metric, variant: usize, among: &'p [String]) -> Option<(&'p String, f64)> {
        let each = among.iter().map(|p| self.mean(metric, variant, p).map(|x| (p, x)));
        let each: Vec<(&String, f64)> = each.collect::<Option<_>>()?;
        let better = |a: f64, b: f64| if metric.less_is_better() { a < b } else { a > b };
        each.into_iter().reduce(|a, b| if better(b.1, a.1) { b } else { a })
    }

    /// (swept number, f of the variant) in the order of the number.
    fn along(&self, path: &str, at: &At, f: impl Fn(usize) -> Option<f64>) -> Option<Vec<(f64, f64)>> {
        let point = |v: usize| choice(&self.plan.variants[v], path).and_then(|c| c.number).zip(f(v));
        let mut points: Vec<(f64, f64)> = variants(self.plan, at).map(point).collect::<Option<_>>()?;
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(points)
    }
}

/// Measures it.
///
/// # Errors
/// When a setting cannot be built again (its trace is gone).
pub fn measure(what: &Measure, results: Results) -> Result<Measured> {
    let each = |at: &At, keep: Keep, f: &dyn Fn(usize) -> Option<f64>| {
        let values: Option<Vec<f64>> = variants(results.plan, at).map(f).collect();
        values.map_or(Measured::Nothing, |values| Measured::of(values, keep))
    };
    Ok(match what {
        Measure::Value(m) => each(&m.at, m.keep, &|v| results.mean(m.metric, v, &m.policy)),
        Measure::Gain(m) => each(&m.at, m.keep, &|v| {
            let (_, other) = results.best(m.metric, v, &m.over)?;
            Some(gain(m.metric, results.mean(m.metric, v, &m.policy)?, other))
        }),
        Measure::Best(m) => {
            let best = |v| results.best(m.metric, v, &m.among).map(|(label, _)| label.clone());
            let labels: Option<Vec<String>> = variants(results.plan, &m.at).map(best).collect();
            labels.map_or(Measured::Nothing, Measured::Policies)
        }
        Measure::Crossing(m) => {
            let ahead = |v| {
                let own = results.mean(m.metric, v, &m.policy)?;
                Some(gain(m.metric, own, results.mean(m.metric, v, &m.over)?))
            };
            let points = results.along(&m.along, &m.at, ahead);
            points.map_or(Measured::Nothing, |points| crossing(points, m.turns))
        }
        Measure::Change(m) => {
            let points = results.along(&m.along, &m.at, |v| results.mean(m.metric, v, &m.policy));
            let ends = points.as_deref().and_then(|p| p.first().zip(p.last()));
            ends.map_or(Measured::Nothing, |(first, last)| {
                Measured::one((last.1 - first.1) / if m.relative { first.1 } else { 1.0 })
            })
        }
        Measure::Windows(m) => windows::lengths(m, results),
        Measure::Estimate(m) => replay::estimate(m, results.plan)?,
        Measure::BeliefLength(m) => cost::belief_length(m, results.plan)?,
        Measure::ImpliedLength(m) => cost::implied_length(m, results.plan),
    })
}

/// How far the first is ahead of the second, as a share of the second.
fn gain(metric: Metric, own: f64, other: f64) -> f64 {
    if metric.less_is_better() { other / own - 1.0 } else { own / other - 1.0 }
}

/// Where (x, gain) falls to 0, between two points on the straight line through them.
fn crossing(mut points: Vec<(f64, f64)>, turns: Turns) -> Measured {
    if turns == Turns::Ahead {
        points.reverse();
    }
    let beyond = |x: f64, grows: bool| match grows == (turns == Turns::Behind) {
        true => Measured::Numbers(Some(x), None),
        false => Measured::Numbers(None, Some(x)),
    };
    match points.iter().position(|&(_, gain)| gain <= 0.0) {
        Some(0) => beyond(points[0].0, false),
        Some(i) => {
            let ((x0, g0), (x1, g1)) = (points[i - 1], points[i]);
            Measured::one(x0 + (x1 - x0) * g0 / (g0 - g1))
        }
        None => points.last().map_or(Measured::Nothing, |&(x, _)| beyond(x, true)),
    }
}

/// The variants that `at` picks, by index.
pub fn variants<'p>(plan: &'p Plan, at: &'p At) -> impl Iterator<Item = usize> + use<'p> {
    (0..plan.variants.len()).filter(move |&v| at.iter().all(|(path, value)| picks(plan, v, path, value)))
}

/// Did the sweep at `path` take this value in a variant?
pub fn picks(plan: &Plan, variant: usize, path: &str, value: &toml::Value) -> bool {
    choice(&plan.variants[variant], path).is_some_and(|c| match (c.number, number(value)) {
        (Some(swept), Some(x)) => swept == x,
        (None, Some(x)) => place(plan, path, c) as f64 == x,
        _ => value.as_str() == Some(unquoted(&c.value)),
    })
}

/// Where in its sweep a choice stands, from 0.
fn place(plan: &Plan, path: &str, of: &Choice) -> usize {
    let mut seen: Vec<&str> = Vec::new();
    for value in plan.variants.iter().filter_map(|v| choice(v, path)).map(|c| c.value.as_str()) {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen.iter().position(|&value| value == of.value).unwrap_or(usize::MAX)
}

fn unquoted(text: &str) -> &str {
    text.trim_matches('"')
}

/// What the sweep at `path` took in a variant.
pub fn choice<'v>(variant: &'v Variant, path: &str) -> Option<&'v Choice> {
    variant.choices.iter().find(|c| c.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossing_lies_on_the_line_between_two_points() {
        let points = vec![(4.0, 0.5), (8.0, 0.3), (12.0, -0.1), (16.0, 0.2)];
        assert_eq!(crossing(points, Turns::Behind), Measured::one(11.0));
        let rising = vec![(0.2, -0.3), (0.4, -0.1), (0.6, 0.1)];
        assert!(
            matches!(crossing(rising, Turns::Ahead), Measured::Numbers(Some(x), Some(_)) if (x - 0.5).abs() < 1e-12)
        );
    }

    #[test]
    fn no_crossing_lies_beyond_what_was_swept() {
        assert_eq!(crossing(vec![(4.0, 0.5), (8.0, 0.3)], Turns::Behind), Measured::Numbers(Some(8.0), None));
        assert_eq!(crossing(vec![(4.0, -0.5), (8.0, 0.3)], Turns::Behind), Measured::Numbers(None, Some(4.0)));
        assert_eq!(crossing(vec![(0.3, 0.1), (0.5, 0.4)], Turns::Ahead), Measured::Numbers(None, Some(0.3)));
        assert_eq!(crossing(vec![(0.3, 0.1), (0.5, -0.4)], Turns::Ahead), Measured::Numbers(Some(0.5), None));
    }

    #[test]
    fn several_values_are_a_range_unless_one_end_is_asked_for() {
        let values = || vec![3.0, 1.0, 2.0];
        assert_eq!(Measured::of(values(), Keep::Range), Measured::Numbers(Some(1.0), Some(3.0)));
        assert_eq!(Measured::of(values(), Keep::Least), Measured::one(1.0));
        assert_eq!(Measured::of(values(), Keep::Most), Measured::one(3.0));
        assert_eq!(Measured::of(vec![], Keep::Most), Measured::Nothing);
    }
}
