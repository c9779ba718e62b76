//! Measures the quantity of a paper's claim in a finished comparison. There are a few general kinds of quantities, such
//! as a gain or a crossing. Each is measured in the variants that the claim's `at` picks.
//!
//! Most quantities are computed from the runs' means over seeds. Two groups are computed without the runs' results:
//! quantities of the pass costs alone (`cost.rs`), and quantities that follow from which draft tokens are right
//! (`replay.rs`).

use super::results::{Measured, Results};
use super::{cost, replay, windows};
use crate::plan::variants;
use crate::spec::paper::{At, Keep, Measure, Metric, Turns};
use crate::spec::problem::Result;

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
        Measure::Increase(m) => each(&m.at, m.keep, &|v| {
            Some(results.mean(m.metric, v, &m.policy)? / results.mean(m.metric, v, &m.over)? - 1.0)
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
            let each = points.map(|lists| lists.into_iter().map(|points| crossing(points, m.turns)).collect());
            each.map_or(Measured::Nothing, Measured::covering)
        }
        Measure::Keeps(m) => {
            let margin = |v| {
                let value = results.mean(m.metric, v, &m.policy)?;
                Some(if m.metric.less_is_better() { m.bound - value } else { value - m.bound })
            };
            let points = results.along(&m.along, &m.at, margin);
            let each = points.map(|lists| lists.into_iter().map(|points| keeps_from(&points)).collect());
            each.map_or(Measured::Nothing, Measured::covering)
        }
        Measure::Change(m) => {
            let points = results.along(&m.along, &m.at, |v| results.mean(m.metric, v, &m.policy));
            let change = |points: &Vec<(f64, f64)>| {
                let (first, last) = (points.first()?.1, points.last()?.1);
                Some((last - first) / if m.relative { first } else { 1.0 })
            };
            let each: Option<Vec<f64>> = points.and_then(|lists| lists.iter().map(change).collect());
            each.map_or(Measured::Nothing, |each| Measured::of(each, Keep::Range))
        }
        Measure::Windows(m) => windows::lengths(m, results),
        Measure::Estimate(m) => replay::estimate(m, results.plan)?,
        Measure::BeliefLength(m) => cost::belief_length(m, results.plan)?,
        Measure::ImpliedLength(m) => cost::implied_length(m, results.plan),
    })
}

/// How much better the metric's value `own` is than `other`, as a share: 0.1 means 10 % better. The metric says whether
/// less or more is better.
fn gain(metric: Metric, own: f64, other: f64) -> f64 {
    if metric.less_is_better() { other / own - 1.0 } else { own / other - 1.0 }
}

/// The x at which the gain of one policy over another first falls to 0 or below, by linear interpolation between
/// `points`, pairs (swept value x, gain) that ascend by x. The search goes to rising x, or to falling x for
/// `Turns::Ahead`. If no point has a gain of 0 or below, or if the first point of the search has a gain of 0 or below,
/// the answer is a range with an open end beyond the points. `Nothing` without points.
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

/// The least x of `points`, pairs (swept value x, margin of a metric to its bound), from which on every point meets the
/// bound (its margin is 0 or more). If the last point does not meet the bound, the answer is a range from the last x
/// on, with an open end. `Nothing` without points.
fn keeps_from(points: &[(f64, f64)]) -> Measured {
    let Some(last) = points.last() else { return Measured::Nothing };
    match points.iter().rposition(|&(_, margin)| margin < 0.0) {
        None => Measured::one(points[0].0),
        Some(i) if i + 1 == points.len() => Measured::Numbers(Some(last.0), None),
        Some(i) => Measured::one(points[i + 1].0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_kept_from_the_first_value_behind_the_last_that_breaks_it() {
        let points = |margins: [f64; 4]| [1.0, 2.0, 3.0, 4.0].into_iter().zip(margins).collect::<Vec<_>>();
        assert_eq!(keeps_from(&points([-0.5, 0.1, 0.2, 0.3])), Measured::one(2.0));
        assert_eq!(keeps_from(&points([-0.5, 0.1, -0.1, 0.0])), Measured::one(4.0));
        assert_eq!(keeps_from(&points([0.0, 0.1, 0.2, 0.3])), Measured::one(1.0));
        assert_eq!(keeps_from(&points([0.1, 0.1, 0.2, -0.3])), Measured::Numbers(Some(4.0), None));
        assert_eq!(keeps_from(&[]), Measured::Nothing);
    }

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
    fn a_crossing_outside_the_swept_values_has_an_open_end() {
        assert_eq!(crossing(vec![(4.0, 0.5), (8.0, 0.3)], Turns::Behind), Measured::Numbers(Some(8.0), None));
        assert_eq!(crossing(vec![(4.0, -0.5), (8.0, 0.3)], Turns::Behind), Measured::Numbers(None, Some(4.0)));
        assert_eq!(crossing(vec![(0.3, 0.1), (0.5, 0.4)], Turns::Ahead), Measured::Numbers(None, Some(0.3)));
        assert_eq!(crossing(vec![(0.3, 0.1), (0.5, -0.4)], Turns::Ahead), Measured::Numbers(Some(0.5), None));
    }

    #[test]
    fn crossings_of_several_assumptions_are_a_range() {
        let one = |x| Measured::one(x);
        assert_eq!(Measured::covering(vec![one(4.0), one(2.0)]), Measured::Numbers(Some(2.0), Some(4.0)));
        let beyond = Measured::Numbers(Some(8.0), None);
        assert_eq!(Measured::covering(vec![one(4.0), beyond]), Measured::Numbers(Some(4.0), None));
        assert_eq!(Measured::covering(vec![one(4.0), Measured::Nothing]), Measured::Nothing);
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
